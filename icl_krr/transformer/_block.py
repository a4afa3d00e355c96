"""One block of the forward pass: its attention sublayer, then its MLP sublayer."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from .._core.numerics import reciprocal
from .._core.xla_workarounds import ordered_collectives
from ..residual import Stream
from ..residual._tokens import DividedTokens
from ._full_softmax import FullSoftmax
from ._heads import add_to_stream, normalise, project, run_heads, sum_of_slots
from ._hook_points import HookPoints
from ._masks import KeyMask
from ._tying import erased_slots, erases, known_zeros
from ._weights import Block, Spec, Unit

ACTIVATIONS = {
    "identity": lambda x: x,
    "reciprocal": reciprocal,
    "inverse": lambda x: 1 / x,
    "exp": jnp.exp,
    "log": jnp.log,
    "cos": jnp.cos,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "normal_cdf": jax.scipy.special.ndtr,
}


def run_block(
    block: Block,
    stream: Stream,
    key_mask: KeyMask,
    spec: Spec,
    hook_points: HookPoints,
    patterns: Mapping[int, FullSoftmax],
) -> Stream:
    """h += attention(h); h += mlp(h). The writes of a sublayer are summed before they are added.

    `patterns` {group of heads: pattern} are those that were computed before the steps.
    """
    in_rings = isinstance(key_mask, DividedTokens) and spec.attention == "softmax"
    stream = hook_points("resid_pre", ordered_collectives(stream) if in_rings else stream)
    inputs = normalise(block.attention_norm, stream)
    written: Stream = {}
    for j, heads in enumerate(block.attention):
        if in_rings:
            inputs, written = ordered_collectives((inputs, written))
        outputs = run_heads(heads, inputs, key_mask, spec, hook_points, j, patterns.get(j))
        written = sum_of_slots(written, hook_points(f"heads.{j}", outputs))
    stream = hook_points("resid_mid", add_to_stream(stream, hook_points("attn", written)))
    inputs = normalise(block.mlp_norm, stream)
    written, rows = {}, {slot: value for slot, value in inputs.items() if len(value) == 1}
    # h - h is zero: a constant, which costs nothing. Points that a caller reads show the -h
    erased = set() if hook_points.used else erased_slots(block)
    stream = stream | {slot: known_zeros(stream[slot]) for slot in erased}
    for j, unit in enumerate(block.mlp):
        if unit.to in erased and erases(unit):
            continue
        hidden = activate(unit, rows if unit.to in rows else inputs)
        hidden = hook_points(f"units.{j}.hidden", hidden)
        outputs = hook_points(f"units.{j}", {unit.to: project(hidden, unit.out)})
        written = sum_of_slots(written, outputs)
    stream = add_to_stream(stream, hook_points("mlp", written))
    return hook_points("resid_post", stream)


def activate(unit: Unit, stream: Stream) -> jax.Array:
    """The hidden units [T, hidden]; `project` multiplies them by the output matrix."""
    if unit.gate is None:
        assert unit.up is not None
        return unit.up(stream)
    hidden = ACTIVATIONS[unit.activation](unit.gate(stream))
    return hidden if unit.up is None else unit.up(stream) * hidden
