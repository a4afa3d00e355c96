"""Checks of numbers that tokens have: a number by a rule, or a vector w for <w, x>."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .arrays import concrete, each
from .numbers import finite, numeric, reals

RULES: dict[str, Callable[[np.ndarray], Any]] = {
    "> 0": lambda v: v > 0,
    ">= 0": lambda v: v >= 0,
    ">= 0 and < 1": lambda v: (v >= 0) & (v < 1),
    ">= 1": lambda v: v >= 1,
    "> 0 and <= 1": lambda v: (v > 0) & (v <= 1),
    "> 1": lambda v: v > 1,
}


def obeys(name: str, value: Any, rule: str) -> None:
    """Raise an error if a number breaks a rule, or an entry of a vector w for <w, x> is no number.

    Args:
        name: name of the value.
        value: a number, or a vector, which can have any entries.
        rule: one of `RULES`.
    """
    reals(**{name: value})
    known = concrete(value)
    if known is not None and known.ndim == 0:
        each(name, known, RULES[rule](known), rule)


def gates(log_gate: Any, strength: Any) -> None:
    """Raise an error if a log gate is a number > 0, or a write strength is a number < 0."""
    for name, value in (("log_gate", log_gate), ("strength", strength)):
        if value is None:
            continue
        known = numeric(name, value)
        finite(name, value)
        if known is not None and known.ndim == 0:
            if name == "log_gate" and known > 0:
                raise ValueError(f"log_gate must be <= 0, got {value}; a gate above 1 grows")
            if name == "strength" and known < 0:
                raise ValueError(f"strength must be >= 0, got {value}")
