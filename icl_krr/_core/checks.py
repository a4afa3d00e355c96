"""Input checks; an error message gives the name, the rule, the value and often a hint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import ShapeDtypeStruct
from jax.core import Tracer
from jax.typing import DTypeLike

from . import memory_limit
from .messages import one_line, short_repr, suggest_keywords as suggest_keywords, unknown_name

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


def conversion_hint(value: Any) -> str:
    """The hint for a value that is not an array, but can become one."""
    if isinstance(value, (str, dict, *ARRAYS)):
        return ""
    if hasattr(value, "__array__"):
        return "; use np.asarray"
    return "; use jnp.asarray" if np.iterable(value) else ""


def each(name: str, values: np.ndarray, valid: Any, rule: str, hint: str = "") -> None:
    """Raise an error that shows the first entry that is not valid."""
    if np.all(valid):
        return
    index = tuple(int(i) for i in np.argwhere(~np.asarray(valid))[0])
    place = f" at index {list(index)}" if index else ""
    raise ValueError(f"{name} must be {rule}, got {values[index]}{place}{hint}")


def array(name: str, value: Any) -> None:
    if not isinstance(value, ARRAYS):
        raise TypeError(
            f"{name} must be an array, got {type(value).__name__}{conversion_hint(value)}"
        )


def floating(name: str, value: Any) -> None:
    array(name, value)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"{name} must be floating point, got {value.dtype}; cast it with astype")


def floating_dtype(value: DTypeLike) -> np.dtype:
    try:
        dtype = jnp.dtype(value)
    except TypeError:
        raise TypeError(
            f"dtype must be a floating dtype such as 'float32', got {short_repr(value)}"
        ) from None
    if value is None or not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"dtype must be floating point, got {short_repr(value)}")
    return dtype


def dtype(value: DTypeLike | None) -> np.dtype:
    """The floating dtype of weights, which is JAX's default if the value is None."""
    default = jnp.dtype(jnp.result_type(float))
    result = default if value is None else floating_dtype(value)
    if result.itemsize > default.itemsize:
        raise ValueError(f"dtype must not be wider than {default}, got {result}; enable x64")
    return result


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
    memory_limit.check("kernel matrix", 2 * jnp.shape(x)[0] * jnp.shape(z)[0], x)


def key(name: str, value: Any) -> None:
    """Raise an error unless the value is one random key of JAX, old or new style."""
    dtype = getattr(value, "dtype", None) if isinstance(value, ARRAYS) else None
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if not typed and dtype != np.uint32:
        raise TypeError(
            f"{name} must be a random key of JAX, got {short_repr(value)}; use jax.random.key(0)"
        )
    if len(value.shape) != (0 if typed else 1):
        raise ValueError(
            f"{name} must be one key, got shape {list(value.shape)}; use jax.vmap for several"
        )


def flag(name: str, value: Any) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {short_repr(value)}")


