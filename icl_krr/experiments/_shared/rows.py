"""Rows of results, the input of tables and figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

Rows = list[dict[str, Any]]
Show = Callable[[str], None]
CUT = 10.0
"""Figures are cut at so many times the value of the prediction 0, as curves above it diverge."""


class Plot(NamedTuple):
    """How to plot rows: `y` against `x`, one line per value of `by`, with `bound` dashed."""

    x: str
    y: str
    by: tuple[str, ...] = ()
    bound: str = ""
    logx: bool = False
    logy: bool = True


def cut(points: Iterable[tuple[str, float]], zero: float) -> tuple[float, str]:
    """The largest value that a figure shows, and a sentence that names the curves above it.

    `points` are the values of all curves, with their names, and `zero` is that of the prediction 0.

    >>> cut([("chebyshev", 0.1), ("newton schulz", 1e32)], 1.0)
    (10.0, 'Values above 10, 10 times that of the prediction 0, are not drawn: newton schulz.')
    >>> cut([("chebyshev", 0.1)], 1.0)
    (inf, '')
    """
    points, limit = list(points), CUT * zero
    above = dict.fromkeys(name for name, value in points if value > limit)
    if not above or not any(value <= limit for _, value in points):
        return math.inf, ""
    which = f"{limit:.3g}, {CUT:g} times that of the prediction 0"
    return limit, f"Values above {which}, are not drawn: {', '.join(above)}."


def tidy(axes: Mapping[str, Any], **values: Any) -> Rows:
    """One row per combination of the axes; each value is an array over the product of the axes."""
    axes = {name: np.asarray(axis).tolist() for name, axis in axes.items()}
    names, shape = list(axes), tuple(len(axis) for axis in axes.values())
    columns = {name: np.broadcast_to(np.asarray(v), shape) for name, v in values.items()}
    points = zip(np.ndindex(*shape), itertools.product(*axes.values()), strict=True)
    return [
        dict(zip(names, point, strict=True)) | {k: v[index].item() for k, v in columns.items()}
        for index, point in points
    ]
