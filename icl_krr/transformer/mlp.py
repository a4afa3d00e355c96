"""MLP units: linear, gated (products, reciprocals, features), ReLU and GELU."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..numerics import matmul, reciprocal
from ..residual import Stream
from .weights import Unit

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
