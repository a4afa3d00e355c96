"""Predictions for the rows of a table, in the units of the table."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from ..tasks.division import Division
from ..uncertainty import coverage, log_likelihood
from .depth import DepthResult
from .process import Process, gaussian

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
        mean: mean of a new y at this query, under the Gaussian process of `process`.
        std: its standard deviation.
        low: lower end of the 95 % interval mean - 1.96 std to mean + 1.96 std.
        high: its upper end.
    """

    row: int
    y: float
    transformer: float
    exact: float
    mean: float
    std: float
    low: float
    high: float


def predictions(division: Division, result: DepthResult, process: Process) -> list[Prediction]:
    """The predictions of transformer, exact regression and Gaussian process for every query."""
    task, rows, scaling = division
    y = np.full(len(rows), np.nan) if task.y_query is None else np.asarray(task.y_query)
    mean, std = scaling.undo(process.mean), scaling.undo_width(process.std)
    columns = (
        scaling.undo(y),
        scaling.undo(result.predictions["transformer"]),
        scaling.undo(result.predictions["exact"]),
        mean,
        std,
        mean - WIDTH * std,
        mean + WIDTH * std,
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


def calibration_of(division: Division, process: Process) -> dict[str, float]:
    """Coverage and log likelihood of known targets, in units of y; {} if there is nothing to judge.

    Either y is unknown, or the deviations are not positive, because the supports' y is constant or
    the transformer has not converged. The log likelihood `constant` is that of the mean and the
    standard deviation of the supports.
    """
    if division.task.y_query is None or not np.all(process.std > 0):
        return {}
    y: Any = np.asarray(division.task.y_query, np.float64)
    supports = np.asarray(division.task.y, np.float64)
    constant = gaussian(np.full(len(y), supports.mean()), np.full(len(y), supports.std()))
    predictive = gaussian(process.mean, process.std)
    unit = np.log(float(division.scaling.undo_width(np.ones(()))))
    with jax.enable_x64(True):
        found = coverage(predictive, y)
        scores = [float(log_likelihood(given, y)) - unit for given in (predictive, constant)]
    judged = {**found._asdict(), "calibrated": found.calibrated}
    return {**judged, "log_likelihood": scores[0], "constant": scores[1]}
