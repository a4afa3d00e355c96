"""Lists, tables and tensors of other libraries as NumPy arrays of numbers."""

from numbers import Real
from typing import Any

import jax
import numpy as np

from .._core.messages import one_line

LISTS = (list, tuple, range)
NO_NUMBERS = "OSUmMVc"
"""Kinds of dtypes: objects, texts, dates, records and complex numbers."""


def as_numpy(name: str, value: Any) -> Any:
    """Convert a list, or what `numpy.asarray` reads, to a NumPy array; return others unchanged."""
    if value is None or isinstance(value, (str, bytes, dict, jax.Array, jax.ShapeDtypeStruct)):
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must be an array, got a masked array; use mask= for masked rows")
    if not (isinstance(value, (*LISTS, np.ndarray)) or hasattr(value, "__array__")):
        return value
    kind = type(value).__name__
    try:
        array = np.asarray(value)
    except jax.errors.TracerArrayConversionError:
        raise TypeError(
            f"{name} must be an array inside JAX transformations, got {kind}; use jnp.asarray"
        ) from None
    except (ValueError, TypeError, RuntimeError) as error:
        hint = f"use {name}.detach().cpu().float()"
        if not hasattr(value, "detach"):
            hint = "cast it"
            if isinstance(value, LISTS):
                hint = "its rows must have the same length; icl_krr.tasks.batch pads tasks"
        raise TypeError(
            f"{name} must be an array that NumPy can read, got {kind}; {hint} "
            f"({one_line(str(error).partition('. ')[0])})"
        ) from None
    if array.dtype.kind in NO_NUMBERS:
        real = "real " if array.dtype.kind == "c" else ""
        text = name != "y" and any(isinstance(entry, str) for entry in array.flat)
        encode = "; icl_krr.tasks.read_table(path, target, encode=True) encodes text"
        hint = encode if text else ""
        raise TypeError(
            f"{name} must be an array of {real}numbers, got {_first_non_number(value, array)}{hint}"
        )
    # labels and counts are numbers, too
    return array.astype(float) if array.dtype.kind in "iu" and name != "mask" else array


def _first_non_number(value: Any, array: np.ndarray) -> str:
    """Describe the columns of a table, or the first entry, that are not numbers."""
    columns = [
        column
        for i, column in enumerate(getattr(value, "columns", ()))
        if np.asarray(value.iloc[:, i]).dtype.kind in NO_NUMBERS
    ]
    if columns:
        return f"columns {one_line(str(columns)[1:-1])}; drop them or encode them as numbers"
    for index, entry in np.ndenumerate(array.astype(object)):
        if not isinstance(entry, Real):
            return f"{one_line(repr(entry))} at index {list(index)}"
    return f"dtype {array.dtype}; cast it with astype(float)"
