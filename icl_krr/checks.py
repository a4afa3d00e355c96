"""Input checks; an error message gives the name, the rule, the value and often a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct
from jax.core import Tracer
from jax.typing import DTypeLike

from . import capacity
from .fields import cut, shown

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


def numeric(name: str, value: Any) -> None:
    if isinstance(value, ARRAYS):
        real = jnp.issubdtype(value.dtype, jnp.integer) or jnp.issubdtype(value.dtype, jnp.floating)
    else:
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not real:
        raise TypeError(f"{name} must be a number, got {shown(value)}{conversion(value)}")


def scalar(name: str, value: Any) -> None:
    numeric(name, value)
    if jnp.ndim(value) != 0:
        raise ValueError(
            f"{name} must be a scalar, got shape {list(jnp.shape(value))}; "
            "use jax.vmap for several values"
        )


def each(name: str, known: np.ndarray, good: Any, rule: str, remedy: str = "") -> None:
    """Raise an error that shows the first entry that is not good."""
    if np.all(good):
        return
    first = tuple(int(i) for i in np.argwhere(~np.asarray(good))[0])
    place = f" at index {list(first)}" if first else ""
    raise ValueError(f"{name} must be {rule}, got {known[first]}{place}{remedy}")


def in_range(name: str, known: np.ndarray) -> None:
    """Raise an error if a number becomes 0, subnormal or infinite in JAX's default precision."""
    default = jnp.dtype(jnp.result_type(float))
    with np.errstate(over="ignore", under="ignore"):
        size = np.abs(known.astype(default))
    lost = (
        (known != 0) & np.isfinite(known) & ~((size >= jnp.finfo(default).tiny) & (size < np.inf))
    )
    remedy = f"; rescale {name}" + ("" if default == np.float64 else " or enable x64")
    each(name, known, ~lost, f"in the range of {default}", remedy)


def positive(name: str, value: Any) -> None:
    """Raise an error unless all entries are > 0 and finite, also in JAX's default precision."""
    numeric(name, value)
    known = concrete(value)
    if known is not None:
        each(name, known, known > 0, "> 0")
        each(name, known, np.isfinite(known), "finite")
        in_range(name, known)


def positives(**values: Any) -> None:
    for name, value in values.items():
        positive(name, value)


def nonnegatives(**values: Any) -> None:
    for name, value in values.items():
        numeric(name, value)
        if (known := concrete(value)) is not None:
            each(name, known, (known >= 0) & np.isfinite(known), ">= 0 and finite")


def reals(**values: Any) -> None:
    for name, value in values.items():
        numeric(name, value)
        finite(name, value)


def positive_scalar(name: str, value: Any) -> None:
    scalar(name, value)
    positive(name, value)


def nonnegative_scalar(name: str, value: Any) -> None:
    at_least(name, value, 0)


def at_least(name: str, value: Any, minimum: float) -> None:
    scalar(name, value)
    known = concrete(value)
    if known is not None:
        each(name, known, (known >= minimum) & np.isfinite(known), f">= {minimum} and finite")
        in_range(name, known)


def count(name: str, value: Any, minimum: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {shown(value)}")
    if value < minimum:
        raise ValueError(f"{name} must be >= {minimum}, got {value}")
    if value >= 2**31:
        raise ValueError(f"{name} must be < 2^31, got {value}")


LARGEST = 100_000
"""Largest count of steps, seeds and other entries that an experiment keeps in memory."""


def stored(name: str, value: Any) -> None:
    count(name, value)
    if value > LARGEST:
        raise ValueError(
            f"{name} must be <= {LARGEST}, because arrays of this length are kept in memory, "
            f"got {value}"
        )


def even(name: str, value: Any) -> None:
    count(name, value, minimum=2)
    if value % 2:
        raise ValueError(f"{name} must be even, got {value}; use {value + 1}")


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


def finite(name: str, value: Any, remedy: str = "") -> None:
    known = concrete(value)
    if known is not None:
        each(name, known, np.isfinite(known), "finite", remedy)


def array(name: str, value: Any) -> None:
    if not isinstance(value, ARRAYS):
        raise TypeError(f"{name} must be an array, got {type(value).__name__}{conversion(value)}")


def floating(name: str, value: Any) -> None:
    array(name, value)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"{name} must be floating point, got {value.dtype}; cast it with astype")


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


def spectrum(value: Any) -> tuple[Any, Any]:
    """Check the bounds (low, high) on the eigenvalues of K + ridge I, and return them."""
    if value is None:
        raise ValueError(
            "spectrum must be given; for one task, use "
            "spectrum=icl_krr.spectral_bounds(kernel, task, ridge=ridge)"
        )
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"spectrum must be a pair (low, high), got {shown(value)}")
    low, high = value
    positive_scalar("low of spectrum", low)
    positive_scalar("high of spectrum", high)
    known = concrete(low), concrete(high)
    if known[0] is not None and known[1] is not None and known[0] > known[1]:
        raise ValueError(f"spectrum must be (low, high) with low <= high, got {(low, high)}")
    return low, high


def one_of(step_size: Any, bounds: Any) -> None:
    if (step_size is None) == (bounds is None):
        raise ValueError(
            "exactly one of step_size and spectrum must be given, "
            f"got {'neither' if step_size is None else 'both'}; for one task, use "
            "spectrum=icl_krr.spectral_bounds(kernel, task, ridge=ridge)"
        )
