"""Replace a block of one model by a step of another model, between two fitted linear maps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ... import checks
from ...readable import readable
from ...residual import ROLES, Stream, visible
from ...tasks import Task
from ...tasks.task import check_axes
from ...transformer import Transformer, forward, resume, run_with_cache
from ...transformer.resume import step_blocks
from ...transformer.weights import check_model
from ..reading.readouts import ridge_regression
from .interventions import role_flags


@readable
class Swap(NamedTuple):
    """Predictions of `swap` for the scored tasks, and the predictions of its controls.

    Attributes:
        intact: predictions of the unchanged model [b, q].
        swapped: predictions with the step of the other model in place of the block [b, q].
        linear: control with a linear map of the stream in place of the block [b, q].
        shuffled: control that takes $c'$ (see `swap`) from another task, with an affine map fitted
            to these states [b, q].
        skipped: control without the block [b, q].
    """

    intact: Float[Array, "b q"]
    swapped: Float[Array, "b q"]
    linear: Float[Array, "b q"]
    shuffled: Float[Array, "b q"]
    skipped: Float[Array, "b q"]


def swap(
    model: Transformer, block: int, other: Transformer, step: int, fitted: Task, scored: Task
) -> Swap:
    """Replace a block of `model` by a step of `other`, and predict.

    Let $h$ and $h'$ be the stream of `model` before and after the block. Let $c$ and $c'$ be the
    states of `other` before and after the step. All four belong to the same token.

    1. An affine map predicts $c$ from $h$.
    2. The step computes $c'$ from the predicted $c$. It reads the task from the data slots of
       `other`.
    3. An affine map predicts $h'$ from $(h, c')$.

    The maps are ridge regressions on the tokens of `fitted`, one for each role. The last quarter of
    `fitted` chooses the ridge. If `swapped` is more accurate than `linear` and `shuffled`, then the
    step computes something that $h'$ needs and that no linear map of $h$ provides.

    Args:
        model: model whose block is replaced.
        block: number of the block, 0 to depth - 1.
        other: model that has the step, usually a construction. It must have separate slots and the
            same kind of tokens as `model`.
        step: number of the step, 0 to steps - 1.
        fitted: batch of >= 4 tasks for the maps, y [b, n], without masks.
        scored: batch of >= 4 tasks for the predictions, y [b, n], without masks.

    Returns:
        A `Swap` with predictions for `scored`.

    Raises:
        ValueError: `block` or `step` does not exist, `other` has merged slots or other tokens, the
            tasks have masks, several outputs or different shapes, or a batch has fewer than 4
            tasks.

    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=8)
    >>> keys = jax.random.split(jax.random.key(0), (2, 8))
    >>> fitted, scored = (jax.vmap(ik.tasks.sample, in_axes=(0, None))(k, config) for k in keys)
    >>> spec = ik.Architecture(num_features=2, width=8, depth=2, heads=1)
    >>> model = ik.init(jax.random.key(1), spec)
    >>> other = ik.constructions.gradient_descent(
    ...     ik.Linear(), num_features=2, ridge=0.1, steps=2, step_size=0.1
    ... )
    >>> swap(model, 0, other, 0, fitted, scored).swapped.shape
    (8, 1)
    """
    check_model(model)
    check_model(other, "other")
    for name, tasks in (("fitted", fitted), ("scored", scored)):
        check_axes(tasks, 1, name)
        if tasks.mask is not None or tasks.y.ndim != 2:
            raise ValueError(
                f"{name} must be a batch with y of shape [b, n] and no mask, got y of shape "
                f"{list(tasks.y.shape)} and {'no' if tasks.mask is None else 'a'} mask"
            )
        if len(tasks.x) < 4:
            raise ValueError(f"{name} must hold at least 4 tasks, got {len(tasks.x)}")
    for name, number, most, of in (
        ("block", block, model.depth, "model"),
        ("step", step, other.steps, "other"),
    ):
        checks.count(name, number, minimum=0)
        if number >= most:
            raise ValueError(
                f"{name} must be < {most}, the number of {name}s of {of}, got {number}"
            )
    if set(other.weights.embedding) == {"stream"}:
        raise ValueError(
            "other must have separate slots, got a model with merged slots; pass the model that "
            "icl_krr.dense merged"
        )
    if fitted.x.shape[1:] != scored.x.shape[1:]:
        raise ValueError(
            f"scored must have x [n, p] of shape {list(fitted.x.shape[1:])} like fitted, "
            f"got {list(scored.x.shape[1:])}"
        )
    if model.spec.tokens != other.spec.tokens:
        raise ValueError(
            f"other must have tokens={model.spec.tokens!r} like model, got {other.spec.tokens!r}"
        )
    names = other.layout.states
    flags = role_flags(model, jax.tree.map(lambda field: np.asarray(field)[0], fitted))
    role_of = np.asarray(flags).argmax(axis=1)
    streams_of = over_tasks(partial(streams_at_block, block, step), model, other)
    stepped_states = over_tasks(partial(states_after_step, step, names), other)

    def inputs(tasks: Task, at_block: tuple, inward: MapsByRole) -> dict[str, np.ndarray]:
        before = np.asarray(at_block[0])
        stepped = stepped_states((tasks, at_block[2], inward(before)))
        return {
            "swapped": np.concatenate([before, stepped], -1),
            "shuffled": np.concatenate([before, np.roll(stepped, 1, axis=0)], -1),
            "linear": before,
        }

    at_block = streams_of(fitted)
    inward = MapsByRole.fit(at_block[0], side_by_side(at_block[2], names), role_of)
    map_inputs = inputs(fitted, at_block, inward)
    maps = {name: MapsByRole.fit(given, at_block[1], role_of) for name, given in map_inputs.items()}
    at_block = streams_of(scored)
    map_inputs = inputs(scored, at_block, inward)
    streams = {name: maps[name](given) for name, given in map_inputs.items()}
    streams |= {"intact": at_block[1], "skipped": at_block[0]}

    def resumed(model: Transformer, pair: tuple[Task, jax.Array]) -> jax.Array:
        task, stream = pair
        return resume(model, task, into_slots(stream, model, stored_slots(model)), block + 1)

    then = over_tasks(resumed, model)
    return Swap(**{name: then((scored, stream)) for name, stream in streams.items()})


def over_tasks(function: Callable, *models: Transformer) -> Callable:
    """A compiled function of many tasks, which takes the models as arguments, not as constants."""
    each = jax.jit(lambda models, tasks: jax.lax.map(partial(function, *models), tasks))
    return partial(each, models)


fit_map = jax.jit(ridge_regression, static_argnums=2)


class MapsByRole(NamedTuple):
    """An affine map for each role, in NumPy: weights [d, e], mean [d], offset [e]."""

    each: tuple[Any, ...]
    role_of: np.ndarray

    @classmethod
    def fit(cls, inputs: Any, outputs: Any, role_of: np.ndarray) -> MapsByRole:
        """Fit maps from tokens [b, T, d] to tokens [b, T, e]."""
        b = len(inputs)
        each = []
        for role in range(len(ROLES)):
            x, y = (
                np.asarray(rows)[:, role_of == role].reshape(-1, rows.shape[-1])
                for rows in (inputs, outputs)
            )
            each.append(fit_map(x, y, 3 * b // 4 * len(x) // b))
        return cls(tuple(jax.tree.map(np.asarray, each)), role_of)

    def __call__(self, inputs: Any) -> np.ndarray:
        inputs, outputs = np.asarray(inputs), np.zeros((), inputs.dtype)
        for role, (weights, mean, offset) in enumerate(self.each):
            part = (inputs - mean) @ weights + offset
            outputs = outputs + (self.role_of == role).astype(part.dtype)[:, None] * part
        return outputs


def streams_at_block(
    block: int, step: int, model: Transformer, other: Transformer, task: Task
) -> tuple[jax.Array, jax.Array, Stream]:
    """The model's stream before and after the block [T, d], and that of `other` before its step."""
    points = ("resid_pre", "resid_post")
    cache = run_with_cache(model, task, names=(), points=points)[1]
    before, after = (
        side_by_side(cache[f"blocks.{block}.{point}"], stored_slots(model)) for point in points
    )
    first = len(other.weights.prologue) + step * other.blocks_per_step
    theirs = run_with_cache(other, task, names=(), points=points[:1])[1]
    return before, after, theirs[f"blocks.{first}.resid_pre"]


def side_by_side(stream: Stream, names: tuple[str, ...]) -> jax.Array:
    return jnp.concatenate([stream[name] for name in names], axis=-1)


def stored_slots(model: Transformer) -> tuple[str, ...]:
    """The names of the stored arrays of the stream: the slots, or "stream" if they are merged."""
    return tuple(model.weights.embedding)


def into_slots(channels: jax.Array, model: Transformer, names: tuple[str, ...]) -> Stream:
    if len(names) == 1:
        return {names[0]: channels}
    edges = np.cumsum([model.layout[name].width for name in names])[:-1]
    return dict(zip(names, jnp.split(channels, edges, axis=-1), strict=True))


def states_after_step(
    step: int, names: tuple[str, ...], other: Transformer, parts: tuple
) -> jax.Array:
    """The states of `other` after the step, concatenated into one array."""
    task, stream, states = parts
    body = other.weights.replace(prologue=step_blocks(other, step), steps=())  # pyright: ignore[reportAttributeAccessIssue]
    alone = other.replace(weights=body, steps=0)  # pyright: ignore[reportAttributeAccessIssue]
    stream = {**stream, **into_slots(states, other, names)}
    after = forward(alone, stream, visible(task, other.spec.tokens)).stream
    return side_by_side(after, names)
