"""The delta rule: online gradient descent, one support after the other."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel
from ..numerics import matmul, reciprocal
from ..tasks import Task
from ..tasks.task import check_axes
from .algebra import like
from .prefix import check_prefix, decays, in_units_of_y, tokens_of
from .results import CausalTrajectory


@checks.suggesting
def delta_rule(
    kernel: Kernel,
    task: Task,
    *,
    step_size: float | Float[Array, ""],
    steps: int | None = None,
    normalised: bool = False,
    prefix: str = "exclusive",
    log_gate: Any = None,
    strength: Any = None,
    window: int | None = None,
) -> CausalTrajectory:
    r"""Learn the supports one by one, each from its error.

    $$\alpha_i = \eta_i (y_i - f_i), \quad f_i = \sum_{j < i} e^{G_i - G_j} k(x_i, x_j) \alpha_j$$

    The step size is $\eta_i = \eta \beta_i$ with the write strength $\beta_i$, divided by
    $k(x_i, x_i)$ if `normalised`. $G_i$ is the sum of the log gates up to i. Iterate t has learned
    from the first t supports that are not masked. For the linear kernel without gates, $\alpha$
    solves $(\mathrm{tril}(K, -1) + \eta^{-1} I) \alpha = y$.

    Args:
        kernel, task, prefix, log_gate, strength, window: as in `icl_krr.solvers`,
            which also says what is raised.
        step_size: step size $\eta$ > 0.
        steps: number of supports to learn from, >= 1; default None: all n.
        normalised: whether the step size is divided by $k(x_i, x_i)$; default False.

    Source: Widrow and Hoff, Adaptive switching circuits, 1960; Yang et al., Gated delta networks,
    2024, equation 10.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 2.0], x_query=[[1.0]])
    >>> delta_rule(Linear(), task, step_size=0.5).along[-1].tolist()
    [0.0, 1.0, 1.5]
    """
    check_axes(task)
    steps = task.num_supports if steps is None else steps
    check_prefix(kernel, task, prefix, window, steps, 1)
    checks.positive_scalar("step_size", step_size)
    checks.flag("normalised", normalised)
    return learn(kernel, task, step_size, log_gate, strength, steps, normalised, prefix, window)


@partial(jax.jit, static_argnames=("steps", "normalised", "prefix", "window"))
def learn(kernel, task, step_size, log_gate, strength, steps, normalised, prefix, window):
    run = partial(coefficients, steps, normalised, prefix, window)
    alpha, along = in_units_of_y(task, run, 1, kernel, step_size, log_gate, strength)
    alpha, along = like(task.y, alpha), like(task.y, along)
    return CausalTrajectory(prediction=along[:, task.num_supports :], along=along, alpha=alpha)


def coefficients(steps, normalised, prefix, window, task, kernel, step_size, log_gate, strength):
    tokens, n = tokens_of(task, log_gate, strength), task.num_supports
    own = jnp.where(tokens.kept[:n], kernel.diagonal(tokens.x[:n]), 0)
    values = kernel(tokens.x, tokens.x[:n])
    earlier = decays(tokens, "exclusive", window) * values
    rate = jnp.asarray(step_size, own.dtype) * tokens.strength
    rate = rate * reciprocal(own) if normalised else rate

    def step(alpha, i):
        f = matmul(earlier[i][None], alpha)[0]
        return alpha.at[i].set(rate[i] * (tokens.y[i] - f)), None

    alpha, _ = jax.lax.scan(step, jnp.zeros_like(tokens.y), jnp.arange(n))
    number = jnp.cumsum(tokens.kept[:n])
    learned = number[None] <= jnp.arange(steps + 1)[:, None]
    path = jnp.where(learned[:, :, None], alpha[None], 0)
    along = matmul(
        earlier if prefix == "exclusive" else decays(tokens, prefix, window) * values, path
    )
    return path, jnp.where(tokens.kept[None, :, None], along, 0)