def function(name: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {short_repr(value)}")


def instance(name: str, value: Any, classes: type | tuple[type, ...], what: str) -> None:
    if not isinstance(value, classes):
        raise TypeError(f"{name} must be {what}, got {type(value).__name__}")


def path(name: str, value: Any) -> Path:
    instance(name, value, (str, Path), "a path")
    return Path(value)


def names(name: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, (tuple, list)):
        hint = f"; use ({value!r},)" if isinstance(value, str) else ""
        raise TypeError(f"{name} must be a tuple of names, got {short_repr(value)}{hint}")
    for entry in value:
        if not isinstance(entry, str):
            raise TypeError(f"{name} must be a tuple of names, got {short_repr(entry)} in it")


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(unknown_name(name, value, allowed))


def differences(stored: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """Describe all entries that differ between two records; return "" if the records are equal."""
    names = [name for name in {**stored, **current} if stored.get(name) != current.get(name)]

    def text(value: Any) -> str:
        return one_line(value) if isinstance(value, str) else short_repr(value)

    pairs = ((one_line(key), stored.get(key), current.get(key)) for key in names)
    return "; ".join(f"{key}: stored {text(old)}, given {text(new)}" for key, old, new in pairs)


def numeric(name: str, value: Any) -> np.ndarray | None:
    """Check that a value is a number or an array of them, and return it unless it is traced."""
    if isinstance(value, ARRAYS):
        real = jnp.issubdtype(value.dtype, jnp.integer) or jnp.issubdtype(value.dtype, jnp.floating)
    else:
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not real:
        raise TypeError(f"{name} must be a number, got {short_repr(value)}{conversion_hint(value)}")
    return concrete(value)


def scalar(name: str, value: Any) -> np.ndarray | None:
    number = numeric(name, value)
    if jnp.ndim(value) != 0:
        raise ValueError(
            f"{name} must be a scalar, got shape {list(jnp.shape(value))}; "
            "use jax.vmap for several values"
        )
    return number


def in_range(name: str, values: np.ndarray) -> None:
    """Raise an error if a number becomes 0, subnormal or infinite in JAX's default precision."""
    default = jnp.dtype(jnp.result_type(float))
    with np.errstate(over="ignore", under="ignore"):
        size = np.abs(values.astype(default))
    safe = (size >= jnp.finfo(default).tiny) & (size < np.inf)
    safe |= (values == 0) | ~np.isfinite(values)
    hint = f"; rescale {name}" + ("" if default == np.float64 else " or enable x64")
    each(name, values, safe, f"in the range of {default}", hint)


def resolved(name: str, columns: np.ndarray) -> None:
    """Raise an error if the rows of a column [..., n, p] differ by less than JAX's default digits.

    Rounding then moves their differences by more than 1 %. A column that varies by rounding errors
    of float64 alone counts as constant.
    """
    default = jnp.dtype(jnp.result_type(float))
    size, deviation = np.max(np.abs(columns), axis=-2), np.std(columns, axis=-2)
    unresolved = (jnp.finfo(default).eps * size > 0.01 * deviation) & (deviation > 1e-12 * size)
    if columns.dtype.itemsize > default.itemsize and np.any(unresolved):
        first = tuple(np.argwhere(unresolved)[0])
        raise ValueError(
            f"{name} must differ by more than the rounding of {default}: column {first[-1]} is "
            f"near {size[first]:.3g} and varies by {deviation[first]:.2g}; subtract the mean of x "
            "from x and x_query, or enable x64"
        )


def positive(name: str, value: Any, check: Callable = numeric) -> None:
    """Raise an error unless all entries are > 0 and finite, also in JAX's default precision."""
    values = check(name, value)
    if values is not None:
        each(name, values, values > 0, "> 0")
        each(name, values, np.isfinite(values), "finite")
        in_range(name, values)


def positives(**values: Any) -> None:
    for name, value in values.items():
        positive(name, value)


def nonnegatives(**values: Any) -> None:
    for name, value in values.items():
        if (numbers := numeric(name, value)) is not None:
            each(name, numbers, (numbers >= 0) & np.isfinite(numbers), ">= 0 and finite")


def reals(**values: Any) -> None:
    for name, value in values.items():
        finite(name, numeric(name, value))


def positive_scalar(name: str, value: Any) -> None:
    positive(name, value, scalar)


def nonnegative_scalar(name: str, value: Any) -> None:
    at_least(name, value, 0)


def at_least(name: str, value: Any, minimum: float) -> None:
    number = scalar(name, value)
    if number is not None:
        each(name, number, (number >= minimum) & np.isfinite(number), f">= {minimum} and finite")
        in_range(name, number)


def finite(name: str, value: Any, hint: str = "") -> None:
    values = concrete(value)
    if values is not None:
        each(name, values, np.isfinite(values), "finite", hint)


def count(name: str, value: Any, minimum: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        integer = isinstance(value, ARRAYS) and jnp.issubdtype(value.dtype, jnp.integer)
        hint = f"; use int({name})" if integer and jnp.shape(value) == () else ""
        raise TypeError(f"{name} must be an integer, got {short_repr(value)}{hint}")
    if value < minimum:
        raise ValueError(f"{name} must be >= {minimum}, got {value}")
    if value >= 2**31:
        raise ValueError(f"{name} must be < 2^31, got {value}")


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
    values = concrete(value)
    if values is not None:
        each(name, values, np.isfinite(values), "finite")
        each(name, values, np.diff(values, prepend=-np.inf) > 0, "larger than the number before")


def spectrum(value: Any) -> tuple[Any, Any]:
    """Check the bounds (low, high) on the eigenvalues of K + ridge I, and return them."""
    if value is None:
        raise ValueError(
            "spectrum must be given; for one task, use "
            "spectrum=icl_krr.spectral_bounds(kernel, task, ridge=ridge)"
        )
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"spectrum must be a pair (low, high), got {short_repr(value)}")
    low, high = value
    positive_scalar("low of spectrum", low)
    positive_scalar("high of spectrum", high)
    lowest, highest = map(concrete, (low, high))
    if lowest is not None and highest is not None and lowest > highest:
        raise ValueError(f"spectrum must be (low, high) with low <= high, got {(low, high)}")
    return low, high


def step_size_or_spectrum(step_size: Any, bounds: Any) -> None:
    if (step_size is None) == (bounds is None):
        raise ValueError(
            "exactly one of step_size and spectrum must be given, "
            f"got {'neither' if step_size is None else 'both'}; for one task, use "
            "spectrum=icl_krr.spectral_bounds(kernel, task, ridge=ridge)"
        )


def shapes(**arrays: tuple[Any, str]) -> None:
    """Raise an error unless floating-point arrays have the axes that are named.

    Axes of the same name have the same size, in one array and in several arrays. Entries that are
    not traced must be finite. In `shapes(x=(x, "n p"), z=(z, "m p"))`, x and z must have the same
    number of features. A leading "..." allows any number of further axes.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for name, (value, axes) in arrays.items():
        floating(name, value)
        *leading, trailing = axes.rpartition("... ")
        named = trailing.split()
        shape = jnp.shape(value)
        expected = f"[{', '.join(('...' if any(leading) else '', *named)).lstrip(', ')}]"
        if len(shape) < len(named) or (len(shape) > len(named) and not any(leading)):
            raise ValueError(f"{name} must be {expected}, got shape {list(shape)}")
        for axis, size in zip(named, shape[len(shape) - len(named) :], strict=True):
            required, first = sizes.setdefault(axis, (size, name))
            if size < 1:
                raise ValueError(f"{name} must be {expected} with {axis} >= 1, got {list(shape)}")
            if size != required:
                match = "on both axes" if first == name else f"to match {first}"
                raise ValueError(
                    f"{name} must be {expected} with {axis} = {required} {match}, "
                    f"got shape {list(shape)}"
                )
        finite(name, value)


def ridges(value: Any, num_features: int) -> None:
    """Raise an error unless the ridge is a number > 0, or one for each of m features."""
    positive("ridge", value)
    if jnp.ndim(value) and jnp.shape(value) != (num_features,):
        raise ValueError(
            f"ridge must be a number or a vector [m] with m = {num_features}, the number of "
            f"features, got shape {list(jnp.shape(value))}"
        )


def scalar_ridge(value: Any) -> None:
    """Refuse a vector where the ridge is the variance of the noise."""
    if jnp.ndim(value) == 1:
        raise ValueError(
            f"ridge must be a scalar, the variance of the noise, got shape {list(value.shape)}; "
            "for one ridge a feature, use the projection ridge ** -0.5 * U and the ridge 1"
        )
    positive_scalar("ridge", value)


_RULES: dict[str, Callable[[np.ndarray], Any]] = {
    "> 0": lambda v: v > 0,
    ">= 0": lambda v: v >= 0,
    ">= 0 and < 1": lambda v: (v >= 0) & (v < 1),
    ">= 1": lambda v: v >= 1,
    "> 0 and <= 1": lambda v: (v > 0) & (v <= 1),
    "> 1": lambda v: v > 1,
    "<= 0": lambda v: v <= 0,
}


def satisfies(name: str, value: Any, rule: str, hint: str = "") -> None:
    """Raise an error if a number violates one of `_RULES`; a vector may have any entries."""
    reals(**{name: value})
    number = concrete(value)
    if number is not None and number.ndim == 0:
        each(name, number, _RULES[rule](number), rule, hint)
