"""Checks of the shapes of several arrays at once."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from . import checks


def check(**arrays: tuple[Any, str]) -> None:
    """Raise an error unless floating-point arrays have the axes that are named.

    Axes of the same name have the same size, in one array and in several arrays. Entries must be
    finite where they are known. In `check(x=(x, "n p"), z=(z, "m p"))`, x and z must have the same
    number of features. A leading "..." allows any number of further axes.

    Args:
        **arrays: pairs of an array and the names of its axes.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for name, (value, axes) in arrays.items():
        checks.floating(name, value)
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
        checks.finite(name, value)
