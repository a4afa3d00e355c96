"""Which variance a model reports: that of exact regression, of a few steps, or one of no task."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from ... import checks, solvers
from ...kernels import Kernel, check_kernel
from ...readable import readable
from ...sketches import featured
from ...tasks import Task, map_tasks
from ...tasks.task import check_axes, kept
from ...transformer import Transformer, predictive
from ...transformer.read_outs import check_distribution
from ...transformer.weights import check_model
from ..resampling import (
    INTERVAL_QUANTILES,
    RESAMPLES,
    paired_differences,
    relative_distances,
    resamples,
)
from .identification import EXACT, NONE, status_of
from .ruling import RESOLUTION

REGRESSION = "exact regression"
CONSTANT, BY_COUNT = "constant", "number of supports"
NULLS = {
    CONSTANT: "one variance for all tasks and queries",
    BY_COUNT: "a variance for each number of supports, whatever they are",
}
"""Variances that depend on no x, by the name in tables."""


@readable
class VarianceDistance(NamedTuple):
    """How far the variances of a model are from those of a candidate or a null.

    Attributes:
        name: name of the candidate or null.
        distance: relative distance of the log variances; that of the null "constant" is 1.
        interval: 95 % bootstrap interval of `distance` over tasks (low, high).
        because: why a candidate was ruled out; empty for candidates that remain and for nulls.
    """

    name: str
    distance: float
    interval: tuple[float, float]
    because: str


@readable
class Variances(NamedTuple):
    """Result of `compare_variances`.

    Attributes:
        status: a status of `Identification`, with the same limits: "identified", "close to", "not
            distinguishable", "none is close" or "not identified".
        remain: names of the candidates that were not ruled out, the nearest first.
        as_near: names of the nulls that no candidate is nearer than.
        rows: candidates and nulls in the order of increasing distance.
    """

    status: str
    remain: tuple[str, ...]
    as_near: tuple[str, ...]
    rows: tuple[VarianceDistance, ...]

    @property
    def verdict(self) -> str:
        """Status, what remains and the distances, in one sentence."""
        named = f": {', '.join(self.remain)}" if self.remain and self.status != NONE else ""
        nulls = f", no nearer than a variance by {', '.join(self.as_near)}" if self.as_near else ""
        near = ", ".join(f"{row.name} {row.distance:.2g}" for row in self.rows[:3])
        return f"{self.status}{named}{nulls}; nearest (distance of log variances): {near}"


def compare_variances(
    model: Transformer,
    tasks: Task,
    kernel: Kernel,
    ridge: float | Float[Array, ""],
    *,
    scale: float = 1.0,
    steps: int = 8,
    seed: int = 0,
) -> Variances:
    r"""Compare the variances of a model with those of solvers, as `identify` compares predictions.

    The model reports the variance s of an output at each query. The candidates report
    $c (v + \lambda)$, with the variance v of exact regression, or of t steps of
    `icl_krr.solvers.prefix_posterior` from t = 0, where v is only what the features leave out: 0
    for a kernel with a feature map. A kernel without a feature map gets Nystrom features with all
    supports as landmarks, so that the last step is exact. A step that has converged is no candidate
    of its own.

    Two nulls do not look at x: one variance for all tasks, and one for each number of supports.
    They are fitted to the log variances of the model on the first half of the tasks. The distances
    are measured on the second half: $|\log s - \log s_c|$ over the deviation of $\log s$ from the
    constant, over all tasks and queries. Differences between them are compared on the same
    resamples of the tasks, with intervals that hold for all of them together. A candidate is ruled
    out if it is farther than the nearest one by more than 0.001. If a null is not farther, nothing
    is identified.

    Args:
        model: a model with a predictive distribution (see `icl_krr.predictive`).
        tasks: batch of b >= 4 tasks, better 64 or more; masks make contexts of mixed length.
        kernel: kernel k of exact regression.
        ridge: ridge $\lambda$ > 0 of exact regression.
        scale: factor c > 0 of the variances of regression, the variance of the noise over the
            ridge; 1 by default. For `LinearRegression` it is 1 / p, because its weights have
            variance 1 / p.
        steps: largest number of steps t, >= 1, 8 by default.
        seed: seed of the 1000 bootstrap resamples, 0 by default.

    Returns:
        A `Variances`.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the model has no predictive distribution or a variance that is not > 0, a number
            is out of range, or `tasks` is not a batch of at least 4 tasks.

    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=3, num_supports=4, num_queries=2)
    >>> keys = jax.random.split(jax.random.key(0), 16)
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> model = ik.constructions.prefix_posterior(ik.Linear(), num_features=3, ridge=0.5, steps=2)
    >>> compare_variances(model, tasks, ik.Linear(), 0.5, steps=3).remain
    ('2 steps',)
    """
    check_model(model)
    check_distribution(model)
    check_axes(tasks, 1)
    check_kernel(kernel)
    checks.positive_scalar("ridge", ridge)
    checks.positive_scalar("scale", scale)
    checks.count("steps", steps)
    checks.count("seed", seed, minimum=0)
    if len(tasks.x) < 4:
        raise ValueError(f"tasks must be at least 4, got {len(tasks.x)}")
    own, exact, path = (
        np.asarray(part, float) for part in variances_of(model, tasks, kernel, ridge, steps)
    )
    if not (np.isfinite(own) & (own > 0)).all():
        at = np.argwhere(~(np.isfinite(own) & (own > 0)))[0]
        raise ValueError(
            f"variances of model must be > 0 and finite, got {own[tuple(at)]:.3g} in task {at[0]}; "
            "use more steps, or tasks like those that the model was trained on"
        )
    shape = own.shape
    known = {REGRESSION: exact} | {named(t): path[:, t] for t in range(steps + 1)}
    logs = {
        name: np.broadcast_to(np.log(scale * (v + float(ridge)))[..., None], shape)
        for name, v in known.items()
    }
    return judge(np.log(own), logs, np.asarray(jax.vmap(kept)(tasks)).sum(axis=-1), seed)


def named(steps: int) -> str:
    return f"{steps} step" if steps == 1 else f"{steps} steps"


@partial(jax.jit, static_argnames="steps")
def variances_of(
    model: Transformer, tasks: Task, kernel: Kernel, ridge: Any, steps: int
) -> tuple[Float[Array, "b q r"], Float[Array, "b q"], Float[Array, "b L q"]]:
    """Variances of the model, and those of the function by exact regression and by its steps."""

    def of_task(task: Task, model: Transformer, kernel: Kernel, ridge: Any) -> tuple:
        own = predictive(model, task).variance.reshape(task.num_queries, -1)
        exact = solvers.posterior(kernel, task, ridge=ridge).variance
        phi, whole = featured(kernel, task.x)
        path = solvers.prefix_posterior(phi, task, ridge=ridge, steps=steps, approximates=whole)
        return own, exact, path.variance[:, task.num_supports :]

    return map_tasks(of_task, tasks, model, kernel, ridge)


def judge(
    own: np.ndarray, candidates: dict[str, np.ndarray], counts: np.ndarray, seed: int
) -> Variances:
    """The result for log variances [b, ...] of a model and of candidates, the exact ones first."""
    flat = own.reshape(len(own), -1)
    fitted, scored = np.array_split(np.arange(len(own)), 2)
    known = {name: logs.reshape(flat.shape)[scored] for name, logs in candidates.items()}
    known |= nulls(flat[fitted], counts[fitted], counts[scored])
    sizes = squared(flat[scored] - known[CONSTANT])
    draws = resamples(len(scored), RESAMPLES, seed)
    gaps = {name: squared(flat[scored] - logs) for name, logs in known.items()}
    distances = {name: of_tasks(gap, sizes) for name, gap in gaps.items()}
    drawn = {name: relative_distances(gap, sizes, draws)[:, 0] for name, gap in gaps.items()}
    because = {
        name: f"has converged to {REGRESSION}"
        for name in candidates
        if name != REGRESSION and of_tasks(squared(known[name] - known[REGRESSION]), sizes) <= EXACT
    }
    left = [name for name in known if name not in because]
    found = paired_differences(
        np.array([[distances[name]] for name in left]),
        np.array([[drawn[name]] for name in left]),
        np.array([name not in NULLS for name in left]),
    )
    far = {}
    for name, *of_name in zip(left, found.mean, found.low, found.high, strict=True):
        mean, low, high = np.ravel(of_name)
        if low > RESOLUTION:
            far[name] = f"farther than {left[found.leader]} by {mean:.2g} ({low:.2g}, {high:.2g})"
    as_near = tuple(name for name in left if name in NULLS and name not in far)
    if as_near:
        because |= dict.fromkeys(left, f"no nearer than {NULLS[as_near[0]]}")
    because |= far
    rows = [
        VarianceDistance(
            name,
            distances[name],
            tuple(np.quantile(drawn[name], INTERVAL_QUANTILES).tolist()),
            "" if name in NULLS else because.get(name, ""),
        )
        for name in sorted(known, key=lambda name: distances[name])
    ]
    remain = [row for row in rows if row.name in candidates and not row.because]
    status = status_of([row.distance for row in remain])
    return Variances(status, tuple(row.name for row in remain), as_near, tuple(rows))


def nulls(fitted: np.ndarray, counts: np.ndarray, scored: np.ndarray) -> dict[str, np.ndarray]:
    """Log variances [b, 1] that depend on no x, for tasks with numbers of supports `scored`."""
    found = {CONSTANT: np.full((len(scored), 1), fitted.mean())}
    seen, place = np.unique(counts, return_inverse=True)
    if len(seen) > 1:
        means = np.bincount(place, fitted.mean(axis=1)) / np.bincount(place)
        found[BY_COUNT] = np.interp(scored, seen, means)[:, None]
    return found


def squared(gaps: np.ndarray) -> np.ndarray:
    return np.sum(gaps**2, axis=1, keepdims=True)


def of_tasks(squares: np.ndarray, sizes: np.ndarray) -> float:
    """The relative distance over all tasks."""
    return float(relative_distances(squares, sizes, np.ones(len(squares)))[0])
