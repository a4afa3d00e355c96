"""Excess errors over exact regression of solvers that are tuned alike, after t steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import qmc

from .. import Features, Kernel, Linear, solvers
from ..catalogue import candidate, compared
from ..probes._naming.candidates import keywords
from ..probes._resampling import INTERVAL_QUANTILES, RESAMPLES, resamples
from ..sketches import nystrom_features
from ..solvers._algebra import featured
from ..tasks import GaussianProcess, Task, map_tasks, system
from ._shared.draws import draw_tasks

SQUARED = 16
"""Most steps of Newton-Schulz iteration, which squares its error in each."""
DIVERGED = 1e30
"""The square of a prediction that is not finite."""


class Curves(NamedTuple):
    r"""Excess errors over exact regression of solvers after 0 to T steps, on b tasks.

    Exact regression $f^*$ is the posterior mean of these tasks, so the mean squared error of any
    prediction $f$ is that of $f^*$ plus the mean of $(f - f^*)^2$, given the supports. The excess
    error is the ratio of both parts, which has less sampling noise than a difference of errors.

    Attributes:
        squares: means over queries of $(f_t - f^*)^2$, {solver: [b, T + 1]}.
        variances: means over queries of the posterior variance, the error of exact regression [b].
    """

    squares: dict[str, np.ndarray]
    variances: np.ndarray

    def excess(self, solver: str) -> np.ndarray:
        """Excess errors over exact regression [T + 1]."""
        return self.squares[solver].mean(axis=0) / self.variances.mean()

    def interval(self, solver: str) -> np.ndarray:
        """95 % intervals of the excess, from bootstrap resamples of the tasks [2, T + 1]."""
        weights = resamples(len(self.variances), RESAMPLES, 0)
        drawn = weights @ self.squares[solver] / (weights @ self.variances)[:, None]
        return np.quantile(drawn, INTERVAL_QUANTILES, axis=0)


def curves(
    family: GaussianProcess,
    *,
    names: Sequence[str] = (),
    steps: int = 64,
    tasks: int = 128,
    points: int = 256,
    seeds: Sequence[int] = (0,),
) -> Curves:
    """The excess errors of solvers that are tuned alike.

    Every solver has the kernel and the ridge of the posterior mean, and for each number of steps
    the parameters, of a Halton sequence in their ranges, with the least excess on separate tasks.
    """
    kernel, ridge, results, names = family.kernel, family.noise, [], names or compared()
    for seed in seeds:
        tuning, scored = (
            with_exact(kernel, ridge, draw_tasks(key, tasks, family))
            for key in jax.random.split(jax.random.key(seed))
        )
        errors = {name: tuned(name, kernel, ridge, steps, points, tuning, scored) for name in names}
        results.append((errors, scored.variances))
    every, variances = zip(*results, strict=True)
    errors = {name: np.concatenate([one[name] for one in every]) for name in names}
    return Curves(errors, np.concatenate(variances))


class Known(NamedTuple):
    """Tasks with exact regression in place of the outputs at the queries, and its variances."""

    tasks: Task
    variances: jax.Array


@jax.jit
def with_exact(kernel: Kernel, ridge: Any, tasks: Task) -> Known:
    def of_task(task: Task) -> Known:
        posterior = solvers.posterior(kernel, task, ridge=ridge)
        return Known(task.replace(y_query=posterior.mean), jnp.mean(posterior.variance))

    return map_tasks(of_task, tasks)


def tuned(
    name: str, kernel: Kernel, ridge: Any, steps: int, points: int, tuning: Known, scored: Known
) -> np.ndarray:
    """Squares of a solver on the scored tasks [b, T + 1], with the best parameters for every t."""
    entry = candidate(name)
    boxes = {part: box for part, box in (entry.fitted or {}).items() if part != "ridge"}
    size, drawn = float(size_of(kernel, tuning.tasks)), (tuning.tasks, scored.tasks)
    if entry.kernels == "featured":  # the features of a task are those of all its supports
        drawn = tuple(with_features(kernel, tasks) for tasks in drawn)
        kernel, steps = Linear(), min(steps, SQUARED)
    cube = qmc.Halton(len(boxes), scramble=False).random(points) if boxes else np.zeros((1, 0))
    values = [
        {part: 10 ** (b.low + (b.high - b.low) * at) * size**b.power for part, b, at in one}
        for one in (zip(boxes, boxes.values(), point.tolist(), strict=True) for point in cube)
    ]

    def squares(place: int, tasks: Task) -> np.ndarray:
        errors = squares_of(name, steps, kernel, values[place] | {"ridge": ridge}, tasks)
        return np.nan_to_num(np.asarray(errors, float), nan=DIVERGED, posinf=DIVERGED)

    means = np.array([squares(place, drawn[0]).mean(axis=0) for place in range(len(values))])
    best = np.argmin(means, axis=0).tolist()
    errors = {place: squares(place, drawn[1]) for place in {*best}}
    return np.stack([errors[place][:, t] for t, place in enumerate(best)], axis=1)


@partial(jax.jit, static_argnums=(0, 1))
def squares_of(
    name: str, steps: int, kernel: Kernel, values: dict[str, Any], tasks: Task
) -> jax.Array:
    entry = candidate(name)
    kwargs = keywords(entry, {part: jnp.asarray(value, float) for part, value in values.items()})

    def of_task(task: Task) -> jax.Array:
        path = solvers.lookup(entry)(kernel, task, **kwargs, steps=steps).prediction
        return jnp.mean((path - task.y_query[None]) ** 2, axis=1)

    return map_tasks(of_task, tasks)


@jax.jit
def size_of(kernel: Kernel, tasks: Task) -> jax.Array:
    """The mean Frobenius norm of the kernel matrix, the unit of search ranges."""
    return jnp.mean(map_tasks(lambda task: jnp.linalg.norm(system(kernel, task).gram), tasks))


@jax.jit
def with_features(kernel: Kernel, tasks: Task) -> Task:
    return map_tasks(lambda t: featured(Features(nystrom_features(kernel, t.x)), t), tasks)
