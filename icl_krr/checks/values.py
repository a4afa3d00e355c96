"""What a value is, and what an error message says of it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import ShapeDtypeStruct
from jax.core import Tracer

ARRAYS = (jax.Array, np.ndarray, np.generic, ShapeDtypeStruct)
"""The types that count as arrays; JAX's tracers are of type `jax.Array`."""


def concrete(value: Any) -> np.ndarray | None:
    """Return the value as a NumPy array, or None if it cannot be checked.

    A traced value cannot be checked, and neither can one that is partly on another host.
    """
    if value is None or isinstance(value, (Tracer, ShapeDtypeStruct)):
        return None
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return None
    return np.asarray(value)


def conversion(value: Any) -> str:
    """The remedy for a value that is not an array, but can become one."""
    if isinstance(value, (str, dict, *ARRAYS)):
        return ""
    if hasattr(value, "__array__"):
        return "; use np.asarray"
    return "; use jnp.asarray" if np.iterable(value) else ""


def each(name: str, known: np.ndarray, good: Any, rule: str, remedy: str = "") -> None:
    """Raise an error that shows the first entry that is not good."""
    if np.all(good):
        return
    first = tuple(int(i) for i in np.argwhere(~np.asarray(good))[0])
    place = f" at index {list(first)}" if first else ""
    raise ValueError(f"{name} must be {rule}, got {known[first]}{place}{remedy}")
