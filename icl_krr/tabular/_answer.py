"""Predictions and intervals for a table, computed in as many digits as they need."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from .. import Kernel, Task
from ..tasks._division import Division
from ..uncertainty import coverage, log_likelihood
from . import _depth
from ._depth import DepthResult
from ._depth_config import Chosen, DepthConfig, choose
from ._model_selection import Progress, computable, silent
from ._process import TOLERANCE, Process, exactly, gaussian, largest, process

SHOWN = ("transformer", "exact", "nadaraya_watson", "mean")
"""Predictors whose error is shown. The zero prediction of a centred y is the mean."""

WIDTH = 1.959964
"""Half the width of a 95 % interval of a normal distribution, in standard deviations."""


class Prediction(NamedTuple):
    """The prediction for one query, in the units of y; NaN where it is not known."""

    row: int  # number of the row in its file; 1 is the first row below the header
    y: float
    transformer: float
    exact: float
    std: float  # standard deviation of a new y, under the Gaussian process of `process`
    low: float  # end of the 95 % interval exact - 1.96 std to exact + 1.96 std
    high: float
    filled: str  # columns of the row that were missing or have an unseen text


class Answer(NamedTuple):
    """The answer to the queries of a table."""

    division: Division  # the table as a task, in the dtype that was used
    result: _depth.DepthResult  # transformer and baselines; what cannot be trusted is NaN
    process: Process  # the Gaussian process at the queries, in the units of y
    float64_reason: str = ""  # why float64 was used instead of the default dtype; "" if it was not


def answer(
    wide: Division, config: DepthConfig, amplitude: float | None = None, progress: Progress = silent
) -> Answer:
    """Answer in JAX's default dtype, or in float64 if that is float32 and has too few digits.

    The division is in float64. Hyperparameters are chosen once, for both dtypes.
    """
    division = narrow(wide)
    _depth.check_size(division.task)
    with jax.enable_x64(True):
        chosen = choose(wide.task, config, progress)
        fits = computable(chosen.kernels.regression, wide.task)
    float64_reason = ""
    if division.task.x.dtype == np.float32:
        if fits:
            result = solve(division, config, amplitude, progress, chosen)
            float64_reason = needs_float64(result, config)
            if not float64_reason:
                return result
        else:
            float64_reason = "values of the kernel are too large for float32"
    with jax.enable_x64(True):
        result = solve(wide, config, amplitude, progress, chosen)
    return without_doubtful(result, config)._replace(float64_reason=float64_reason)


def without_doubtful(answer: Answer, config: DepthConfig) -> Answer:
    """The answer with NaN for numbers that are not of the regression that was asked for."""
    facts, predictions = answer.result.facts, answer.result.predictions
    exact, status = facts["exact_ok"], facts["status"]
    converged = status is None or (exact and (config.steps is not None or status["ok"]))
    reliable = {"exact": exact, "transformer": converged}
    lost = {key: np.full_like(predictions[key], np.nan) for key, ok in reliable.items() if not ok}
    return answer._replace(result=answer.result._replace(predictions=predictions | lost))


def narrow(wide: Division) -> Division:
    """The division in JAX's default dtype."""
    task = wide.task
    parts = (None if part is None else np.asarray(part) for part in (task.mask, task.y_query))
    x, y, x_query = map(np.asarray, (task.x, task.y, task.x_query))
    return wide._replace(task=Task(x, y, x_query, *parts))


def solve(
    division: Division, config: DepthConfig, amplitude: Any, progress: Progress, chosen: Chosen
) -> Answer:
    result = _depth.run(division.task, config, progress, chosen)
    progress("the standard deviations")
    return Answer(division, result, process_of(division, result.kernel, chosen.ridge, amplitude))


def needs_float64(answer: Answer, config: DepthConfig) -> str:
    """Why float32 has too few digits for an answer, or "" if it has enough."""
    facts, process = answer.result.facts, answer.process
    status = facts["status"]
    exact = answer.division.scaling.undo(answer.result.predictions["exact"])
    away = largest((exact - process.mean, process.std))
    if not process.ok or not facts["exact_ok"]:
        return "exact KRR in float32 may be wrong"
    if away > TOLERANCE:
        return (
            f"exact KRR in float32 is up to {100 * away:.2g} % of a standard deviation away from "
            "that in float64"
        )
    wrong = status and not status["ok"]
    if facts["steps_because"] == "nearest" or (config.steps is None and wrong):
        return f"the transformer in float32 misses exact KRR (error {status['error']:.2g})"
    return ""


