"""Predictions for the rows of a table, in the units of the table."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from .. import solvers
from ..kernels import Kernel
from ..tasks import Task, system
from ..tasks.division import Division
from .depth import DepthResult

SHOWN = ("transformer", "exact", "nadaraya_watson", "mean")
"""Predictors whose error is shown. The zero prediction of a centred y is the mean."""

WIDTH = 1.959964
"""Half the width of a 95 % interval of a normal distribution, in standard deviations."""


class Prediction(NamedTuple):
    """The prediction for one query, in the units of y.

    Attributes:
        row: number of the row in its file; 1 is the first row below the header.
        y: the target; NaN if it is not known.
        transformer: prediction of the transformer.
        exact: prediction of exact kernel ridge regression.
        std: standard deviation of a new y at this query, under the Gaussian process of `spread`.
        low: lower end of the 95 % interval exact - 1.96 std to exact + 1.96 std.
        high: its upper end.
    """

    row: int
    y: float
    transformer: float
    exact: float
    std: float
    low: float
    high: float


def predictions(division: Division, result: DepthResult) -> list[Prediction]:
    """The predictions of the transformer and of exact regression for every query."""
    task, rows, scaling = division
    y = np.full(len(rows), np.nan) if task.y_query is None else np.asarray(task.y_query)
    std = scaling.undo_width(spread(result.kernel, task, result.facts["ridge"]))
    exact = scaling.undo(result.predictions["exact"])
    columns = (
        scaling.undo(y),
        scaling.undo(result.predictions["transformer"]),
        exact,
        std,
        exact - WIDTH * std,
        exact + WIDTH * std,
    )
    return [
        Prediction(int(row), *map(float, values))
        for row, *values in zip(rows, *columns, strict=True)
    ]


def errors(division: Division, result: DepthResult) -> dict[str, float]:
    """Root mean squared errors at the queries by predictor, in units of y; {} if y is unknown."""
    y = division.task.y_query
    if y is None:
        return {}
    return {
        name: float(
            division.scaling.undo_width(np.sqrt(np.mean((result.predictions[name] - y) ** 2)))
        )
        for name in SHOWN
    }


def spread(kernel: Kernel, task: Task, ridge: float) -> np.ndarray:
    r"""The standard deviation of a new y at every query, in float64.

    The Gaussian process has the covariance $s k$ and the noise variance $s \lambda$, so that its
    mean is kernel ridge regression for every $s$. A new y has the variance $s (v(x) + \lambda)$.
    Leave-one-out chooses $s$: with it, the squares of the leave-one-out errors
    $e_i = \alpha_i / B_{ii}$ are on average as large as their variances $s / B_{ii}$. Here
    $\alpha = B y$ with $u = A^{-1} 1$ and $B = A^{-1} - u u^T / (1^T u)$, because the mean of y was
    subtracted: see `losses` in `model_selection`.

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, eq. 5.12.
    """
    with jax.enable_x64(True):
        wide = Task(*(np.asarray(part, np.float64) for part in (task.x, task.y, task.x_query)))
        gram = np.asarray(system(kernel, wide).gram)
        variance = solvers.posterior(kernel, wide, ridge=ridge).variance
    B = np.linalg.inv(gram + ridge * np.eye(len(gram)))
    B -= np.outer(B.sum(axis=0), B.sum(axis=0)) / B.sum()
    scale = np.mean((B @ np.asarray(wide.y)) ** 2 / np.diag(B))
    with np.errstate(invalid="ignore"):  # not known where the kernel overflows
        return np.sqrt(scale * (np.maximum(np.asarray(variance), 0) + ridge))
