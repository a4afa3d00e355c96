"""What `identify` compares: a model's predictions and hat matrices after every layer."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from ... import Task, map_tasks
from ..._core import checks
from ...tasks._task import check_axes, check_plain, outputs_of
from .._reading.derivatives import LayerPredictions, hat_matrix
from .decoding import StreamArrays

EXPLODED = 100.0
"""A task is left out if the norm of its predictions or of its hat matrices, in any layer, is this
many times the median over tasks: otherwise this task alone would decide the distances.
"""


class ModelPredictions(NamedTuple):
    """Predictions of a model after every layer, on the tasks to fit and the tasks to score.

    The m = q r predictions of a task and the k = n r outputs of its supports are flat:
    `fitted_predictions` on `fitted` after layers 1 to L [b, L, m]; on `scored`, `predictions`
    [b', L, m], `hats` and `other_hats`, with the outputs of other tasks, [b', L, m, k]. `start` has
    predictions and hat matrices before the first layer.
    """

    fitted: Task
    scored: Task
    fitted_predictions: np.ndarray
    predictions: np.ndarray
    hats: np.ndarray
    start: dict[str, np.ndarray]
    other_hats: np.ndarray | None
    num_excluded: int


class LayerArrays(NamedTuple):
    """Predictions and hat matrices before the first layer and after every layer, as computed."""

    fitted_predictions: np.ndarray
    predictions: np.ndarray
    hats: np.ndarray
    other_hats: np.ndarray | None


def run_model(layer_predictions: LayerPredictions, fitted: Task, scored: Task) -> LayerArrays:
    """Run a JAX function on two batches, and differentiate it on the second."""
    check_outputs(fitted, scored)
    name = "predictions of layer_predictions"
    for tasks in (fitted, scored):
        shape = (tasks.num_queries, *tasks.y.shape[2:])
        axes = f"[layers + 1, queries{', outputs' if len(shape) == 2 else ''}]"
        requirement = (
            "layer_predictions must return the predictions before the first layer and after every "
            f"layer, {axes} with layers >= 1 and queries = {shape[0]}"
        )
        eval_output_shape(name, layer_predictions, tasks, requirement, (-2, *shape))
    run = jax.jit(partial(map_tasks, layer_predictions))
    fitted_predictions, predictions = run(fitted), run(scored)
    for array in (fitted_predictions, predictions):
        checks.finite(name, array)
    derive = jax.jit(partial(map_tasks, partial(hat_matrix, layer_predictions)))
    hats, other_hats = derive(scored), derive(roll_outputs(scored))
    return LayerArrays(*map(np.asarray, (fitted_predictions, predictions, hats, other_hats)))


def roll_outputs(tasks: Task) -> Task:
    """The tasks with the outputs of the next task, times the same mask."""
    return tasks.replace(y=np.roll(tasks.y, -1, axis=0))


def from_arrays(tasks: Task, predictions: Any, hats: Any, other_hats: Any) -> ModelPredictions:
    """The predictions in arrays: the first half of the tasks to fit, the second half to score."""
    check_axes(tasks, 1, "tasks")
    axes = ("b", "layers + 1", "q", *["r"] * (tasks.y.ndim - 2))
    hat_axes = (*axes, "n", *axes[3:])
    arrays = {"layer_predictions": (predictions, axes), "hats": (hats, hat_axes)}
    if other_hats is not None:
        arrays["other_hats"] = (other_hats, hat_axes)
    _check_arrays(tasks, arrays)
    fitted, scored = split_halves(tasks)
    dtype, cut = tasks.x.dtype, len(fitted.x)
    values, hats = (np.asarray(array).astype(dtype) for array in (predictions, hats))
    other = None if other_hats is None else np.asarray(other_hats)[cut:].astype(dtype)
    return flatten(fitted, scored, LayerArrays(values[:cut], values[cut:], hats[cut:], other))


def streams_from_arrays(tasks: Task, arrays: dict[str, Any]) -> list[StreamArrays]:
    """The streams of a model and of its control, if there is one, in their own dtypes."""
    check_plain(tasks)
    pairs = [("streams", "stream_jacobians"), ("control_streams", "control_jacobians")]
    if all(arrays[name] is None for name in pairs[1]):
        pairs = pairs[:1]
    axes = ("b", "layers + 1", "q", "d")
    named = {}
    for values, slopes in pairs:
        named |= {values: (arrays[values], axes), slopes: (arrays[slopes], (*axes, "n"))}
    _check_arrays(tasks, named)
    for name, (array, axes) in named.items():
        checks.factorable(name, array)
        if axes[-1] == "n" and not np.any(array):
            raise ValueError(f"{name} must differ from 0; were they computed without gradients?")
    return [StreamArrays(*(np.asarray(arrays[name]) for name in pair)) for pair in pairs]


def _check_arrays(tasks: Task, arrays: dict[str, tuple[Any, tuple[str, ...]]]):
    """Raise an error unless the axes of every array fit those of `tasks` and of the first array."""
    sizes = {"b": len(tasks.x), "q": tasks.num_queries, "n": tasks.num_supports}
    if sizes["b"] < 4:
        raise ValueError(f"tasks must be a batch of at least 4 tasks, got {sizes['b']}")
    first, shared = next(iter(arrays)), {}
    least = 1 if first == "layer_predictions" else 2  # steps that arrive in order need two layers
    for name, (array, axes) in arrays.items():
        checks.floating(name, array)
        shape = np.shape(array)
        if name == first:
            shared = dict(zip(axes, shape, strict=False))
        all_sizes = shared | sizes | {"r": tasks.num_outputs}
        fits = shape == tuple(map(all_sizes.get, axes))
        if not fits or all_sizes["layers + 1"] <= least or all_sizes.get("d") == 0:
            needs = [f"layers >= {least}", "d >= 1"][: 2 if "d" in axes else 1]
            if name != first:
                needs = [f"{key} = {shared[key]}" for key in ("layers + 1", "d") if key in shared]
                needs[-1] += f" like {first}"
            tasks_have = ", ".join(f"{axis} = {size}" for axis, size in sizes.items())
            raise ValueError(
                f"{name} must be [{', '.join(axes)}] with {', '.join(needs)} and {tasks_have} "
                f"like tasks, got shape {list(shape)}"
            )
        check_size(name, array)


def split_halves(tasks: Task) -> tuple[Task, Task]:
    """The tasks to fit and the tasks to score."""
    cut = len(tasks.x) // 2
    fitted, scored = select(tasks, slice(cut)), select(tasks, slice(cut, None))
    check_outputs(fitted, scored)
    return fitted, scored


def select(tasks: Task, rows: Any) -> Task:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], tasks)


def flatten(fitted: Task, scored: Task, arrays: LayerArrays) -> ModelPredictions:
    """The arrays of L + 1 layers, flat, without tasks that exploded and without masked supports."""
    fitted_predictions, predictions = (part.reshape(*part.shape[:2], -1) for part in arrays[:2])

    def flat(hats: np.ndarray) -> np.ndarray:
        shaped = hats.reshape(*predictions.shape, -1)
        return np.where(support_mask(scored)[:, None, None], shaped, 0)

    hats = flat(arrays.hats)
    other = None if arrays.other_hats is None else flat(arrays.other_hats)
    typical = _is_typical(fitted_predictions), _is_typical(predictions) & _is_typical(hats)
    fitted, scored = select(fitted, typical[0]), select(scored, typical[1])
    predictions, hats = predictions[typical[1]], hats[typical[1]]
    return ModelPredictions(
        fitted,
        scored,
        fitted_predictions[typical[0]][:, 1:],
        predictions[:, 1:],
        hats[:, 1:],
        {"prediction": predictions[:, :1], "hat": hats[:, :1]},
        None if other is None else other[typical[1]][:, 1:],
        sum(int(np.sum(~keep)) for keep in typical),
    )


def support_mask(tasks: Task) -> np.ndarray:
    """Which of the k = n r outputs belong to unmasked supports [b, k]."""
    mask = np.ones(tasks.y.shape[:2], bool) if tasks.mask is None else np.asarray(tasks.mask)
    return np.repeat(mask, outputs_of(tasks), axis=1)


def _is_typical(values: np.ndarray) -> np.ndarray:
    """Which tasks [b] have no layer whose norm is `EXPLODED` times the median over tasks."""
    norms = np.linalg.norm(values.astype(float).reshape(*values.shape[:2], -1), axis=2)
    usual_norms = np.median(norms, axis=0)  # 0 where most tasks have the prediction 0: no measure
    return np.all(norms <= np.where(usual_norms > 0, EXPLODED * usual_norms, np.inf), axis=1)


def check_outputs(*halves: Task) -> None:
    """Raise an error for tasks without supports, or with y = 0 or too large a y."""
    for tasks in halves:
        mask = ... if tasks.mask is None else np.asarray(tasks.mask)
        if not np.any(np.asarray(tasks.y)[mask]):
            raise ValueError(
                "y must differ from 0 at an unmasked support of the tasks to fit, and of the tasks "
                "to score, got none; every solver predicts 0 for y = 0"
            )
        check_size("y", np.asarray(tasks.y)[mask])


def check_size(name: str, values: Any) -> None:
    """Raise an error unless the sums of squares in distances are finite in float64."""
    checks.finite(name, values)
    array = np.asarray(values, float)
    checks.each(name, array, np.abs(array) <= 1e150, "<= 1e150 in size", "; rescale y")


def eval_output_shape(
    name: str, function: Callable[[Task], Any], tasks: Task, requirement: str, shape: tuple
) -> jax.ShapeDtypeStruct:
    """What a function returns for one task, without running it.

    An axis of `shape` has the given size, or at least it if it is negative.
    """
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), tasks)
    try:
        result: Any = jax.eval_shape(function, one)
    except jax.errors.TracerArrayConversionError:
        raise TypeError(
            f"{requirement}, got a function of NumPy; write it in JAX, or give arrays"
        ) from None
    if not isinstance(result, jax.ShapeDtypeStruct):
        raise TypeError(f"{requirement}, got {type(result).__name__}; return one array")
    fits = [n == need or need < 0 <= n + need for n, need in zip(result.shape, shape, strict=False)]
    if len(result.shape) != len(shape) or not all(fits):
        raise ValueError(f"{requirement}, got shape {list(result.shape)}")
    checks.floating(name, result)
    return result
