"""Checks of what a value is: arrays, dtypes, random keys, names, functions and types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct
from jax.core import Tracer
from jax.typing import DTypeLike

from .. import capacity
from ..fields import cut, shown, unknown

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


def array(name: str, value: Any) -> None:
    if not isinstance(value, ARRAYS):
        raise TypeError(f"{name} must be an array, got {type(value).__name__}{conversion(value)}")


def floating(name: str, value: Any) -> None:
    array(name, value)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"{name} must be floating point, got {value.dtype}; cast it with astype")
    if value.dtype.itemsize > 8 or not value.dtype.isnative:
        raise TypeError(
            f"{name} must have a dtype that JAX has, such as float32, got {value.dtype}; "
            "cast it with astype"
        )


def floating_dtype(value: DTypeLike) -> np.dtype:
    try:
        wanted = jnp.dtype(value)
    except TypeError:
        raise TypeError(
            f"dtype must be a floating dtype such as 'float32', got {shown(value)}"
        ) from None
    if value is None or not jnp.issubdtype(wanted, jnp.floating):
        raise TypeError(f"dtype must be floating point, got {shown(value)}")
    return wanted


def dtype(value: DTypeLike | None) -> np.dtype:
    """The floating dtype of weights, which is JAX's default if the value is None."""
    default = jnp.dtype(jnp.result_type(float))
    wanted = default if value is None else floating_dtype(value)
    if wanted.itemsize > default.itemsize:
        raise ValueError(f"dtype must not be wider than {default}, got {wanted}; enable x64")
    return wanted


def factorable(name: str, value: Any) -> None:
    """Raise an error unless the dtype is float32 or float64, as factorisations require."""
    if str(value.dtype) not in ("float32", "float64"):
        raise TypeError(
            f"{name} must be float32 or float64, got {value.dtype}; cast it with astype"
        )


def matrices(x: Any, z: Any) -> None:
    for name, value in (("x", x), ("z", z)):
        floating(name, value)
        if jnp.ndim(value) != 2:
            raise ValueError(
                f"{name} must be [n, p], got shape {list(jnp.shape(value))}; "
                "use jax.vmap for a batch"
            )
    if jnp.shape(x)[1] != jnp.shape(z)[1]:
        raise ValueError(
            f"z must have p = {jnp.shape(x)[1]} features to match x, got {jnp.shape(z)[1]}"
        )
    capacity.check("kernel matrix", 2 * jnp.shape(x)[0] * jnp.shape(z)[0], x)


def key(name: str, value: Any) -> None:
    """Raise an error unless the value is one random key of JAX, old or new style."""
    kind = getattr(value, "dtype", None) if isinstance(value, ARRAYS) else None
    new = kind is not None and jnp.issubdtype(kind, jax.dtypes.prng_key)
    if not new and kind != np.uint32:
        raise TypeError(
            f"{name} must be a random key of JAX, got {shown(value)}; use jax.random.key(0)"
        )
    if len(value.shape) != (0 if new else 1):
        raise ValueError(
            f"{name} must be one key, got shape {list(value.shape)}; use jax.vmap for several"
        )


def flag(name: str, value: Any) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")


def function(name: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {shown(value)}")


def instance(name: str, value: Any, wanted: type | tuple[type, ...], what: str) -> None:
    if not isinstance(value, wanted):
        raise TypeError(f"{name} must be {what}, got {type(value).__name__}")


def path(name: str, value: Any) -> Path:
    instance(name, value, (str, Path), "a path")
    if "\0" in str(value):
        raise ValueError(f"{name} must have no null character, got {shown(str(value))}")
    return Path(value)


def names(name: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, (tuple, list)):
        remedy = f"; use ({value!r},)" if isinstance(value, str) else ""
        raise TypeError(f"{name} must be a tuple of names, got {shown(value)}{remedy}")
    for entry in value:
        if not isinstance(entry, str):
            raise TypeError(f"{name} must be a tuple of names, got {shown(entry)} in it")


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(unknown(name, value, allowed))


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Describe all entries that differ between two records; return "" if the records are equal."""
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]

    def told(value: Any) -> str:
        return cut(value) if isinstance(value, str) else shown(value)

    return "; ".join(
        f"{cut(name)}: stored {told(there.get(name))}, given {told(here.get(name))}"
        for name in names
    )
