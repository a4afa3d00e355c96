"""How objects print: short, with arrays as `f32[32,4]`, and on one screen."""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import wadler_lindig as wl
from jax.core import Tracer

T = TypeVar("T")
ARRAYS = (jax.Array, jax.ShapeDtypeStruct, np.ndarray, np.generic)
LINES, WIDTH, DEPTH = 40, 88, 8
"""The size of a screen, and the number of levels that are drawn in full."""


def readable(cls: type[T]) -> type[T]:
    """Give a dataclass or a named tuple a short `repr`.

    Arrays show dtype and shape, and scalars their value. Fields that are empty by default, and
    still are, do not show. If the text does not fit on one screen, long parts are folded to
    `Name(1200 numbers)`; print a part to see what is in it.

    Args:
        cls: class of the objects. Its method `__pdoc__`, if it has one, draws the object.

    >>> from icl_krr import Task
    >>> Task(x=np.ones((32, 4)), y=np.ones(32), x_query=np.ones((5, 4)))
    Task(x=f32[32,4], y=f32[32], x_query=f32[5,4])
    """
    if not hasattr(cls, "__pdoc__"):
        cls.__pdoc__ = of_fields  # pyright: ignore[reportAttributeAccessIssue]
    cls.__repr__ = on_one_screen
    return cls


def on_one_screen(self: Any) -> str:
    text = drawn(self, 0)
    for depth in range(1, DEPTH):
        deeper = drawn(self, depth)
        if deeper.count("\n") >= LINES:
            break
        text = deeper
    return text


def drawn(value: Any, depth: int, width: int = WIDTH) -> str:
    return wl.pformat(value, width=width, custom=of_number, depth=depth)


def of_fields(self: Any, depth: int = DEPTH, **options: Any) -> wl.AbstractDoc:
    """The fields of an object, or the number of its numbers if `depth` < 0 and it is long."""
    name = type(self).__name__
    if depth < 0 and (numbers := long(self)):
        return wl.TextDoc(f"{name}({numbers} numbers)")
    shown = {field: value for field, value, default in fields(self) if not empty(value, default)}
    return wl.bracketed(
        begin=wl.TextDoc(f"{name}("),
        docs=wl.named_objs(shown.items(), depth=depth - 1, **options),
        sep=wl.comma,
        end=wl.TextDoc(")"),
        indent=options["indent"],
    )


def fields(self: Any) -> list[tuple[str, Any, Any]]:
    """(name, value, default) of each field; the default is MISSING if there is none."""
    if dataclasses.is_dataclass(self):
        defaults = {field.name: default(field) for field in dataclasses.fields(self) if field.repr}
    else:
        defaults = {name: self._field_defaults.get(name, MISSING) for name in self._fields}
    return [(name, getattr(self, name), default) for name, default in defaults.items()]


def default(field: dataclasses.Field) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def long(self: Any) -> int:
    """The number of numbers of an object that does not fit on half a line, else 0."""
    leaves = jax.tree.leaves(self)
    if len(leaves) < 8 and len(drawn(self, DEPTH, width=10**6)) <= WIDTH // 2:
        return 0
    return sum(np.size(leaf) for leaf in leaves)


def empty(value: Any, default: Any) -> bool:
    """Whether the default is None, False, 0 or empty, and the value is the same."""
    if default is None or default is MISSING or default:
        return value is default is None
    known = number(value) if isinstance(value, ARRAYS) else value
    return known is not None and known == default


def of_number(value: Any) -> wl.AbstractDoc | None:
    known = number(value) if isinstance(value, ARRAYS) else value
    if isinstance(known, float):
        return wl.TextDoc(repr(float(f"{known:.6g}")))
    if known is None and value is not None:
        return wl.array_summary(value.shape, str(value.dtype), None)
    return None if known is value else wl.pdoc(known)


def number(value: Any) -> Any:
    """The value of a scalar, or None if it is an array, traced, a key or deleted."""
    if value.ndim or isinstance(value, (Tracer, jax.ShapeDtypeStruct)):
        return None
    if isinstance(value, jax.Array) and (value.is_deleted() or not value.is_fully_addressable):
        return None
    return None if jnp.issubdtype(value.dtype, jax.dtypes.extended) else np.asarray(value).item()
