"""Mean and variance of a Gaussian process at every token, by conjugate gradient."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel, check_kernel
from ..readable import readable
from ..tasks import Task
from .algebra import like
from .prefix import check_gate, check_prefix, in_units_of_y, num_features, prefix_systems, tokens_of
from .prefix_iterations import conjugate_directions
from .results import Result


@readable
@struct.dataclass
class PosteriorTrajectory(Result):
    r"""All iterates of `prefix_posterior`, from iterate 0 to iterate L, at supports and queries.

    Args:
        prediction: means at the queries, [L + 1, q] or [L + 1, q, r].
        along: means at the supports from their prefixes, then at the queries, [L + 1, n + q] or
            [L + 1, n + q, r]; 0 at masked supports.
        variance: variances of the function at supports and queries, [L + 1, n + q].
        h: coefficients $(C_i + \lambda I)^{-1} \phi_i$, [L + 1, n + q, m].
        r: residual $\phi_i - (C_i + \lambda I) h_i$, [L + 1, n + q, m].
        d: direction, [L + 1, n + q, m].

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
    prefix: str = "exclusive",
    log_gate: Any = None,
    strength: Any = None,
    window: int | None = None,
) -> PosteriorTrajectory:
    r"""Solve $(C_i + \lambda I) h_i = \phi_i$ at every token by conjugate gradient from $h = 0$.

    $$f_i = b_i^T h_i, \quad v_i = \lambda \phi_i^T h_i$$

    $C_i$ and $b_i$ are those of `prefix_conjugate_gradient`. After m steps, $f_i$ and $v_i$ are
    mean and variance of Bayesian linear regression on the features, with prior $N(0, I)$ and noise
    variance $\lambda / \beta_j$.

    Args:
        task, ridge, prefix, log_gate, strength, window: as in `icl_krr.solvers`,
            which also says what is raised.
        kernel, steps: as in `prefix_conjugate_gradient`.
        approximates: kernel k that the features approximate; $v_i$ then also has the part
            $k(x, x) - |\phi_i|^2$. Default None: it does not.

    Source: Rasmussen and Williams, Gaussian processes for machine learning, 2006, eq. 2.8.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 4.0], x_query=[[1.0]])
    >>> result = prefix_posterior(Linear(), task, ridge=1.0, steps=1)
    >>> result.along[-1].tolist(), [round(float(v), 4) for v in result.variance[-1]]
    ([0.0, 1.0, 2.0], [1.0, 0.5, 0.3333])
    """
    checks.one_ridge(ridge)
    if approximates is not None:
        check_kernel(approximates)
    check_gate(log_gate, strength)
    check_prefix(kernel, task, prefix, window, steps, num_features(kernel, task))
    return solve(kernel, task, ridge, approximates, log_gate, strength, steps, prefix, window)


@partial(jax.jit, static_argnames=("steps", "prefix", "window"))
def solve(kernel, task, ridge, approximates, log_gate, strength, steps, prefix, window):
    given = kernel, ridge, approximates, log_gate, strength
    results = in_units_of_y(task, partial(iterate, steps, prefix, window), (1, 0, 0, 0, 0), *given)
    along = like(task.y, results[0])
    return PosteriorTrajectory(along[:, task.num_supports :], along, *results[1:])


def iterate(steps, prefix, window, task, kernel, ridge, approximates, log_gate, strength):
    tokens = tokens_of(task, log_gate, strength)
    phi, C, b = prefix_systems(kernel, tokens, prefix, window)
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
