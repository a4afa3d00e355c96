"""Checks of numbers: scalars, the entries of arrays, counts, shapes, and bounds on eigenvalues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..fields import shown
from .arrays import ARRAYS, concrete, conversion, each, floating


def numeric(name: str, value: Any) -> np.ndarray | None:
    """Check that a value is a number or an array of them, and return it as far as it is known."""
    if isinstance(value, ARRAYS):
        real = jnp.issubdtype(value.dtype, jnp.integer) or jnp.issubdtype(value.dtype, jnp.floating)
    else:
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not real:
        raise TypeError(f"{name} must be a number, got {shown(value)}{conversion(value)}")
    if isinstance(value, int) and value.bit_length() > 1000:
        raise ValueError(f"{name} must be < 2^1000, got an integer of {value.bit_length()} bits")
    known = concrete(value)
    if known is not None and known.dtype.kind in "iuO":  # an int of more than 64 bits is an object
        # beyond this range JAX wraps NumPy's integers, and raises OverflowError for Python's
        default = jnp.iinfo(jnp.result_type(int))
        good = (known >= default.min) & (known <= default.max)
        each(name, known, good, f"in the range of {default.dtype}", "; use a float")
    return known


def scalar(name: str, value: Any) -> np.ndarray | None:
    known = numeric(name, value)
    if jnp.ndim(value) != 0:
        raise ValueError(
            f"{name} must be a scalar, got shape {list(jnp.shape(value))}; "
            "use jax.vmap for several values"
        )
    return known


def in_range(name: str, known: np.ndarray) -> None:
    """Raise an error if a number becomes 0, subnormal or infinite in JAX's default precision."""
    default = jnp.dtype(jnp.result_type(float))
    with np.errstate(over="ignore", under="ignore"):
        size = np.abs(known.astype(default))
    safe = (size >= jnp.finfo(default).tiny) & (size < np.inf)
    safe |= (known == 0) | ~np.isfinite(known)
    remedy = f"; rescale {name}" + ("" if default == np.float64 else " or enable x64")
    each(name, known, safe, f"in the range of {default}", remedy)


def resolved(name: str, known: np.ndarray) -> None:
    """Raise an error if the rows of a column [..., n, p] differ by less than JAX's default digits.

    Rounding then moves their differences by more than 1 %. A column that varies by rounding errors
    of float64 alone counts as constant.
    """
    default = jnp.dtype(jnp.result_type(float))
    size, spread = np.max(np.abs(known), axis=-2), np.std(known, axis=-2)
    lost = (jnp.finfo(default).eps * size > 0.01 * spread) & (spread > 1e-12 * size)
    if known.dtype.itemsize > default.itemsize and np.any(lost):
        first = tuple(np.argwhere(lost)[0])
        raise ValueError(
            f"{name} must differ by more than the rounding of {default}: column {first[-1]} is "
            f"near {size[first]:.3g} and varies by {spread[first]:.2g}; subtract the mean of x "
            "from x and x_query, or enable x64"
        )


def positive(name: str, value: Any, check: Callable = numeric) -> None:
    """Raise an error unless all entries are > 0 and finite, also in JAX's default precision."""
    known = check(name, value)
    if known is not None:
        each(name, known, known > 0, "> 0")
        each(name, known, np.isfinite(known), "finite")
        in_range(name, known)


def positives(**values: Any) -> None:
    for name, value in values.items():
        positive(name, value)


def nonnegatives(**values: Any) -> None:
    for name, value in values.items():
        if (known := numeric(name, value)) is not None:
            each(name, known, (known >= 0) & np.isfinite(known), ">= 0 and finite")


def reals(**values: Any) -> None:
    for name, value in values.items():
        finite(name, numeric(name, value))


def positive_scalar(name: str, value: Any) -> None:
    positive(name, value, scalar)


def nonnegative_scalar(name: str, value: Any) -> None:
    at_least(name, value, 0)


def at_least(name: str, value: Any, minimum: float) -> None:
    known = scalar(name, value)
    if known is not None:
        each(name, known, (known >= minimum) & np.isfinite(known), f">= {minimum} and finite")
        in_range(name, known)


def finite(name: str, value: Any, remedy: str = "") -> None:
    known = concrete(value)
    if known is not None:
        each(name, known, np.isfinite(known), "finite", remedy)


def count(name: str, value: Any, minimum: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        integer = isinstance(value, ARRAYS) and jnp.issubdtype(value.dtype, jnp.integer)
        mend = f"; use int({name})" if integer and jnp.shape(value) == () else ""
        raise TypeError(f"{name} must be an integer, got {shown(value)}{mend}")
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


def increasing(name: str, value: Any) -> None:
    """Raise an error unless the value is a vector of finite numbers, each above the one before."""
    floating(name, value)
    if jnp.ndim(value) != 1 or len(value) == 0:
        raise ValueError(
            f"{name} must be a vector with at least one number, got shape {list(jnp.shape(value))}"
        )
    known = concrete(value)
    if known is not None:
        each(name, known, np.isfinite(known), "finite")
        each(name, known, np.diff(known, prepend=-np.inf) > 0, "larger than the number before")


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


def shapes(**arrays: tuple[Any, str]) -> None:
    """Raise an error unless floating-point arrays have the axes that are named.

    Axes of the same name have the same size, in one array and in several arrays. Entries must be
    finite where they are known. In `shapes(x=(x, "n p"), z=(z, "m p"))`, x and z must have the same
    number of features. A leading "..." allows any number of further axes.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for name, (value, axes) in arrays.items():
        floating(name, value)
        *more, own = axes.rpartition("... ")
        named, shape = own.split(), jnp.shape(value)
        wanted = f"[{', '.join(('...' if any(more) else '', *named)).lstrip(', ')}]"
        if len(shape) < len(named) or (len(shape) > len(named) and not any(more)):
            raise ValueError(f"{name} must be {wanted}, got shape {list(shape)}")
        for axis, size in zip(named, shape[len(shape) - len(named) :], strict=True):
            needed, first = sizes.setdefault(axis, (size, name))
            if size < 1:
                raise ValueError(f"{name} must be {wanted} with {axis} >= 1, got {list(shape)}")
            if size != needed:
                match = "on both axes" if first == name else f"to match {first}"
                raise ValueError(
                    f"{name} must be {wanted} with {axis} = {needed} {match}, "
                    f"got shape {list(shape)}"
                )
        finite(name, value)
