"""Change slots of the stream: put other values in before a block, or round them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ... import Task
from ..._core import checks
from ...residual import ROLES
from ...residual._tokens import get_slot, role_slice
from ...transformer import Cache, Transformer, resume, run_with_cache
from ...transformer._hook_points import Hook
from ...transformer._resume import check_block
from ...transformer._run_plan import check_compatible
from ...transformer._weights import check_model
from .sites import STREAM_POINTS


def transplant(
    model: Transformer, task: Task, block: int, slots: Mapping[str, jax.Array]
) -> Float[Array, "q ..."]:
    """Predict with other values in some slots of the stream before a block.

    Args:
        block: number of the block, 0 to `model.depth`; `model.depth` means the stream after the
            last block.
        slots: {name: value} with floating-point values at one step, such as `cache["alpha"][3]`
            [tokens, width] or those of a solver, or a `Cache`: all its slots before the step that
            starts with the block. The tokens are those of the roles of the slot, or all T; of
            "prediction", they may be the queries. An axis of width 1 may be left out. In a model
            with merged slots, "stream" [T, channels] is the whole stream.

    >>> import numpy as np
    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> transplant(model, task, 0, {"r": np.array([6.0]), "p": np.array([6.0])}).tolist()
    [2.0]
    >>> _, cache = ik.run_with_cache(model, task.replace(y=[6.0]))
    >>> transplant(model, task, 1, cache).tolist()  # the first block of the first step
    [2.0]
    """
    check_compatible(model, task)
    check_block(model, block)
    checks.instance("slots", slots, Mapping, "{name: value} or a cache")
    if isinstance(slots, Cache):
        slots = _before_block(slots, model, block)
    for name, value in slots.items():
        checks.floating(name, value)
    cut = min(block, model.depth - 1)
    point = "resid_pre" if cut == block else "resid_post"
    stream = run_with_cache(model, task, names=(), points=(point,))[1][f"blocks.{cut}.{point}"]
    if {name: jnp.shape(v) for name, v in slots.items()} == {n: v.shape for n, v in stream.items()}:
        return resume(model, task, dict(slots), block)
    for name, value in slots.items():
        roles, current = [ROLES], stream.get(name)
        if current is None or name in model.layout.names:
            queries = [("query",)] if name == "prediction" else []
            roles = [model.layout[name].at, *queries, ROLES]
            current = get_slot(stream, model.layout, name)
        tokens = (role_slice(role, task, model.spec.tokens) for role in roles)
        rows = _placed(name, value, current, tuple(tokens))
        new = overwritten(current, value, range(len(current))[rows])
        if name in stream:
            stream = {**stream, name: new}
        else:
            stream = {"stream": stream["stream"].at[:, model.layout.channels(name)].set(new)}
    return resume(model, task, stream, block)


def _before_block(cache: Cache, model: Transformer, block: int) -> dict[str, jax.Array]:
    """The slots of a run before the step that starts with the block."""
    per_step = max(model.blocks_per_step, 1)  # the last part of a cut model has only a prologue
    step, inside = divmod(block - len(model.weights.prologue), per_step)
    slots = {name: cache.slots[name] for name in cache.slots if name in model.layout.names}
    if inside or not 0 <= step < min(map(len, slots.values()), default=step + 1):
        raise ValueError(
            f"block must be the first of a step, {len(model.weights.prologue)} and every "
            f"{per_step} blocks more, for a cache that has this step, got {block}"
        )
    return {name: value[step] for name, value in slots.items()}


def _placed(name: str, value: Any, current: jax.Array, at: tuple[slice, ...]) -> slice:
    """The tokens that a value has, of those it may have."""
    for rows in at:
        whole = current[rows].shape
        if jnp.shape(value) in (whole, whole[:1] + whole[1 + (whole[1] == 1) :]):
            return rows
    raise ValueError(
        f"slot {name} must have shape {list(current[at[0]].shape)}, got {list(jnp.shape(value))}"
    )


@partial(jax.jit, static_argnums=2)
def overwritten(current: jax.Array, value: Any, rows: range) -> jax.Array:
    at = slice(rows.start, rows.stop, rows.step)
    return current.at[at].set(jnp.reshape(value, current[at].shape))


def round_slots(model: Transformer, formats: Mapping[str, Any]) -> dict[str, Hook]:
    """Return hooks {point: hook} that round slots to a floating-point format after each write.

    All other slots, the weights and the arithmetic keep the dtype of the task. So the run shows
    what this format does to these slots alone. Rounding is to the nearest value of the format; a
    value beyond its range becomes infinite. Pass the hooks to `icl_krr.run_with_hooks` or
    `icl_krr.run_with_cache`.

    Args:
        model: the model with these slots, whose layout must not be merged (see `icl_krr.dense`).
        formats: {slot: dtype}, such as {"r": "float16"}.

    >>> import icl_krr as ik
    >>> model = ik.constructions.gradient_descent(
    ...     ik.Linear(), num_features=1, ridge=1.0, steps=1, step_size=0.3
    ... )
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> hooks = round_slots(model, {"prediction": "bfloat16"})
    >>> float(ik.run_with_hooks(model, task, hooks)[0])
    0.8984375
    """
    check_model(model)
    if not isinstance(formats, Mapping):
        raise TypeError(f"formats must be {{slot: dtype}}, got {checks.short_repr(formats)}")
    if set(model.weights.embedding) == {"stream"}:
        raise ValueError("model must have separate slots to round a slot, got merged slots")
    hooks = {}
    for slot, dtype in formats.items():
        model.layout[slot]
        name = checks.floating_dtype(dtype).name
        hooks |= {f"blocks.*.{point}.{slot}": _rounder(name) for point in STREAM_POINTS}
    return hooks


@cache
def _rounder(dtype: str) -> Hook:
    """The same hook for every slot and call, so that equal formats do not compile again."""
    info = jnp.finfo(dtype)
    return lambda value, where: jax.lax.reduce_precision(value, info.nexp, info.nmant)
