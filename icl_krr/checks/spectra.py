"""Checks of what a solver must know about eigenvalues."""

from __future__ import annotations

from typing import Any

from ..fields import shown
from .arrays import concrete
from .numbers import positive_scalar


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
