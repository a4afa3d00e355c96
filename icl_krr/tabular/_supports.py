"""Supports as a regression reads them: from an origin, in units of their size, with weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import Task
from .._core import checks
from ..kernels import Kernel
from ..kernels._weighted import weighted, weighted_family
from ..tasks._columns import Scaling

FEWEST_QUERIES = 32
"""Fewer queries are padded to this number, and more to a power of two."""


class Supports(NamedTuple):
    """Supports as a regression reads them, in float64."""

    # inputs from their origin, [n, p]; with weights, [n, p + 1] for a `Weighted` kernel
    x: np.ndarray
    y: np.ndarray  # outputs in units of their size, [n] or [n, r], times the roots of the weights
    origin: np.ndarray  # origin of the inputs, [p]
    scaling: Scaling
    weighted: bool

    @classmethod
    def of(
        cls,
        x: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray | None,
        *,
        stationary: bool,
        centred: bool,
        smooths: bool,
    ) -> Supports:
        """Supports with these weights; supports of weight 0 are dropped.

        The origin is the mean if the kernel is `stationary`, and y is measured from its mean if
        `centred`. If the solver `smooths`, the weights act on the mean of y, and not on y itself.
        """
        if weight is not None:
            x, y, weight = (values[weight > 0] for values in (x, y, weight))
        origin = np.mean(x, axis=0) * stationary
        scaling = Scaling.of(y, weight, centred)
        x, y = x - origin, scaling.apply(y)
        if weight is not None:
            x = np.column_stack([x, (1.0 if smooths else 0.5) * np.log(weight)])
            y = y if smooths else (np.sqrt(weight) * y.T).T
        return cls(x, y, origin, scaling, weight is not None)

    def points(self, x: np.ndarray) -> np.ndarray:
        """Inputs [q, p] of queries as the regression reads them."""
        x = x - self.origin
        return np.pad(x, ((0, 0), (0, 1))) if self.weighted else x

    def task(self, points: np.ndarray) -> Task:
        return Task(self.x, self.y, points)

    def kernel(self, kernel: Kernel) -> Any:
        return weighted(kernel, len(self.origin)) if self.weighted else kernel

    def family(self, family: type[Kernel]) -> Any:
        """The class of the kernels that leave-one-out compares."""
        return weighted_family(family, len(self.origin)) if self.weighted else family


def checked_weights(sample_weight: Any, count: int) -> np.ndarray | None:
    """The weights of `count` rows, [n], for weights [n], one number or None."""
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, np.float64)
    if weight.shape not in ((), (count,)):
        raise ValueError(
            f"sample_weight must be [n] with n = {count}, the number of rows of X, got shape "
            f"{list(weight.shape)}"
        )
    checks.finite("sample_weight", weight)
    checks.each("sample_weight", weight, weight >= 0, ">= 0")
    if not np.any(weight):
        raise ValueError("sample_weight must be > 0 for at least one row of X, got zero for all")
    return np.broadcast_to(weight, count)


def padded(X: np.ndarray) -> np.ndarray:
    """Repeat the first row until the number of rows is one for which a program is compiled."""
    rows = max(FEWEST_QUERIES, 1 << (len(X) - 1).bit_length())
    return np.concatenate([X, np.broadcast_to(X[:1], (rows - len(X), X.shape[1]))])
