"""Columns with mean 0 and standard deviation 1, and the way back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Scaling(NamedTuple):
    """The map (x - mean) / deviation of columns, and its inverse, in float64."""

    exponent: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(
        cls, seen: np.ndarray, weight: np.ndarray | None = None, centred: bool = True
    ) -> Scaling:
        """The mean and the standard deviation of the values that are seen; 1 if they are equal.

        With `weight` [n], they are those of values of these weights. If not `centred`, the mean
        is 0, and the deviation is the root mean square.
        """
        # a power of two before the squares, which would overflow
        _, exponent = np.frexp(np.max(np.abs(seen), axis=0))
        seen = np.ldexp(seen, -exponent)
        # rounding can move the mean of a constant column, and make its standard deviation > 0
        mean = np.where(np.ptp(seen, axis=0) > 0, np.average(seen, 0, weight), seen[0])
        mean = mean if centred else np.zeros_like(mean)
        deviation = np.sqrt(np.average((seen - mean) ** 2, 0, weight))
        return cls(exponent, mean, np.where(deviation > 0, deviation, 1))

    def apply(self, values: np.ndarray) -> np.ndarray:
        return (np.ldexp(values, -self.exponent) - self.mean) / self.deviation

    def undo(self, values: np.ndarray) -> np.ndarray:
        return np.ldexp(np.asarray(values, float) * self.deviation + self.mean, self.exponent)

    def undo_width(self, values: np.ndarray) -> np.ndarray:
        """The width of an interval, such as a standard deviation, in the units of the column."""
        return np.ldexp(np.asarray(values, float) * self.deviation, self.exponent)


def standardise(column: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Subtract the mean of the values that are seen, and divide by their standard deviation."""
    return Scaling.of(seen).apply(column)
