"""Choose hyperparameters by leave-one-out error on the supports alone.

Regression and the baselines use the same procedure.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from ... import solvers
from ...kernels import Kernel
from ...tasks import Task, system


def ridges(kernel: Kernel, task: Task) -> jax.Array:
    """13 ridges from 1e-3 to 1e3 times tr K / n."""
    gram = system(kernel, task).gram
    scale = jnp.trace(gram) / task.num_supports
    scale = jnp.where(scale > 0, scale, 1)
    return scale * jnp.logspace(-3, 3, 13, dtype=gram.dtype)


def bandwidths(family: type[Kernel], task: Task) -> jax.Array:
    """17 bandwidths around the value at which logits have size 1."""
    return family.bandwidths(task.x, task.mask)


def choose_ridge(kernel: Kernel, task: Task) -> float:
    """The value of `ridges` with the least squared leave-one-out error."""
    grid = ridges(kernel, task)
    return float(grid[best(lambda ridge: loss(kernel, task, ridge), grid, "ridge")])


def choose_smoother(family: type[Kernel], task: Task) -> Kernel:
    """The kernel whose bandwidth has the least leave-one-out error of Nadaraya-Watson."""

    def error(kernel: Kernel) -> jax.Array:
        return jnp.sum(solvers.smoother_leave_one_out(kernel, task) ** 2)

    return choose(family, task, error)


def choose_kernel(family: type[Kernel], task: Task, ridge: float | None) -> Kernel:
    """The kernel whose bandwidth has the least leave-one-out error of regression.

    If `ridge` is None, each bandwidth is compared at its best ridge in `ridges`.
    """

    def error(kernel: Kernel) -> jax.Array:
        if ridge is not None:
            return loss(kernel, task, ridge)
        losses = jax.lax.map(lambda r: loss(kernel, task, r), ridges(kernel, task))
        return jnp.min(jnp.where(jnp.isfinite(losses), losses, jnp.inf))

    return choose(family, task, error)


def choose(family: type[Kernel], task: Task, error: Callable[[Kernel], jax.Array]) -> Kernel:
    """The kernel whose bandwidth has the least error; `family()` if it has no bandwidth."""
    if family.bandwidth is None:
        return family()
    grid = bandwidths(family, task)
    least = best(lambda value: error(family.of_bandwidth(value)), grid, "bandwidth")
    return family.of_bandwidth(float(grid[least]))


def loss(kernel: Kernel, task: Task, ridge: float | jax.Array) -> jax.Array:
    return jnp.sum(solvers.leave_one_out(kernel, task, ridge=ridge) ** 2)


def best(error: Callable[[jax.Array], jax.Array], values: jax.Array, name: str) -> int:
    # lax.map, because vmap would hold all factorisations in memory at once
    errors = jax.jit(lambda values: jax.lax.map(error, values))(values)
    errors = jnp.where(jnp.isfinite(errors), errors, jnp.inf)
    if not jnp.isfinite(jnp.min(errors)):
        raise ValueError(
            f"{name} must be given, because every leave-one-out error is NaN or infinite"
        )
    return int(jnp.argmin(errors))
