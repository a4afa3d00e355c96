"""Distances between a model's layers and a solver's steps, in predictions and in hat matrices."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from ..._core.readable import readable
from ...catalogue import candidate as find_candidate
from ...kernels import Kernel
from ...tasks import Task, map_tasks, system
from ...tasks._task import support_mask
from .._reading.derivatives import jacobian
from .._resampling import INTERVAL_QUANTILES, relative_distances
from .candidate_fit import CandidateFit
from .candidates import solve
from .layer_predictions import ModelPredictions

SPACES = ("prediction", "hat")
NAMES = dict(prediction="predictions", hat="hat matrices", state="states", innovation="innovations")
"""What is compared in each space. The first two spaces are of predictions, the other two of
streams: the step of a layer, decoded from its stream, and the change of this step, decoded from
what the block wrote.
"""
BASELINES = {
    "zero": "predicting 0",
    "mean": "predicting the mean of y",
    "start": "the prediction before the first layer",
}
"""Predictions that no solver makes, by the name of the baseline in tables."""


@readable
class Distance(NamedTuple):
    """A relative distance between layers and their aligned steps.

    Attributes:
        mean, interval: mean over layers, and its 95 % bootstrap interval over tasks (low, high).
        by_layer, layer_intervals: the same of every layer [L].
        by_stratum: distance in every group of tasks by condition number, mean over layers.
        matrix: distances of all layers to all steps [L, T + 1]. For the states of streams, those of
            the stream before the first layer and after every layer to the steps 1 to T [L + 1, T].
    """

    mean: float
    interval: tuple[float, float]
    by_layer: tuple[float, ...]
    layer_intervals: tuple[tuple[float, float], ...]
    by_stratum: tuple[float, ...]
    matrix: np.ndarray


class AlignedDistances(NamedTuple):
    """Squared distances of layers to aligned steps [b, L], and squared norms of layers [b, L].

    `matrix` has the relative distances of all layers to all steps [L, T + 1].
    """

    squares: np.ndarray
    sizes: np.ndarray
    matrix: np.ndarray

    def by_layer(self, weights: np.ndarray) -> np.ndarray:
        """Distances over tasks with weights [..., b], of every layer [..., L]."""
        return relative_distances(self.squares, self.sizes, weights)

    @property
    def mean(self) -> float:
        """The distance over all tasks, mean over layers."""
        return float(self.by_layer(np.ones(len(self.squares))).mean())


Gaps = dict[str, AlignedDistances]


def candidate_gaps(one: CandidateFit, steps: int, model: ModelPredictions) -> Gaps:
    predictions, hats = squared_distances(one.candidate, one.kernel, one.logs, model, steps)
    return {
        "prediction": _align(predictions, squared_norms(model.predictions, 2), one.alignment),
        "hat": _align(hats, squared_norms(model.hats, (2, 3)), one.alignment),
    }


def _align(squares: npt.ArrayLike, sizes: np.ndarray, steps: tuple[int, ...]) -> AlignedDistances:
    """Distances at the aligned steps; values that diverged become very large."""
    each = np.asarray(squares, float)
    chosen = clip_finite(each[:, range(len(steps)), list(steps)])
    total = sizes.sum(axis=0)[:, None]
    with np.errstate(invalid="ignore", over="ignore"):
        matrix = np.sqrt(each.sum(axis=0) / np.where(total > 0, total, 1))
    return AlignedDistances(chosen, sizes, matrix)


def clip_finite(squares: np.ndarray) -> np.ndarray:
    return np.nan_to_num(np.minimum(squares, 1e12), nan=1e12)


def layer_distances(layers: jax.Array | np.ndarray, values: npt.ArrayLike) -> AlignedDistances:
    """Distances of layers [b, L, ...] to one array of the same shape, without steps."""
    axes = tuple(range(2, layers.ndim))
    squares = squared_norms(np.asarray(layers, float) - np.asarray(values, float), axes)
    return _align(squares[:, :, None], squared_norms(layers, axes), (0,) * squares.shape[1])


def squared_norms(values: npt.ArrayLike, axes: Any) -> np.ndarray:
    return np.sum(np.asarray(values, float) ** 2, axis=axes)


@partial(jax.jit, static_argnames=("candidate", "kernel", "steps"))
def squared_distances(candidate, kernel, logs, model, steps):
    def of_task(part):
        task, predictions, hats = part
        entry = find_candidate(candidate)

        def path(y: jax.Array) -> jax.Array:
            return solve(entry, kernel, logs, task.replace(y=y), steps)

        slopes = jacobian(path, task.y).reshape(steps + 1, *hats.shape[1:])
        return (
            jnp.sum((path(task.y)[None] - predictions[:, None]) ** 2, axis=-1),
            jnp.sum((slopes[None] - hats[:, None]) ** 2, axis=(-2, -1)),
        )

    return jax.lax.map(of_task, (model.scored, model.predictions, model.hats))


def distance(gaps: AlignedDistances, stratum: np.ndarray, resample: np.ndarray) -> Distance:
    sampled = gaps.by_layer(resample)
    low, high = np.quantile(sampled.mean(axis=-1), INTERVAL_QUANTILES)
    each = np.quantile(sampled, INTERVAL_QUANTILES, axis=0).T
    return Distance(
        gaps.mean,
        (float(low), float(high)),
        tuple(gaps.by_layer(np.ones(len(gaps.squares))).tolist()),
        tuple(map(tuple, each.tolist())),
        tuple(float(gaps.by_layer(1.0 * (stratum == s)).mean()) for s in np.unique(stratum)),
        gaps.matrix,
    )


def baseline_gaps(name: str, model: ModelPredictions) -> Gaps:
    layers = {"prediction": model.predictions, "hat": model.hats}
    zeros = {space: np.zeros((1, 1, *[1] * (array.ndim - 2))) for space, array in layers.items()}
    baseline = {"zero": zeros, "mean": _mean_baseline(model.scored), "start": model.start}[name]
    return {space: layer_distances(layers[space], baseline[space]) for space in SPACES}


@jax.jit
def _mean_baseline(tasks: Task) -> dict[str, jax.Array]:
    """The mean of the supports' y as predictions [b, 1, m], and its hat matrices [b, 1, m, k]."""

    def of_task(task: Task) -> tuple[jax.Array, jax.Array]:
        def average(y: jax.Array) -> jax.Array:
            mask = support_mask(task).astype(y.dtype)
            mean = jnp.tensordot(mask / jnp.sum(mask), y, axes=1, precision="highest")
            return jnp.broadcast_to(mean, (task.num_queries, *mean.shape)).reshape(1, -1)

        return average(task.y), jacobian(average, task.y).reshape(1, -1, task.y.size)

    predictions, hats = map_tasks(of_task, tasks)
    return {"prediction": predictions, "hat": hats}


