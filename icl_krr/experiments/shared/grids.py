"""Grids of hyperparameters that grow while their best point is at an edge."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Axis(NamedTuple):
    """A grid of values unit * base^(step / 2) with steps from -reach to reach, which can grow.

    Attributes:
        base: factor of two steps.
        reach: largest step of the grid.
        low: smallest step to which it can grow.
        high: largest such step.
    """

    base: float
    reach: int
    low: int
    high: int

    def values(self, unit: float) -> np.ndarray:
        """The values at all steps from `low` to `high`."""
        return unit * self.base ** (np.arange(self.low, self.high + 1) / 2)

    def edge(self, unit: float, value: float) -> str:
        """Whether a value is the smallest or the largest that was tried, or else ""."""
        step = round(2 * math.log(value / unit, self.base))
        return "smallest" if step == self.low else "largest" if step == self.high else ""


def search(
    outer: Axis, inner: Axis, losses: Callable[[int], np.ndarray]
) -> tuple[float, tuple[int, int]]:
    """The least loss and its steps on two axes, on a grid that grows while they are at an edge.

    For a step of the outer axis, `losses` are those at all steps of the inner one. Equal losses do
    not let the grid grow.
    """
    seen: dict[int, np.ndarray] = {}

    def least(spans: list[tuple[int, int]]) -> tuple[float, tuple[int, int]]:
        (low, high), (first, last) = spans
        for step in range(low, high + 1):
            if step not in seen:
                seen[step] = losses(step)
        columns = slice(first - inner.low, last - inner.low + 1)
        table = np.stack([seen[step][columns] for step in range(low, high + 1)])
        i, j = divmod(int(np.argmin(table)), table.shape[1])
        return float(table[i, j]), (low + i, first + j)

    spans = [(-axis.reach, axis.reach) for axis in (outer, inner)]
    loss, best = least(spans)
    while True:
        spans = [
            (max(axis.low, low - (step == low)), min(axis.high, high + (step == high)))
            for axis, (low, high), step in zip((outer, inner), spans, best, strict=True)
        ]
        found, beyond = least(spans)
        if not found < loss:
            return loss, best
        loss, best = found, beyond


GIVEN = Axis(1.0, 0, 0, 0)
"""The axis of a value that is given."""

RIDGES = {"float32": Axis(10.0, 6, -6, 12), "float64": Axis(10.0, 6, -12, 12)}
BANDWIDTHS = {"float32": Axis(2.0, 8, -16, 8), "float64": Axis(2.0, 8, -16, 16)}
"""Axes by the dtype of the regression, which has too few digits for smaller ridges and for wider
kernels."""
