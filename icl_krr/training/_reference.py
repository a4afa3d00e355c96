"""Reference losses on the same tasks: the exact predictor of a family, and baselines.

The losses are squared errors, and for outputs with noise also likelihoods.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import Exponential, Gaussian, Kernel, Linear, solvers
from .._core import checks
from .._core.readable import readable
from ..solvers._algebra import like, masked_arrays
from ..solvers._likelihood import num_unmasked
from ..tasks import Sampler, Task, map_tasks
from ..tasks._batches import check_batch, task_shapes
from ..tasks._samplers import check_sampler
from ..uncertainty import Predictive, log_density
from ._batches import draw

Optimal = tuple[Kernel, Any] | None
"""Kernel and ridge of the posterior mean of a family, or None if they are not known."""


@readable
class Reference(NamedTuple):
    """Reference predictors for a family: kernel ridge regression and a Nadaraya-Watson smoother.

    Attributes:
        is_exact: True if the regression is the posterior mean of the family, False if fitted.
        smoother: kernel of the best Nadaraya-Watson estimator.
    """

    kernel: Kernel
    ridge: float
    is_exact: bool
    smoother: Kernel

    def losses(self, tasks: Task) -> dict[str, float]:
        """Compute the mean squared errors of the predictors at the queries of a batch of tasks.

        They are "exact" (the regression), "nadaraya_watson", "mean" (of the supports' y) and
        "zero".
        """
        errors = errors_of(self.kernel, self.ridge, self.smoother, tasks)
        return {name: float(error) for name, error in errors.items()}


@jax.jit
def errors_of(kernel: Kernel, ridge: Any, smoother: Kernel, tasks: Task) -> dict[str, jax.Array]:
    def squares(task: Task) -> dict[str, jax.Array]:
        predictions = {
            "exact": regression(kernel, task, ridge),
            "nadaraya_watson": smoothing(smoother, task),
            "mean": average(task),
            "zero": jnp.zeros_like(task.y_query),
        }
        return {name: jnp.mean((f - task.y_query) ** 2) for name, f in predictions.items()}

    return jax.tree.map(jnp.mean, map_tasks(squares, tasks))


def regression(kernel: Kernel, task: Task, ridge: float | jax.Array) -> jax.Array:
    return solvers.exact(kernel, task, ridge=ridge).prediction


def smoothing(kernel: Kernel, task: Task) -> jax.Array:
    return solvers.nadaraya_watson(kernel, task).prediction


def average(task: Task) -> jax.Array:
    _, y = masked_arrays(task)
    mean = jnp.sum(y, axis=0) / jnp.maximum(num_unmasked(task), 1)
    return like(task.y, jnp.broadcast_to(mean, (task.num_queries, task.num_outputs)))


def optimal(family: Sampler) -> Optimal:
    return getattr(family, "optimal", lambda: None)()


def reference(family: Sampler, key: jax.Array, count: int = 256) -> Reference:
    """Return the posterior mean of a family, or fit the best kernel ridge regression.

    If the posterior mean of the family is not known, a grid search on `count` tasks chooses the
    kernel (linear, exponential or Gaussian), the bandwidth and the ridge with the least squared
    error at the queries. The smoother always has a Gaussian kernel, and its bandwidth is always
    chosen on these tasks.

    Args:
        family: family of tasks. Its method `optimal`, if it has one, returns the kernel and the
            ridge of the posterior mean, or None.
        count: number of tasks.

    >>> from icl_krr.tasks import LinearRegression
    >>> found = reference(LinearRegression(num_features=4, num_supports=8), jax.random.key(0), 8)
    >>> found.is_exact, found.ridge, type(found.smoother).__name__
    (True, 0.4, 'Gaussian')
    """
    check_sampler("family", family)
    checks.key("key", key)
    checks.count("count", count)
    check_batch(count, task_shapes(family))
    tasks = draw(key, family, count)
    size = float(size_of(tasks.x))
    widths = (size * np.logspace(-6, 3, 19, base=2, dtype=tasks.x.dtype))[:, None]
    _, (width,) = best(smoothing, Gaussian, widths, tasks)
    exact = optimal(family)
    if exact is not None:
        kernel, ridge = exact
        return Reference(kernel, ridge, True, Gaussian(width))
    ridges = 10.0 ** np.arange(-4, 3, dtype=tasks.x.dtype)
    candidates = []
    grids = (linear, widths[:1]), (Gaussian, widths), (Exponential, widths[6:] ** 2)
    for make, bandwidths in grids:
        grid = np.stack(np.meshgrid(bandwidths[:, 0], ridges), axis=-1).reshape(-1, 2)
        error, (bandwidth, ridge) = best(regression, make, grid, tasks)
        candidates.append((error, make(bandwidth), ridge))
    _, kernel, ridge = min(candidates, key=lambda entry: entry[0])
    return Reference(kernel, ridge, False, Gaussian(width))


@jax.jit
def size_of(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.mean(jnp.sum(x**2, axis=-1)))


def linear(_: Any) -> Linear:
    return Linear()


def best(
    predict: Callable[..., jax.Array], make: Callable[[Any], Kernel], grid: np.ndarray, tasks: Task
) -> tuple[float, list[float]]:
    """The least mean squared error over a grid of parameters, and the parameters that reach it.

    The first parameter makes the kernel; `predict` takes the kernel, a task and the others.
    """
    errors = np.asarray(errors_on(predict, make, grid, tasks))
    errors = np.where(np.isfinite(errors), errors, np.inf)
    at = int(np.argmin(errors))
    return float(errors[at]), grid[at].tolist()


# the tasks are an argument: XLA would fold kernel matrices of constant tasks as it compiles
@partial(jax.jit, static_argnums=(0, 1))
def errors_on(predict: Callable, make: Callable, grid: jax.Array, tasks: Task) -> jax.Array:
    def error(at: jax.Array) -> jax.Array:
        def task_error(task: Task) -> jax.Array:
            return jnp.mean((predict(make(at[0]), task, *at[1:]) - task.y_query) ** 2)

        return jnp.mean(map_tasks(task_error, tasks))

    return jax.lax.map(error, grid)


def likelihoods(best: Reference, scale: Any, tasks: Task) -> dict[str, float]:
    """Mean of minus the log density of outputs at the queries, for predictors of the outputs.

    "exact_nll" is that of exact regression, whose variance at each query is multiplied by `scale`,
    and "constant_nll" that of the Gaussian that fits all outputs best, regardless of the supports.
    """
    task_mean = partial(of_outputs, best, scale)
    run = jax.jit(lambda tasks: (jnp.mean(map_tasks(task_mean, tasks)), jnp.var(tasks.y_query)))
    exact, spread = map(float, run(tasks))
    return {"exact_nll": -exact, "constant_nll": float(0.5 * (np.log(2 * np.pi * spread) + 1))}


def scale_of(best: Reference, family: Sampler, tasks: Task) -> float:
    r"""The factor c such that $c (v(x) + \lambda)$ is the variance of an output.

    A ridge is the variance of the noise in units of the kernel, so c is the variance of the noise
    divided by the ridge. If the regression is not known to be the posterior mean, c is that of
    maximum likelihood on a batch of tasks.
    """
    noise = getattr(family, "noise", None)
    if best.is_exact and noise is not None:
        return float(noise / best.ridge)

    def squares(task: Task) -> jax.Array:
        result = with_variance(best, 1.0, task)
        return (task.y_query - result.mean) ** 2 / result.variance

    return float(jax.jit(lambda tasks: jnp.mean(map_tasks(squares, tasks)))(tasks))


def of_outputs(best: Reference, scale: Any, task: Task) -> jax.Array:
    return log_density(with_variance(best, scale, task), task.y_query)


def with_variance(best: Reference, scale: Any, task: Task) -> Predictive:
    """The predictive distribution of exact regression at the queries, as one Gaussian."""
    result = solvers.posterior(best.kernel, task, ridge=best.ridge)
    variance = scale * (result.variance + best.ridge)
    variance = variance if task.y.ndim == 1 else variance[:, None]
    mean = result.mean[..., None]
    variance = jnp.broadcast_to(variance, result.mean.shape)[..., None]
    return Predictive(jnp.ones_like(mean), mean, variance)
