"""Predictions and intervals for a table, computed in as many digits as they need."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from ..tasks import Task
from ..tasks.division import Division
from . import depth
from .depth_config import Chosen, DepthConfig, choose
from .predictions import process_of
from .process import TOLERANCE, Process, largest
from .shared.model_selection import Progress, computable, silent


class Answer(NamedTuple):
    """The answer to the queries of a table.

    Attributes:
        division: the table as a task, in the dtype that was used.
        result: the transformer and the baselines. What cannot be trusted is NaN.
        process: the Gaussian process at the queries, in the units of y.
        wider: why float64 was used instead of the default dtype; "" if it was not.
    """

    division: Division
    result: depth.DepthResult
    process: Process
    wider: str = ""


def answer(
    wide: Division,
    config: DepthConfig,
    amplitude: float | None = None,
    progress: Progress = silent,
) -> Answer:
    """Answer in JAX's default dtype, and in float64 if the default is float32 and not enough.

    The division is in float64. Hyperparameters are chosen once, for both.
    """
    division = narrow(wide)
    depth.check_size(division.task)
    with jax.enable_x64(True):
        chosen = choose(wide.task, config, progress)
        fits = computable(chosen.kernels.regression, wide.task)
    wider = ""
    if division.task.x.dtype == np.float32:
        if fits:
            found = solve(division, config, amplitude, progress, chosen)
            wider = lacking(found, config)
            if not wider:
                return found
        else:
            wider = "values of the kernel are too large for float32"
    with jax.enable_x64(True):
        found = solve(wide, config, amplitude, progress, chosen)
    return without_doubtful(found, config)._replace(wider=wider)


def without_doubtful(found: Answer, config: DepthConfig) -> Answer:
    """The answer with NaN for what is not the regression that was asked for."""
    facts, known = found.result.facts, found.result.predictions
    exact, status = facts["exact_ok"], facts["status"]
    near = status is None or (exact and (config.steps is not None or status["ok"]))
    names = ("exact",) * (not exact) + ("transformer",) * (not near)
    lost = {name: np.full_like(known[name], np.nan) for name in names}
    return found._replace(result=found.result._replace(predictions=known | lost))


def narrow(wide: Division) -> Division:
    """The division in JAX's default dtype."""
    task = wide.task
    parts = (None if part is None else np.asarray(part) for part in (task.mask, task.y_query))
    x, y, x_query = map(np.asarray, (task.x, task.y, task.x_query))
    return wide._replace(task=Task(x, y, x_query, *parts))


def solve(
    division: Division,
    config: DepthConfig,
    amplitude: float | None,
    progress: Progress,
    chosen: Chosen,
) -> Answer:
    result = depth.run(division.task, config, progress, chosen)
    progress("the standard deviations")
    found = process_of(division, result.kernel, chosen.ridge, amplitude)
    return Answer(division, result, found)


def lacking(found: Answer, config: DepthConfig) -> str:
    """Why float32 has too few digits for an answer, or "" if it has enough."""
    facts, process = found.result.facts, found.process
    status, exact = facts["status"], found.division.scaling.undo(found.result.predictions["exact"])
    away = largest((exact - process.mean, process.std))
    if not process.ok or not facts["exact_ok"]:
        return "exact KRR in float32 may be wrong"
    if away > TOLERANCE:
        return (
            f"exact KRR in float32 is up to {100 * away:.2g} % of a standard deviation away from "
            "that in float64"
        )
    if config.steps is None and status and not status["ok"]:
        return f"the transformer in float32 does not come near exact KRR (gap {status['gap']:.2g})"
    return ""
