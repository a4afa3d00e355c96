"""Round chosen slots of the residual stream to a narrower dtype."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from .. import checks
from ..transformer.hook_points import Hook
from ..transformer.weights import Transformer, check_model

POINTS = ("resid_pre", "resid_mid", "resid_post")


def round_slots(model: Transformer, formats: Mapping[str, Any]) -> dict[str, Hook]:
    """Return hooks that round slots to a floating-point format after each write.

    All other slots, the weights and the arithmetic keep the dtype of the task. So the run shows
    what this format does to these slots alone. Rounding is to the nearest value of the format; a
    value beyond its range becomes infinite. Pass the hooks to `icl_krr.run_with_hooks` or
    `icl_krr.run_with_cache`.

    Args:
        model: the model with these slots, whose layout must not be merged (see `icl_krr.dense`).
        formats: {slot: dtype}, such as {"r": "float16"}.

    Returns:
        {point: hook} for the stream before each block, between its sublayers and after it.

    Raises:
        ValueError: the model has no such slot, or its slots are merged.
        TypeError: a dtype is not a floating dtype.

    >>> import icl_krr as ik
    >>> model = ik.constructions.gradient_descent(
    ...     ik.Linear(), num_features=1, ridge=1.0, steps=1, step_size=0.3
    ... )
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> hooks = round_slots(model, {"prediction": "bfloat16"})
    >>> float(ik.run_with_hooks(model, task, hooks)[0])
    0.8984375
    """
    check_model(model)
    if not isinstance(formats, Mapping):
        raise TypeError(f"formats must be {{slot: dtype}}, got {checks.shown(formats)}")
    if set(model.weights.embedding) == {"stream"}:
        raise ValueError("model must have separate slots to round one, got merged slots")
    hooks = {}
    for slot, dtype in formats.items():
        model.layout[slot]
        name = checks.floating_dtype(dtype).name
        hooks |= {f"blocks.*.{point}.{slot}": rounder(name) for point in POINTS}
    return hooks


@cache
def rounder(dtype: str) -> Hook:
    """The same hook for every slot and call, so that equal formats do not compile again."""
    return partial(rounded, dtype=dtype)


def rounded(value: jax.Array, where: Any, dtype: str) -> jax.Array:
    info = jnp.finfo(dtype)
    return jax.lax.reduce_precision(value, info.nexp, info.nmant)