def process_of(division: Division, kernel: Kernel, ridge: float, amplitude: Any = None) -> Process:
    """The Gaussian process at the queries, with mean, std, amplitude and noise in units of y."""
    unit = float(division.scaling.undo_width(np.ones(())))
    if amplitude is not None:
        amplitude = amplitude / unit / unit
    gaussian_process = process(kernel, division.task, ridge, amplitude)
    if division.filled is not None and gaussian_process.ok:
        gaussian_process = with_drawn_cells(gaussian_process, kernel, division, ridge)
    return gaussian_process.times(unit)._replace(mean=division.scaling.undo(gaussian_process.mean))


DRAWS, MOST_QUERIES = 32, 4096
"""Supports from which missing features are drawn, and queries of one regression."""


def with_drawn_cells(process: Process, kernel: Kernel, division: Division, ridge: float) -> Process:
    r"""The process with standard deviations that know that a feature was missing and filled.

    With D random supports, the predictions $f_d$ and deviations $s_d$ are those of the query whose
    missing features have the values of support d:

    $$s^2 = \frac{1}{D} \sum_d \left(s_d^2 + (f_d - f)^2\right)$$
    """
    parts = division.task.x, division.task.y, division.task.x_query
    x, y, x_query = (np.asarray(part, np.float64) for part in parts)
    filled = np.asarray(division.filled)
    rows = np.flatnonzero(filled.any(axis=1))
    draws = np.random.default_rng(0).permutation(len(x))[:DRAWS]
    points = np.where(filled[rows], x[draws, None], x_query[rows]).reshape(-1, x.shape[1])
    drawn = [
        exactly(kernel, (x, y, points[i : i + MOST_QUERIES]), ridge, process.amplitude)[:2]
        for i in range(0, len(points), MOST_QUERIES)
    ]
    pairs = zip(*drawn, strict=True)
    mean, std = (np.concatenate(parts).reshape(len(draws), -1) for parts in pairs)
    wider = process.std.copy()
    wider[rows] = np.sqrt(np.mean(std**2 + (mean - process.mean[rows]) ** 2, axis=0))
    return process._replace(std=wider)


def predictions(division: Division, result: DepthResult, process: Process) -> list[Prediction]:
    """The predictions of transformer and exact regression for every query, with intervals."""
    task, rows, scaling = division[:3]
    y = np.full(len(rows), np.nan) if task.y_query is None else np.asarray(task.y_query)
    exact, std = scaling.undo(result.predictions["exact"]), process.std
    known = scaling.undo(y), scaling.undo(result.predictions["transformer"]), exact, std
    columns = (*known, exact - WIDTH * std, exact + WIDTH * std)
    lines = zip(division.filled_columns or ("",) * len(rows), rows, *columns, strict=True)
    return [Prediction(int(row), *map(float, cells), filled=names) for names, row, *cells in lines]


def errors(division: Division, result: DepthResult) -> dict[str, float]:
    """Root mean squared errors at the queries by predictor, in units of y; {} if y is unknown."""
    if division.task.y_query is None:
        return {}
    y = np.asarray(division.task.y_query)  # a float64 array of JAX may come from another scope
    roots = {name: np.sqrt(np.mean((result.predictions[name] - y) ** 2)) for name in SHOWN}
    return {name: float(division.scaling.undo_width(root)) for name, root in roots.items()}


def calibration_of(division: Division, predictions: list[Prediction]) -> dict[str, float]:
    """Coverage and log likelihood of known targets, in units of y; {} if there is nothing to judge.

    Either y is unknown, or the deviations are unknown or 0, because the supports' y is constant.
    The log likelihood `constant` is that of the mean and the standard deviation of the supports.
    """
    columns: Any = np.array([(row.y, row.exact, row.std) for row in predictions]).T
    y, exact, std = columns
    if division.task.y_query is None or not np.all(std > 0):
        return {}
    posterior, supports = gaussian(exact, std), np.asarray(division.task.y, np.float64)
    moments = division.scaling.undo(supports.mean()), division.scaling.undo_width(supports.std())
    constant = gaussian(*(np.full_like(y, moment) for moment in moments))
    with jax.enable_x64(True):
        judged = coverage(posterior, y)
        scores = [float(log_likelihood(each, y)) for each in (posterior, constant)]
    counted = {**judged._asdict(), "calibrated": judged.calibrated}
    return {**counted, "log_likelihood": scores[0], "constant": scores[1]}
