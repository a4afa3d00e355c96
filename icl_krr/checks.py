"""Input checks; an error message gives the name, the rule, the value and often a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct
from jax.core import Tracer
from jax.typing import DTypeLike

from .fields import cut, shown


def concrete(value: Any) -> np.ndarray | None:
    """Return the value as a NumPy array, or None if it is traced and cannot be checked."""
    if value is None or isinstance(value, (Tracer, ShapeDtypeStruct)):
        return None
    return np.asarray(value)


def numeric(name: str, value: Any) -> None:
    if not isinstance(value, Tracer) and np.asarray(value).dtype.kind not in "fiuV":
        raise TypeError(f"{name} must be a number, got {shown(value)}")


def scalar(name: str, value: Any) -> None:
    numeric(name, value)
    if jnp.ndim(value) != 0:
        raise ValueError(
            f"{name} must be a scalar, got shape {list(jnp.shape(value))}; "
            "use jax.vmap for several values"
        )


def positive(name: str, value: Any) -> None:
    """Raise an error unless all entries are > 0 and finite, also in JAX's default precision."""
    numeric(name, value)
    known = concrete(value)
    if known is None:
        return
    if not np.all(known > 0):
        raise ValueError(f"{name} must be > 0, got {value}")
    if not np.all(np.isfinite(known)):
        raise ValueError(f"{name} must be finite, got {value}")
    default = jnp.dtype(jnp.result_type(float))
    with np.errstate(over="ignore", under="ignore"):
        rounded = known.astype(default)
    if not (np.all(rounded >= jnp.finfo(default).tiny) and np.all(np.isfinite(rounded))):
        raise ValueError(f"{name} must be in the range of {default}, got {value}; enable x64")


def positive_scalar(name: str, value: Any) -> None:
    scalar(name, value)
    positive(name, value)


def nonnegative_scalar(name: str, value: Any) -> None:
    at_least(name, value, 0)


def at_least(name: str, value: Any, minimum: float) -> None:
    scalar(name, value)
    known = concrete(value)
    if known is not None and not (known >= minimum and np.isfinite(known)):
        raise ValueError(f"{name} must be >= {minimum} and finite, got {value}")


def count(name: str, value: Any, minimum: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {shown(value)}")
    if value < minimum:
        raise ValueError(f"{name} must be >= {minimum}, got {value}")


def even(name: str, value: Any) -> None:
    count(name, value, minimum=2)
    if value % 2:
        raise ValueError(f"{name} must be even, got {value}; use {value + 1}")


def finite(name: str, value: Any) -> None:
    known = concrete(value)
    if known is None or np.all(np.isfinite(known)):
        return
    first = tuple(int(i) for i in np.argwhere(~np.isfinite(known))[0])
    raise ValueError(
        f"{name} must be finite, got {known[first]} at index {list(first)}; "
        "remove the row or mask it"
    )


def floating(name: str, value: Any) -> None:
    if not hasattr(value, "dtype") or not hasattr(value, "ndim"):
        raise TypeError(f"{name} must be an array, got {type(value).__name__}; use jnp.asarray")
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"{name} must be floating point, got {value.dtype}; cast it with astype")


def dtype(value: DTypeLike | None) -> np.dtype:
    """The floating dtype of weights, which is JAX's default if the value is None."""
    default = jnp.dtype(jnp.result_type(float))
    wanted = default if value is None else jnp.dtype(value)
    if not jnp.issubdtype(wanted, jnp.floating):
        raise TypeError(f"dtype must be floating point, got {wanted}")
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


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        names = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} must be one of {names}, got {shown(value)}")


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
