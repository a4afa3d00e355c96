"""What can be reached: the exact predictor of a family, and the baselines, on the same tasks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import solvers
from ..kernels import Exponential, Gaussian, Kernel, Linear
from ..tasks import Sampler, Task, map_tasks
from .batches import draw

Optimal = tuple[Kernel, Any] | None
"""Kernel and ridge of a family's posterior mean, where they are known."""


class Reference(NamedTuple):
    """Kernel ridge regression for a family: `known` if it is the posterior mean, else fitted.

    `smoother` is the kernel of the best Nadaraya-Watson estimator.
    """

    kernel: Kernel
    ridge: float
    known: bool
    smoother: Kernel

    def losses(self, tasks: Task) -> dict[str, float]:
        """Mean squared errors at the queries of a batch."""
        return {
            "exact": float(loss(lambda task: regression(self.kernel, task, self.ridge), tasks)),
            "nadaraya_watson": float(loss(lambda task: smoothing(self.smoother, task), tasks)),
            "mean": float(loss(average, tasks)),
            "zero": float(jnp.mean(tasks.y_query**2)),
        }


def regression(kernel: Kernel, task: Task, ridge: float | jax.Array) -> jax.Array:
    return solvers.exact(kernel, task, ridge=ridge).prediction


def smoothing(kernel: Kernel, task: Task) -> jax.Array:
    return solvers.nadaraya_watson(kernel, task).prediction


def average(task: Task) -> jax.Array:
    return jnp.broadcast_to(jnp.mean(task.y, axis=0), task.y_query.shape)


def loss(predict: Callable[[Task], jax.Array], tasks: Task) -> jax.Array:
    each = jax.jit(partial(map_tasks, lambda t: jnp.mean((predict(t) - t.y_query) ** 2)))
    return jnp.mean(each(tasks))


def optimal(family: Sampler) -> Optimal:
    return getattr(family, "optimal", lambda: None)()


def reference(family: Sampler, key: jax.Array, count: int = 256) -> Reference:
    """The family's own posterior mean; where it has none, the regression that is best on tasks.

    Kernel, bandwidth and ridge are then those of least squared error at the queries of `count`
    tasks of their own `key`, among the linear, exponential and Gaussian kernels; so is the
    bandwidth of the smoother, always.

    >>> from icl_krr.tasks import LinearRegression
    >>> found = reference(LinearRegression(num_features=4, num_supports=8), jax.random.key(0), 8)
    >>> found.known, found.ridge, type(found.smoother).__name__
    (True, 0.4, 'Gaussian')
    """
    tasks = draw(key, family, count)
    size = jnp.sqrt(jnp.mean(jnp.sum(tasks.x**2, axis=-1)))
    widths = (size * jnp.logspace(-6, 3, 19, base=2))[:, None]
    _, (width,) = best(lambda at, task: smoothing(Gaussian(at[0]), task), widths, tasks)
    known = optimal(family)
    if known is not None:
        kernel, ridge = known
        return Reference(kernel, ridge, True, Gaussian(width))
    ridges = 10.0 ** jnp.arange(-4.0, 3.0)
    found = []
    for make, bandwidths in (
        (lambda _: Linear(), widths[:1]),
        (Gaussian, widths),
        (Exponential, widths[6:] ** 2),
    ):
        grid = jnp.stack(jnp.meshgrid(bandwidths[:, 0], ridges), axis=-1).reshape(-1, 2)
        regress = lambda at, task, make=make: regression(make(at[0]), task, at[1])  # noqa: E731
        error, (bandwidth, ridge) = best(regress, grid, tasks)
        found.append((error, make(bandwidth), ridge))
    _, kernel, ridge = min(found, key=lambda entry: entry[0])
    return Reference(kernel, ridge, False, Gaussian(width))


def best(
    predict: Callable[[jax.Array, Task], jax.Array], grid: jax.Array, tasks: Task
) -> tuple[float, list[float]]:
    """The least mean squared error over a grid of parameters, and where it is."""

    def error(at: jax.Array) -> jax.Array:
        return jnp.mean(map_tasks(lambda t: jnp.mean((predict(at, t) - t.y_query) ** 2), tasks))

    errors = jax.jit(lambda grid: jax.lax.map(error, grid))(grid)
    errors = jnp.where(jnp.isfinite(errors), errors, jnp.inf)
    at = int(jnp.argmin(errors))
    return float(errors[at]), grid[at].tolist()
