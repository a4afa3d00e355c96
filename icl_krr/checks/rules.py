"""Checks of numbers that tokens have: a number by a rule, or a vector w for <w, x>."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .arrays import concrete, each
from .numbers import reals

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
