"""Distances between a model's layers and a solver's steps, in predictions and in hat matrices."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..catalogue import candidate as find_candidate
from ..kernels import Kernel
from ..readable import readable
from ..tasks import Task, map_tasks, system
from ..tasks.task import check_axes
from .candidate_fit import CandidateFit
from .candidates import solve
from .hat import LayerAnswers, hat_matrix

SPACES = ("prediction", "hat")
INTERVAL_QUANTILES = (0.025, 0.975)
BASELINES = {
    "zero": "predicting 0",
    "mean": "predicting the mean of y",
    "start": "the prediction before the first layer",
}
"""What a model predicts that runs no solver, by the name of the baseline in tables."""


@readable
class Distance(NamedTuple):
    """A relative distance between layers and their aligned steps.

    Attributes:
        mean: distance, mean over layers.
        interval: 95 % bootstrap interval of `mean` over tasks (low, high).
        by_layer: distance of every layer [L].
        layer_intervals: 95 % bootstrap interval of every layer [L].
        by_stratum: distance in every group of tasks, mean over layers. The condition number of a
            task determines its group.
        matrix: distances of all layers to all steps [L, T + 1].
    """

    mean: float
    interval: tuple[float, float]
    by_layer: tuple[float, ...]
    layer_intervals: tuple[tuple[float, float], ...]
    by_stratum: tuple[float, ...]
    matrix: np.ndarray


class ModelAnswers(NamedTuple):
    """Predictions of a model after every layer, on the tasks to fit and the tasks to score.

    `start` has the predictions and hat matrices before the first layer, on the tasks to score.
    """

    fitted: Task
    scored: Task
    answers: jax.Array
    predictions: jax.Array
    hats: jax.Array
    start: dict[str, jax.Array]


def answers_of_model(layer_answers: LayerAnswers, fitted: Task, scored: Task) -> ModelAnswers:
    """The predictions after layers 1 to L. Layer 0 is a baseline: no solver step precedes it."""
    for tasks in (fitted, scored):
        check_axes(tasks, 1)
        if tasks.y.ndim != 2 or tasks.mask is not None:
            raise ValueError(
                "tasks must have y of shape [n] and no mask, got y of shape "
                f"{list(tasks.y.shape[1:])} and {'no' if tasks.mask is None else 'a'} mask"
            )
        check_layer_answers(layer_answers, tasks)
    answer = jax.jit(partial(map_tasks, layer_answers))
    answers, predictions = answer(fitted), answer(scored)
    for found in (answers, predictions):
        checks.finite("predictions of layer_answers", found)
    hats = jax.jit(partial(map_tasks, partial(hat_matrix, layer_answers)))(scored)
    return ModelAnswers(
        fitted,
        scored,
        answers[:, 1:],
        predictions[:, 1:],
        hats[:, 1:],
        {"prediction": predictions[:, :1], "hat": hats[:, :1]},
    )


def check_layer_answers(layer_answers: LayerAnswers, tasks: Task) -> None:
    """Raise an error unless the function returns [L + 1, q] for a task, without running it."""
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), tasks)
    found, queries = jax.eval_shape(layer_answers, one), tasks.x_query.shape[1]
    rule = (
        "layer_answers must return the predictions before the first layer and after every layer, "
        f"[layers + 1, queries] with layers >= 1 and queries = {queries}"
    )
    if not isinstance(found, jax.ShapeDtypeStruct):
        raise TypeError(f"{rule}, got {type(found).__name__}; return one array")
    if len(found.shape) != 2 or found.shape[0] < 2 or found.shape[1] != queries:
        raise ValueError(f"{rule}, got shape {list(found.shape)}")
    checks.floating("predictions of layer_answers", found)


class SquaredDistances(NamedTuple):
    """Squared distances of layers to steps [b, L, T + 1], and squared norms of layers [b, L]."""

    squares: np.ndarray
    sizes: np.ndarray


def squared_distances(
    one: CandidateFit, model: ModelAnswers, steps: int
) -> dict[str, SquaredDistances]:
    """Squared distances of predictions and hat matrices, with parameters per layer if fitted."""
    sets = [list(values.values()) for values in one.per_layer] or [list(one.values.values())]
    logs = jnp.log(jnp.asarray(sets, float))
    predictions, hats = squared_in_both_spaces(one.candidate, one.kernel, logs, model, steps)
    return {
        "prediction": SquaredDistances(
            np.asarray(predictions), squared_norms(model.predictions, 2)
        ),
        "hat": SquaredDistances(np.asarray(hats), squared_norms(model.hats, (2, 3))),
    }


def squared_norms(values: jax.Array, axes: Any) -> np.ndarray:
    return np.asarray(jnp.sum(values**2, axis=axes), float)


@partial(jax.jit, static_argnames=("candidate", "kernel", "steps"))
def squared_in_both_spaces(candidate, kernel, logs, model, steps):
    solver = find_candidate(candidate)

    def of_task(part):
        task, answers, hats = part

        def of_layer(own, answer, hat):
            path = lambda task: solve(solver, kernel, own, task, steps)  # noqa: E731
            return (
                jnp.sum((path(task) - answer[None]) ** 2, axis=-1),
                jnp.sum((hat_matrix(path, task) - hat[None]) ** 2, axis=(-2, -1)),
            )

        if len(logs) == 1:
            return jax.vmap(partial(of_layer, logs[0]))(answers, hats)
        return jax.lax.map(lambda at: of_layer(*at), (logs, answers, hats))

    return jax.lax.map(of_task, (model.scored, model.predictions, model.hats))


def at_alignment(squared: SquaredDistances, alignment: tuple[int, ...]) -> np.ndarray:
    """Squared distances at the aligned steps [b, L]; values that diverged become very large."""
    chosen = squared.squares[:, range(len(alignment)), list(alignment)]
    return np.nan_to_num(np.minimum(chosen, 1e12), nan=1e12)


def relative_distances(squares: np.ndarray, sizes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Relative distances [..., L] over tasks with weights [..., b]."""
    total = weights @ sizes
    return np.sqrt((weights @ squares) / np.where(total > 0, total, 1))


