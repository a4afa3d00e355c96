"""Predictions for the rows of a table, in the units of the table."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from ..kernels import Kernel
from ..tasks.division import Division
from ..uncertainty import coverage, log_likelihood
from .depth import DepthResult
from .process import Process, gaussian, process

SHOWN = ("transformer", "exact", "nadaraya_watson", "mean")
"""Predictors whose error is shown. The zero prediction of a centred y is the mean."""

WIDTH = 1.959964
"""Half the width of a 95 % interval of a normal distribution, in standard deviations."""


class Prediction(NamedTuple):
    """The prediction for one query, in the units of y; NaN where it is not known.

    Attributes:
        row: number of the row in its file; 1 is the first row below the header.
        y: the target.
        transformer: prediction of the transformer.
        exact: prediction of exact kernel ridge regression.
        std: standard deviation of a new y, under the Gaussian process of `process`.
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


def process_of(
    division: Division, kernel: Kernel, ridge: float, amplitude: float | None = None
) -> Process:
    """The Gaussian process at the queries, with mean, std, amplitude and noise in units of y."""
    unit = float(division.scaling.undo_width(np.ones(())))
    if amplitude is not None:
        amplitude = amplitude / unit / unit
    found = process(kernel, division.task, ridge, amplitude)
    return found.times(unit)._replace(mean=division.scaling.undo(found.mean))


def predictions(division: Division, result: DepthResult, process: Process) -> list[Prediction]:
    """The predictions of transformer and exact regression for every query, with intervals."""
    task, rows, scaling = division
    y = np.full(len(rows), np.nan) if task.y_query is None else np.asarray(task.y_query)
    exact, std = scaling.undo(result.predictions["exact"]), process.std
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
    if division.task.y_query is None:
        return {}
    y = np.asarray(division.task.y_query)  # a float64 array of JAX may come from another scope
    return {
        name: float(
            division.scaling.undo_width(np.sqrt(np.mean((result.predictions[name] - y) ** 2)))
        )
        for name in SHOWN
    }


def calibration_of(division: Division, found: list[Prediction]) -> dict[str, float]:
    """Coverage and log likelihood of known targets, in units of y; {} if there is nothing to judge.

    Either y is unknown, or the deviations are unknown or 0, because the supports' y is constant.
    The log likelihood `constant` is that of the mean and the standard deviation of the supports.
    """
    columns: Any = np.array([(row.y, row.exact, row.std) for row in found]).T
    y, exact, std = columns
    if division.task.y_query is None or not np.all(std > 0):
        return {}
    given, supports = gaussian(exact, std), np.asarray(division.task.y, np.float64)
    constant = gaussian(
        np.full_like(y, division.scaling.undo(supports.mean())),
        np.full_like(y, division.scaling.undo_width(supports.std())),
    )
    with jax.enable_x64(True):
        judged = coverage(given, y)
        scores = [float(log_likelihood(each, y)) for each in (given, constant)]
    counted = {**judged._asdict(), "calibrated": judged.calibrated}
    return {**counted, "log_likelihood": scores[0], "constant": scores[1]}
