"""Exact kernel ridge regression, differentiated by hand: one function a formula.

Throughout A = K + ridge I, alpha = A^-1 y, h(x) = A^-1 k(x) and f(x) = k(x)^T alpha at the q
queries, for a task of one output, in its dtype; masked supports have derivatives 0. No automatic
differentiation is used, so that agreement with it is evidence for both. All functions raise
ValueError for a ridge that is not > 0 and for a task of several outputs or a batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks, linalg
from ..kernels import Kernel
from ..numerics import matmul
from ..tasks import Task, system
from ..tasks.task import check_one_output
from .algebra import check_system, seen
from .exact import shifted

Ridge = float | Float[Array, ""]


class Solved(NamedTuple):
    """The supports' x, alpha [n], the hat rows h [q, n] and A^-1 [n, n]."""

    x: Float[Array, "n p"]
    alpha: Float[Array, " n"]
    hat: Float[Array, "q n"]
    inverse: Float[Array, "n n"]


def solved(kernel: Kernel, task: Task, ridge: Ridge) -> Solved:
    check_system(kernel, task, ridge)
    checks.factorable("x", task.x)
    check_one_output(task)
    gram, cross, y = system(kernel, task)
    if task.mask is not None:
        cross = jnp.where(task.mask[None], cross, 0)
    A = shifted(gram, jnp.asarray(ridge, y.dtype))
    inverse = linalg.solve(A, jnp.eye(len(A), dtype=A.dtype))
    return Solved(seen(task)[0], matmul(inverse, y)[:, 0], matmul(cross, inverse), inverse)


def derivative_in_y(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q n"]:
    """$df/dy = k(x)^T A^{-1}$, the hat matrix [q, n].

    >>> from icl_krr import Linear
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> derivative_in_y(Linear(), task, ridge=1.0).round(4).tolist()
    [[0.5]]
    """
    return solved(kernel, task, ridge).hat


def derivative_in_ridge(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, " q"]:
    r"""$df/d\lambda = -k(x)^T A^{-1} \alpha$, [q].

    >>> from icl_krr import Linear
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.array([4.0]), x_query=jnp.ones((1, 1)))
    >>> derivative_in_ridge(Linear(), task, ridge=1.0).round(4).tolist()
    [-1.0]
    """
    _, alpha, hat, _ = solved(kernel, task, ridge)
    return -matmul(hat, alpha)


def derivative_in_bandwidth(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, " q"]:
    r"""$df/d\theta$ for $\theta$ the temperature or lengthscale of the kernel: [q].

    $$\frac{df}{d\theta} = \frac{dk}{d\theta}^T \alpha - k^T A^{-1} \frac{dK}{d\theta} \alpha$$

    Raises TypeError for a kernel that has neither.

    >>> from icl_krr import Gaussian
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.ones(1), x_query=jnp.ones((1, 1)))
    >>> float(abs(derivative_in_bandwidth(Gaussian(2.0), task, ridge=1.0))[0])
    0.0
    """
    x, alpha, hat, _ = solved(kernel, task, ridge)
    cross, gram = (kernel.derivative_in_bandwidth(at, x) for at in (task.x_query, x))
    return matmul(cross - matmul(hat, gram), alpha)


def derivative_in_projection(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q d p"]:
    r"""$df/dU$ for $U$ the kernel's projection: [q, d, p].

    $$\frac{df}{dU} = \frac{dk}{dU}^T \alpha - k^T A^{-1} \frac{dK}{dU} \alpha$$

    A sketch $P$ of the linear kernel is the projection $U = P^T$; a kernel without one has $U = I$.

    Raises TypeError for a kernel that is not linear, exponential or Gaussian.

    >>> from icl_krr import Linear
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.array([4.0]), x_query=jnp.ones((1, 1)))
    >>> derivative_in_projection(Linear(), task, ridge=1.0).round(4).tolist()
    [[[2.0]]]
    """
    x, alpha, hat, _ = solved(kernel, task, ridge)
    cross, gram = (kernel.derivative_in_projection(at, x) for at in (task.x_query, x))
    return contract("qndp,n->qdp", cross, alpha) - contract("qm,mndp,n->qdp", hat, gram, alpha)


def derivative_in_queries(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q p"]:
    r"""$df(x)/dx = (dk(x)/dx)^T \alpha$, [q, p]: a query's answer depends on no other query.

    Raises TypeError for a kernel that is not linear, exponential or Gaussian.

    >>> from icl_krr import Linear
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.array([4.0]), x_query=jnp.ones((1, 1)))
    >>> derivative_in_queries(Linear(), task, ridge=1.0).round(4).tolist()
    [[2.0]]
    """
    x, alpha, _, _ = solved(kernel, task, ridge)
    return contract("qnp,n->qp", kernel.derivative_in_x(task.x_query, x), alpha)


def derivative_in_supports(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q n p"]:
    r"""The derivative of every answer in every support's features: [q, n, p].

    $$df/dx_j = \alpha_j g(x_j, x) - \sum_m (h_j \alpha_m + h_m \alpha_j) g(x_j, x_m)$$

    $g(a, b) = dk(a, b)/da$, $h = A^{-1} k(x)$: $x_j$ moves the row and the column j of $A$, and
    twice its diagonal entry.

    Raises TypeError for a kernel that is not linear, exponential or Gaussian.

    >>> from icl_krr import Linear
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.array([4.0]), x_query=jnp.ones((1, 1)))
    >>> derivative_in_supports(Linear(), task, ridge=1.0).round(4).tolist()
    [[[0.0]]]
    """
    x, alpha, hat, _ = solved(kernel, task, ridge)
    cross, gram = (kernel.derivative_in_x(x, to) for to in (task.x_query, x))
    own = contract("nqp,n->qnp", cross, alpha)
    row = contract("qj,jmp,m->qjp", hat, gram, alpha)
    return own - row - contract("qm,jmp,j->qjp", hat, gram, alpha)


def derivative_in_weights(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q n"]:
    r"""$df/dw_j = \lambda h_j \alpha_j$ at $w = 1$, [q, n]: how much support j counts.

    With $w_j$ in the loss $\sum_j w_j (y_j - f(x_j))^2 + \lambda |f|^2$, $A$ is
    $K + \lambda \, \mathrm{diag}(1 / w)$; $h = A^{-1} k(x)$.

    >>> from icl_krr import Linear
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.array([4.0]), x_query=jnp.ones((1, 1)))
    >>> derivative_in_weights(Linear(), task, ridge=1.0).round(4).tolist()
    [[1.0]]
    """
    _, alpha, hat, _ = solved(kernel, task, ridge)
    return jnp.asarray(ridge, hat.dtype) * hat * alpha[None]


def change_without(kernel: Kernel, task: Task, *, ridge: Ridge) -> Float[Array, "q n"]:
    r"""$f_{-j} - f = -h_j \alpha_j / (A^{-1})_{jj}$, [q, n]: what leaving out support j changes.

    $h = A^{-1} k(x)$ is the hat row of a query.

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, section 5.4.2: the
    block inverse that gives their eq. 5.12, at a query.

    >>> from icl_krr import Linear
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.array([4.0]), x_query=jnp.ones((1, 1)))
    >>> change_without(Linear(), task, ridge=1.0).round(4).tolist()
    [[-2.0]]
    """
    _, alpha, hat, inverse = solved(kernel, task, ridge)
    return -hat * alpha[None] / jnp.diagonal(inverse)[None]


def contract(formula: str, *operands: Any) -> jax.Array:
    return jnp.einsum(formula, *operands, precision=jax.lax.Precision.HIGHEST)
