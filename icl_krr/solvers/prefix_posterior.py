"""Mean and variance of a Gaussian process at every token, by conjugate gradient."""

from __future__ import annotations

from functools import partial
from typing import Unpack

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel, check_kernel
from ..readable import readable
from ..tasks import Task
from .algebra import like
from .prefix import PrefixOptions, in_units_of_y, prefix_systems, sees, tokens_of
from .prefix_iterations import conjugate_directions
from .results import Result


@readable
@struct.dataclass
class PosteriorTrajectory(Result):
    r"""All iterates of `prefix_posterior`, from iterate 0 to iterate L, at supports and queries.

    Args:
        prediction: means at the queries, [L + 1, q] or [L + 1, q, r].
        along: means at the supports from their prefixes, then at the queries; 0 at masked supports.
        variance: variances of the function at supports and queries, [L + 1, n + q].
        h: coefficients $(C_i + \lambda I)^{-1} \phi_i$, [L + 1, n + q, m].
        r: residual $\phi_i - (C_i + \lambda I) h_i$.
        d: direction.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> ik.solvers.prefix_posterior(ik.Linear(), task, ridge=1.0, steps=1).variance.tolist()
    [[0.0, 0.0], [1.0, 0.5]]
    """

    prediction: Float[Array, "..."]
    along: Float[Array, "..."]
    variance: Float[Array, "L T"]
    h: Float[Array, "L T m"]
    r: Float[Array, "L T m"]
    d: Float[Array, "L T m"]


@checks.suggesting
def prefix_posterior(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    steps: int,
    approximates: Kernel | None = None,
    **options: Unpack[PrefixOptions],
) -> PosteriorTrajectory:
    r"""Solve $(C_i + \lambda I) h_i = \phi_i$ at every token by conjugate gradient from $h = 0$.

    $$f_i = b_i^T h_i, \quad v_i = \lambda \phi_i^T h_i$$

    $C_i$ and $b_i$ are those of `prefix_conjugate_gradient`. After m steps, $f_i$ and $v_i$ are
    mean and variance of Bayesian linear regression on the features, with prior $N(0, I)$ and noise
    variance $\lambda / \beta_j$. In exact arithmetic, more steps never decrease $v_i$; before
    convergence, it is too small by $\lambda r_i^T (C_i + \lambda I)^{-1} r_i \leq |r_i|^2$ with the
    residual $r_i$.

    Args:
        approximates: kernel k that the features approximate, as Nystrom features do; $v_i$ then
            also has the part $k(x, x) - |\phi_i|^2$, which they leave out. Default None: it does
            not.

    Source: Rasmussen and Williams, Gaussian processes for machine learning, 2006, eq. 2.8;
    Quinonero-Candela and Rasmussen, A unifying view of sparse approximate Gaussian process
    regression, 2005, section 5, for `approximates`.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 4.0], x_query=[[1.0]])
    >>> result = prefix_posterior(Linear(), task, ridge=1.0, steps=1)
    >>> result.along[-1].tolist(), [round(float(v), 4) for v in result.variance[-1]]
    ([0.0, 1.0, 2.0], [1.0, 0.5, 0.3333])
    """
    checks.one_ridge(ridge)
    if approximates is not None:
        check_kernel(approximates)
    given = sees(kernel, task, steps, options)
    return solve(kernel, task, ridge, approximates, given, steps)


@partial(jax.jit, static_argnames="steps")
def solve(kernel, task, ridge, approximates, given, steps):
    run, parts = partial(iterate, steps), (kernel, ridge, approximates, given)
    results = in_units_of_y(task, run, (1, 0, 0, 0, 0), *parts)
    along = like(task.y, results[0])
    return PosteriorTrajectory(along[:, task.num_supports :], along, *results[1:])


def iterate(steps, task, kernel, ridge, approximates, given):
    tokens = tokens_of(task, given)
    phi, C, b = prefix_systems(kernel, tokens, given)
    ridge = jnp.asarray(ridge, phi.dtype)
    h, r, d = (path[..., 0] for path in conjugate_directions(C, phi[:, :, None], ridge, steps))
    along = jnp.einsum("tmr,ltm->ltr", b, h, precision="highest")
    missing = jnp.zeros(len(phi), phi.dtype)
    if approximates is not None:
        left_out = approximates.diagonal(tokens.x) - jnp.sum(phi * phi, axis=1)
        missing = jnp.where(tokens.kept, left_out, 0)
    # jaxlib 0.10.2 compiles a sum of products to wrong numbers here, for many steps in float32
    of_features = jnp.einsum("tm,ltm->lt", phi, h, precision="highest")
    variance = missing[None] + ridge * of_features
    return along, variance, h, r, d
