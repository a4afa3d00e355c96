"""What sublayers do: normalise what they read, compute hidden units, and add to the stream."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..names import unknown
from ..numerics import matmul, reciprocal
from ..residual import Stream
from .weights import Norm, Unit

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


def activate(unit: Unit, stream: Stream) -> jax.Array:
    """The hidden units [T, hidden]; `project` multiplies them by the output matrix."""
    if unit.gate is None:
        assert unit.up is not None
        hidden = unit.up(stream)
    else:
        hidden = ACTIVATIONS[unit.activation](unit.gate(stream))
        if unit.up is not None:
            hidden = unit.up(stream) * hidden
    return hidden


def project(hidden: jax.Array, out: jax.Array | None) -> jax.Array:
    if out is None:
        return hidden
    return matmul(hidden, out)


def add_to_stream(stream: Stream, written: Stream) -> Stream:
    """Add what a sublayer writes; the stream must have all written slots."""
    for slot, part in written.items():
        if slot not in stream:
            raise ValueError(unknown("slot to write", slot, stream))
        if part.shape != stream[slot].shape:
            raise ValueError(
                f"values written to slot {slot} must have shape {list(stream[slot].shape)}, "
                f"got {list(part.shape)}"
            )
    return sum_of_slots(stream, written)


def sum_of_slots(stream: Stream, written: Stream) -> Stream:
    added = {
        slot: stream[slot] + part if slot in stream else part for slot, part in written.items()
    }
    return {**stream, **added}


def normalise(norms: dict[str, Norm], stream: Stream) -> Stream:
    """LayerNorm of the slots that have a norm; other slots are unchanged."""
    normed = {}
    for slot, norm in norms.items():
        h = stream[slot] - jnp.mean(stream[slot], axis=-1, keepdims=True)
        variance = jnp.mean(h * h, axis=-1, keepdims=True)
        normed[slot] = h * jax.lax.rsqrt(variance + 1e-5) * norm.scale[None] + norm.bias[None]
    return {**stream, **normed}
