"""What sublayers do with the stream: normalise it, multiply by output matrices, and add to it."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .._core.messages import unknown_name
from .._core.numerics import matmul
from ..residual import Stream
from ._weights import Norm


def project(hidden: jax.Array, out: jax.Array | None) -> jax.Array:
    return hidden if out is None else matmul(hidden, out)


def add_to_stream(stream: Stream, written: Stream) -> Stream:
    """Add what a sublayer writes; the stream must have all written slots."""
    for slot, part in written.items():
        if slot not in stream:
            raise ValueError(unknown_name("slot to write", slot, stream))
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