def distance(
    squared: SquaredDistances, alignment: tuple[int, ...], stratum: np.ndarray, resample: np.ndarray
) -> Distance:
    chosen = at_alignment(squared, alignment)
    by_layer = relative_distances(chosen, squared.sizes, np.ones(len(chosen)))
    strata = [
        float(relative_distances(chosen, squared.sizes, 1.0 * (stratum == s)).mean())
        for s in np.unique(stratum)
    ]
    sampled = relative_distances(chosen, squared.sizes, resample)
    low, high = np.quantile(sampled.mean(axis=-1), INTERVAL_QUANTILES)
    layer_intervals = np.quantile(sampled, INTERVAL_QUANTILES, axis=0).T
    total = squared.sizes.sum(axis=0)[:, None]
    with np.errstate(invalid="ignore", over="ignore"):
        matrix = np.sqrt(squared.squares.sum(axis=0) / np.where(total > 0, total, 1))
    return Distance(
        float(by_layer.mean()),
        (float(low), float(high)),
        tuple(by_layer.tolist()),
        tuple(map(tuple, layer_intervals.tolist())),
        tuple(strata),
        matrix,
    )


def baseline_distances(
    name: str, model: ModelAnswers, stratum: np.ndarray, resample: np.ndarray
) -> dict[str, Distance]:
    """Distances of all layers to a baseline of `BASELINES`."""
    y = model.scored.y
    own = {
        "zero": {"prediction": 0.0, "hat": 0.0},
        "mean": {"prediction": jnp.mean(y, axis=1)[:, None, None], "hat": 1 / y.shape[1]},
        "start": model.start,
    }[name]
    known = {"prediction": model.predictions, "hat": model.hats}
    found = {}
    for space, axes in (("prediction", 2), ("hat", (2, 3))):
        square = squared_norms(known[space] - own[space], axes)
        squared = SquaredDistances(square[:, :, None], squared_norms(known[space], axes))
        found[space] = distance(squared, (0,) * square.shape[1], stratum, resample)
    return found


def stratify(
    kernel: Kernel, ridge: float, tasks: Task, count: int
) -> tuple[tuple[float, ...], np.ndarray]:
    """Edges of `count` groups of tasks by cond(K + ridge I), and the group of each task."""

    def of_task(task: Task) -> jax.Array:
        sigma = jnp.linalg.eigvalsh(system(kernel, task).gram)
        low = jnp.maximum(sigma[0], jnp.finfo(sigma.dtype).eps * sigma[-1])
        return (sigma[-1] + ridge) / (low + ridge)

    conditions = np.asarray(jax.lax.map(of_task, tasks))
    edges = np.quantile(conditions, np.linspace(0, 1, count + 1))
    return tuple(edges.tolist()), np.searchsorted(edges[1:-1], conditions, side="right")
