"""`icl-krr predict`: predictions for the rows of one's own table."""

from __future__ import annotations

import math
import sys

import jax
from rich.console import Console

from ... import checks
from ...experiments.answer import Answer, answer
from ...experiments.predictions import calibration_of, errors, predictions
from ...experiments.shared.rows import Rows
from ...files import to_csv
from ...text_tables import Table, number
from .. import output
from ..depth_tables import depth_config, files_of, json_of, meta_of, print_tables
from ..settings.predict import Predict
from ..table_task import doubts_of_answer, read_task

SHOWN = 10
"""The number of predictions that the command prints."""


def run(settings: Predict) -> int:
    config = depth_config(settings, centred=True)
    if settings.amplitude is not None:
        checks.positive_scalar("amplitude", settings.amplitude)
    if settings.out is not None:
        output.prepare(settings.out)
    with jax.enable_x64(True):
        division, doubts = read_task(settings)
    name = settings.table.name
    with Console(stderr=True).status("") as status:
        found = answer(
            division,
            config,
            settings.amplitude,
            lambda doing: status.update(f"{name}: {doing}"),
        )
    for words in [*doubts, *doubts_of_answer(found)]:
        print(words, file=sys.stderr)
    each, results = predictions(found.division, found.result, found.process), {name: found.result}
    rmse, calibration = errors(found.division, found.result), calibration_of(found.division, each)
    rows = [row._asdict() for row in each]
    if division.task.y_query is None:
        rows = [{name: value for name, value in row.items() if name != "y"} for row in rows]
    meta = meta_of(settings, results) | {
        "target": settings.target,
        "rmse": rmse,
        "process": found.process.facts,
        "float64_because": found.wider,
        "calibration": calibration,
    }
    if settings.out is not None:
        cells = [
            {n: "" if math.isnan(value) else value for n, value in row.items()} for row in rows
        ]
        files = {"predictions.csv": to_csv(cells), **files_of(settings, results, meta)}
        output.write(settings.out, files)
    if settings.json:
        record = {"meta": meta, "predictions": rows, "results": json_of(results)}
        print(output.to_json(record))
    else:
        print_predictions(settings, rows, rmse, found, calibration)
        print_tables(results, settings.seed)
    return 0


def print_predictions(
    settings: Predict,
    found: Rows,
    rmse: dict[str, float],
    answer: Answer,
    calibration: dict[str, float],
) -> None:
    count = f"first {SHOWN} of {len(found)}" if len(found) > SHOWN else f"all {len(found)}"
    lines = [
        [str(value) if name == "row" else number(value, 5) for name, value in row.items()]
        for row in found[:SHOWN]
    ]
    title = f"predictions of {settings.target} ({count} queries)"
    console = output.wide()
    console.print(Table(title, list(found[0]), [lines]))
    source = settings.table if settings.queries is None else settings.queries
    words = (
        f"row: number of the row in {source.name}\n"
        "exact: exact KRR. std: standard deviation of a new y under the Gaussian process of the "
        f"same kernel and ridge, from {answer.process.source}. low, high: 95 % interval of a new "
        f"y, exact -+ 1.96 std{of_what(answer)}\n"
        f"{amplitude_of(settings, answer)}"
    )
    if rmse:
        each = ", ".join(f"{name} {number(value, 4)}" for name, value in rmse.items())
        words += judged(found, calibration)
        words += f"RMSE in units of {settings.target}: {each}\n"
    if settings.out is None and len(found) > SHOWN:
        words += "--out FOLDER writes all predictions to predictions.csv\n"
    console.print(words)


def of_what(answer: Answer) -> str:
    """What the intervals are not of, if the transformer does not approximate exact KRR."""
    if answer.result.facts["status"] is not None:
        return ""
    return "; this is the interval of the regression, not of the transformer"


def amplitude_of(settings: Predict, answer: Answer) -> str:
    """The amplitude of the prior, and where it comes from."""
    if not answer.process.ok:
        return ""
    how = "estimated from the supports by maximum likelihood"
    if settings.amplitude is not None:
        how = "given"
    found = answer.process
    amplitude, noise = (number(float(value), 4) for value in (found.amplitude, found.noise))
    return (
        f"amplitude of the prior: {amplitude}, {how}: the covariance is {amplitude} k(x, z), and "
        f"the variance of the noise {noise}\n"
    )


def judged(found: Rows, calibration: dict[str, float]) -> str:
    """What known targets say about the intervals; nothing if there are no intervals."""
    if not calibration:
        return ""
    inside = sum(row["low"] <= row["y"] <= row["high"] for row in found)
    low, high = (number(100 * calibration[end], 3) for end in ("low", "high"))
    narrow = calibration["fraction"] < calibration["level"]
    verdict = (
        "not distinguishable from 95 %"
        if calibration["calibrated"]
        else f"not 95 %: the intervals are too {'narrow' if narrow else 'wide'}"
    )
    return (
        f"{inside} of {len(found)} intervals contain y: a coverage of {low} to {high} % (95 % "
        f"confidence, independent rows), {verdict}\n"
        f"log likelihood of a y: {number(calibration['log_likelihood'], 4)}; with the mean and the "
        f"deviation of the supports: {number(calibration['constant'], 4)}\n"
    )
