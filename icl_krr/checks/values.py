"""Checks of what a value is: a flag, a function, a name, a random key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct
from jax.core import Tracer

from ..fields import cut, shown

ARRAYS = (jax.Array, np.ndarray, np.generic, ShapeDtypeStruct)
"""The types that count as arrays; JAX's tracers are of type `jax.Array`."""


def concrete(value: Any) -> np.ndarray | None:
    """Return the value as a NumPy array, or None if it is traced and cannot be checked."""
    if value is None or isinstance(value, (Tracer, ShapeDtypeStruct)):
        return None
    return np.asarray(value)


def conversion(value: Any) -> str:
    """The remedy for a value that is not an array, but can become one."""
    if isinstance(value, (str, dict, *ARRAYS)):
        return ""
    if hasattr(value, "__array__"):
        return "; use np.asarray"
    return "; use jnp.asarray" if np.iterable(value) else ""


def flag(name: str, value: Any) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")


def function(name: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {shown(value)}")


def instance(name: str, value: Any, wanted: type | tuple[type, ...], what: str) -> None:
    if not isinstance(value, wanted):
        raise TypeError(f"{name} must be {what}, got {type(value).__name__}")


def names(name: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, (tuple, list)):
        remedy = f"; use ({value!r},)" if isinstance(value, str) else ""
        raise TypeError(f"{name} must be a tuple of names, got {shown(value)}{remedy}")
    for entry in value:
        if not isinstance(entry, str):
            raise TypeError(f"{name} must be a tuple of names, got {shown(entry)} in it")


def key(name: str, value: Any) -> None:
    """Raise an error unless the value is one random key of JAX, old or new style."""
    kind = getattr(value, "dtype", None) if isinstance(value, ARRAYS) else None
    new = kind is not None and jnp.issubdtype(kind, jax.dtypes.prng_key)
    if not new and kind != np.uint32:
        raise TypeError(
            f"{name} must be a random key of JAX, got {shown(value)}; use jax.random.key(0)"
        )
    if jnp.ndim(value) != (0 if new else 1):
        raise ValueError(
            f"{name} must be one key, got shape {list(jnp.shape(value))}; use jax.vmap for several"
        )


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        known = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} must be one of {known}, got {shown(value)}")


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Describe all entries that differ between two records; return "" if the records are equal."""
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]

    def told(value: Any) -> str:
        return cut(value) if isinstance(value, str) else shown(value)

    return "; ".join(
        f"{cut(name)}: stored {told(there.get(name))}, given {told(here.get(name))}"
        for name in names
    )
