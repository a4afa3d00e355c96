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
    def of(cls, seen: np.ndarray) -> Scaling:
        """The mean and the standard deviation of the values that are seen; 1 if they are equal."""
        # a power of two before the squares, which would overflow
        _, exponent = np.frexp(np.max(np.abs(seen), axis=0))
        seen = np.ldexp(seen, -exponent)
        # rounding can move the mean of a constant column, and make its standard deviation > 0
        varies = np.ptp(seen, axis=0) > 0
        mean = np.where(varies, seen.mean(axis=0), seen[0])
        return cls(exponent, mean, np.where(varies, seen.std(axis=0), 1))

    @classmethod
    def none(cls, seen: np.ndarray) -> Scaling:
        """The map that changes nothing."""
        columns = seen.shape[1:]
        return cls(np.zeros(columns, int), np.zeros(columns), np.ones(columns))

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