def stratify(kernel: Kernel, ridge: float, tasks: Task, count: int) -> tuple[tuple, np.ndarray]:
    """Edges of `count` groups of tasks by cond(K + ridge I), and the group of each task."""
    conditions = np.asarray(_condition_numbers(kernel, ridge, tasks))
    edges = np.quantile(conditions, np.linspace(0, 1, count + 1))
    return tuple(edges.tolist()), np.searchsorted(edges[1:-1], conditions, side="right")


@jax.jit
def _condition_numbers(kernel: Kernel, ridge: Any, tasks: Task) -> jax.Array:
    def of_task(task: Task) -> jax.Array:
        sigma = jnp.linalg.eigvalsh(system(kernel, task).gram)
        masked = task.num_supports - jnp.sum(support_mask(task), dtype=int)  # with eigenvalue 0
        low = jnp.maximum(sigma[masked], jnp.finfo(sigma.dtype).eps * sigma[-1])
        return (sigma[-1] + ridge) / (low + ridge)

    return jax.lax.map(of_task, tasks)


@readable
class StreamResult(NamedTuple):
    """What is known of a candidate's steps in the streams of a model, besides its distances.

    Attributes:
        controls: {control: {space: `Distance`}} at the candidate's own parameters: the nulls, the
            stream one layer earlier, other steps with the same span ("mixed steps", the nearest of
            4 draws), and an untrained model (the nearest of 2).
        ranks: how many independent combinations of the steps so far each layer decodes.
        supports: {state: {space: `Distance`}} of alpha and r at the supports, each with a control.
        effects: {"removed": distance, "swapped": distance}, if the candidate remained and the model
            is a `Transformer`: from the change of the answer to that of the construction's answer,
            if its states are removed from every layer, or swapped for those of another task.
    """

    controls: dict[str, dict[str, Distance]]
    ranks: tuple[int, ...]
    supports: dict[str, dict[str, Distance]]
    effects: dict[str, float]


@readable
class CandidateResult(NamedTuple):
    """A fitted candidate, its distances, and the reason why it was ruled out.

    Attributes:
        fit: the fitted candidate.
        distances: {space: `Distance`} for the spaces "prediction" and "hat", or "state"
            and "innovation" of streams.
        reason: why the candidate was ruled out, in words; empty if it remains.
        regular: whether steps at equal intervals are as near as the aligned steps.
        limit: number of steps that were tried, if a layer is aligned with the last of them and the
            solver has not converged there.
        stream_result: controls and further results of a model that is read through its streams.
    """

    fit: CandidateFit
    distances: dict[str, Distance]
    reason: str
    regular: bool = True
    limit: int | None = None
    stream_result: StreamResult | None = None


@readable
class NestedModelResult(NamedTuple):
    """A statement about all layers, and the distance of the model to what fulfils it.

    It has its name, such as "any filter", the kernel of a function of K, fitted parameters that all
    layers share, and {space: `Distance`} in the spaces where it says something.
    """

    name: str
    kernel: str
    values: dict[str, float]
    distances: dict[str, Distance]
