"""The repr of objects: short, with arrays as `f32[32,4]`, and at most one screen."""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING
from typing import Any, TypeVar

import jax
import numpy as np
import wadler_lindig as wl
from jax.core import Tracer

T = TypeVar("T")
ARRAYS = (jax.Array, jax.ShapeDtypeStruct, np.ndarray, np.generic)
LINES, WIDTH, DEPTH = 40, 88, 8
"""The size of a screen, and the number of levels that are printed in full."""


def readable(cls: type[T]) -> type[T]:
    """Give a dataclass or a named tuple a short `repr`; its method `__pdoc__`, if any, formats it.

    Arrays show dtype and shape, and scalars their value. Fields that are empty
    by default and have their default are omitted. If the text does not fit on
    one screen, long parts are abbreviated to `Name(1200 numbers)`; print a part to see all of it.

    >>> from icl_krr import Task
    >>> Task(x=np.ones((32, 4)), y=np.ones(32), x_query=np.ones((5, 4)))
    Task(x=f32[32,4], y=f32[32], x_query=f32[5,4])
    """
    if not hasattr(cls, "__pdoc__"):
        cls.__pdoc__ = _fields_doc  # pyright: ignore[reportAttributeAccessIssue]
    cls.__repr__ = screen_repr
    return cls


def screen_repr(self: Any) -> str:
    texts = (pretty(self, depth) for depth in range(DEPTH, -1, -1))
    return next((text for text in texts if text.count("\n") < LINES), pretty(self, 0))


def pretty(value: Any, depth: int, width: int = WIDTH) -> str:
    return wl.pformat(value, width=width, custom=_array_doc, depth=depth)


def _fields_doc(self: Any, depth: int = DEPTH, **options: Any) -> wl.AbstractDoc:
    """The fields of an object; if `depth` < 0 and they need half a line, a count of its numbers."""
    name, leaves = type(self).__name__, jax.tree.leaves(self)
    if depth < 0 and (len(leaves) >= 8 or len(pretty(self, DEPTH, width=10**6)) > WIDTH // 2):
        return wl.TextDoc(f"{name}({sum(map(np.size, leaves))} numbers)")
    if dataclasses.is_dataclass(self):
        defaults = {field.name: _default(field) for field in dataclasses.fields(self) if field.repr}
    else:
        defaults = dict.fromkeys(self._fields, MISSING) | self._field_defaults
    fields = {field: getattr(self, field) for field in defaults}
    items = {key: value for key, value in fields.items() if not _is_empty(value, defaults[key])}
    begin, end = wl.TextDoc(f"{name}("), wl.TextDoc(")")
    docs = wl.named_objs(items.items(), depth=depth - 1, **options)
    return wl.bracketed(begin=begin, docs=docs, sep=wl.comma, end=end, indent=options["indent"])


def _default(field: dataclasses.Field) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _is_empty(value: Any, default: Any) -> bool:
    """Whether the default is None, False, 0 or empty, and the value is the same."""
    if default is None or default is MISSING or default:
        return value is default is None
    return (_number(value) if isinstance(value, ARRAYS) else value) == default


def _array_doc(value: Any) -> wl.AbstractDoc | None:
    """Dtype and shape of an array, or six digits of a number."""
    scalar = _number(value) if isinstance(value, ARRAYS) else value
    if isinstance(scalar, float):
        return wl.TextDoc(repr(float(f"{scalar:.6g}")))
    if scalar is None and value is not None:
        return wl.array_summary(value.shape, str(value.dtype), None)
    return None if scalar is value else wl.pdoc(scalar)


def _number(value: Any) -> Any:
    """The value of a scalar; None if it is an array, traced, a key, deleted or of another host."""
    try:
        return None if value.ndim or isinstance(value, Tracer) else value.item()
    except (AttributeError, TypeError, RuntimeError):
        return None
