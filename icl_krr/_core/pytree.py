"""Frozen dataclasses that are pytrees and check their fields once, when they are constructed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, dataclass_transform

import jax

from .messages import suggest_keywords
from .readable import readable
from .xla_start import start_enough_threads

start_enough_threads()

T = TypeVar("T")
F = TypeVar("F", bound=Callable)


def static(**options: Any) -> Any:
    """A dataclass field that belongs to the structure of the pytree and is not a leaf.

    Args:
        **options: options of `dataclasses.field`, such as `default`. The values of the field must
            be hashable.
    """
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def pytree_dataclass(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass and a pytree whose unflattening skips `__post_init__`.

    `flax.struct.dataclass` runs `__post_init__` whenever JAX unflattens the pytree. The leaves may
    then be gradients (a negative "temperature") or placeholders, and a check in `__post_init__`
    would reject them. Fields made by `static` are structure, and all others are leaves.

    Args:
        cls: class with annotated fields.

    >>> @pytree_dataclass
    ... class Point:
    ...     x: float
    >>> jax.tree.map(lambda leaf: 2 * leaf, Point(1.5))
    Point(x=3.0)
    """
    has_repr = "__repr__" in vars(cls)
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)  # == of two arrays is an array
    cls.__init__ = suggest_keywords(cls.__init__)
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    leaves = [f.name for f in fields if not f.metadata.get("static")]
    structure = [f.name for f in fields if f.metadata.get("static")]

    def flatten_with_keys(tree):
        children = [(jax.tree_util.GetAttrKey(name), getattr(tree, name)) for name in leaves]
        return children, tuple(getattr(tree, name) for name in structure)

    def unflatten(aux, children):
        tree = object.__new__(cls)
        for name, value in zip([*leaves, *structure], [*children, *aux], strict=True):
            object.__setattr__(tree, name, value)
        return tree

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten)
    return cls if has_repr else readable(cls)


def jit_if_concrete(function: F) -> F:
    """Return `jax.jit` of a function for arguments that are pytrees of arrays, else the function.

    A user's own kernel or sampler may not be a pytree. With these the function runs without `jit`.

    >>> float(jit_if_concrete(lambda a: a + 1)(1.0)), jit_if_concrete(len)("abc")
    (2.0, 3)
    """
    program = jax.jit(function)

    @wraps(function)
    def call(*args: Any) -> Any:
        return (program if all(map(_is_array, jax.tree.leaves(args))) else function)(*args)

    return call  # pyright: ignore[reportReturnType]


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") or isinstance(leaf, (int, float, complex))
