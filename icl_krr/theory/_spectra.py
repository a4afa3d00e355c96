"""Eigenvalues of the kernel matrix, plain and preconditioned, and what follows from them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core import checks, linalg
from .._core.pytree import jit_if_concrete
from ..kernels import Kernel, PositiveKernel
from ..kernels._log_bilinear import check_positive
from ..tasks import Task, system
from ..tasks._linear_system import check_matrices
from ._softmax import _unmasked

Number = jax.Array | float


def eigenvalues(kernel: Kernel, task: Task) -> Float[Array, " n"]:
    """Return the eigenvalues of $K$ on the supports, ascending.

    Eigenvalues that are below 0 by rounding are set to 0. Each masked support adds an eigenvalue 0.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[2.0, 0.0], [0.0, 2.0]], y=[1.0, 1.0], x_query=[[1.0, 1.0]])
    >>> eigenvalues(Linear(), task).tolist()
    [4.0, 4.0]
    """
    check_matrices(kernel, task)
    checks.factorable("x", task.x)
    return at_least_zero(kernel, task)


@jit_if_concrete
def at_least_zero(kernel: Kernel, task: Task) -> jax.Array:
    return jnp.maximum(linalg.eigenvalues(system(kernel, task).gram), 0)


@checks.suggest_keywords
def spectral_bounds(kernel: Kernel, task: Task, *, ridge: Number) -> tuple:
    r"""Return the smallest and the largest eigenvalue of $K + \lambda I$ on the supports.

    Masked supports do not count. Without unmasked supports both bounds are $\lambda$. Solvers such
    as `icl_krr.solvers.chebyshev` take them as `spectrum`. `icl_krr.audit` says how far rounding
    moved them.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[2.0, 0.0], [0.0, 2.0]], y=[1.0, 1.0], x_query=[[1.0, 1.0]])
    >>> [float(bound) for bound in spectral_bounds(Linear(), task, ridge=1.0)]
    [5.0, 5.0]
    """
    checks.positive_scalar("ridge", ridge)
    check_matrices(kernel, task)
    checks.factorable("x", task.x)
    return ends(kernel, task, ridge)


@jit_if_concrete
def ends(kernel: Kernel, task: Task, ridge: Any) -> tuple:
    """The smallest and the largest eigenvalue of A."""
    sigma = at_least_zero(kernel, task)
    ridge = jnp.asarray(ridge, sigma.dtype)
    masked = 0 if task.mask is None else task.num_supports - jnp.sum(task.mask)
    return sigma.at[masked].get(mode="clip") + ridge, sigma[-1] + ridge


def prefix_bounds(kernel: Kernel, task: Task, *, ridge: Number | Float[Array, " m"]) -> tuple:
    r"""Bound the eigenvalues of $C_i + \lambda I$ for all prefixes of a context.

    $C_i = \sum_j \phi_j \phi_j^T$ sums over the supports of prefix i. An empty prefix has 0, so the
    lower bound is $\lambda$. The upper bound is the largest eigenvalue of $K + \lambda I$ for all
    supports. Both hold for gates and strengths that are at most 1, and with a window. For a ridge
    of each feature [m], they have the smallest and the largest of them.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[2.0, 0.0], [0.0, 2.0]], y=[1.0, 1.0], x_query=[[1.0, 1.0]])
    >>> [float(bound) for bound in prefix_bounds(Linear(), task, ridge=1.0)]
    [1.0, 5.0]
    """
    low = most = ridge
    if jnp.ndim(ridge) == 1:
        checks.shapes(ridge=(ridge, "m"))
        checks.positives(ridge=ridge)
        low, most = jnp.min(ridge), jnp.max(ridge)
    high = spectral_bounds(kernel, task, ridge=most)[1]
    return jnp.asarray(low, high.dtype), high


def effective_dimension(sigma: Float[Array, " n"], ridge: Number) -> Float[Array, ""]:
    r"""Return the effective dimension $\sum_i \sigma_i / (\sigma_i + \lambda)$ of the regression.

    It equals $\mathrm{tr} K A^{-1}$. The order of the eigenvalues does not matter.

    >>> float(effective_dimension(jnp.array([1.0, 3.0]), 1.0))
    1.25
    """
    checks.shapes(sigma=(sigma, "n"))
    checks.positive_scalar("ridge", ridge)
    return jnp.sum(sigma / (sigma + ridge))


def lost_share_bound(dimension: Number, width: Number) -> jax.Array:
    r"""Bound the part of y along the first lost eigenvector that regression would predict (C19).

    $$\frac{\sigma_{m+1}}{\sigma_{m+1} + \lambda} \leq \frac{d}{m + 1}$$

    $d$ is the `effective_dimension`. At the supports, kernel ridge regression multiplies the part
    of $y$ along the i-th eigenvector of $K$ by $w_i = \sigma_i / (\sigma_i + \lambda)$. The best
    sketch to m features keeps the first m of these parts and sets the others to 0. So its answers
    at the supports change by at most $w_{m+1} |y|$. At $m = d$ the bound is nearly 1 and says
    nothing; at $m = 3 d$ it is below 1/3. It is attained if $K$ has $m + 1$ equal eigenvalues and
    the others are 0.

    Proof: the weights $w_1 \geq w_2 \geq \dots$ sum to $d$, so the first $m + 1$ of them sum to at
    most $d$, and $w_{m+1}$ is the smallest of these.

    >>> float(lost_share_bound(2.0, 7))
    0.25
    """
    checks.nonnegatives(dimension=dimension, width=width)
    return jnp.asarray(dimension) / (jnp.asarray(width) + 1)


def opposite_pair_eigenvalue(form: Float[Array, "p p"], temperature: Number) -> Float[Array, ""]:
    r"""Return the smallest eigenvalue $2 \sinh(\mu / \tau)$ of the scores of two points (C32).

    The scores are $\exp(x^T M z / \tau)$ for a symmetric matrix $M = W_Q^T W_K$ with smallest
    eigenvalue $\mu$. The points are the unit eigenvector of $\mu$ and its negative. So the scores
    are a positive semi-definite kernel if and only if $M$ has no negative eigenvalue.

    >>> round(float(opposite_pair_eigenvalue(-jnp.eye(2), 1.0)), 2)
    -2.35
    """
    checks.shapes(form=(form, "p p"))
    checks.positive_scalar("temperature", temperature)
    return 2 * jnp.sinh(linalg.eigh(form)[0][0] / temperature)


def preconditioned_eigenvalues(
    kernel: PositiveKernel, task: Task, *, ridge: Number, sink: Number
) -> Float[Array, " n"]:
    r"""Return the eigenvalues of $(D + cI)^{-1} (K + \lambda I)$, ascending (C13).

    $D$ is the diagonal matrix of the row sums of $K$. The ratio of the largest to the smallest
    eigenvalue still grows with n, in spite of the preconditioner. In place of each masked support,
    the smallest eigenvalue is repeated.

    >>> from icl_krr import Gaussian, Task
    >>> task = Task(x=[[1.0]], y=[1.0], x_query=[[1.0]])
    >>> preconditioned_eigenvalues(Gaussian(), task, ridge=1.0, sink=1.0).round(4).tolist()
    [1.0]
    """
    check_matrices(kernel, task)
    check_positive(kernel, "to have a normaliser")
    checks.positive_scalar("ridge", ridge)
    checks.positive_scalar("sink", sink)
    return preconditioned(kernel, task, ridge, sink)


@jit_if_concrete
def preconditioned(kernel: PositiveKernel, task: Task, ridge: Number, sink: Number) -> jax.Array:
    gram = system(kernel, task).gram
    ridge, sink = (jnp.asarray(value, gram.dtype) for value in (ridge, sink))
    root = 1 / jnp.sqrt(jnp.sum(gram, axis=1) + sink)
    A = gram + ridge * jnp.eye(len(gram), dtype=gram.dtype)
    _, keep = _unmasked(task)
    sigma = linalg.eigenvalues(jnp.where(keep[:, None], root[:, None] * A * root[None, :], 0))
    # a masked support adds the eigenvalue 0, and all others are > 0
    return jnp.maximum(sigma, sigma.at[jnp.sum(~keep)].get(mode="clip"))
