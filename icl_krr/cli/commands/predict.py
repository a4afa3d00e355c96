"""`icl-krr predict`: predictions for the rows of one's own table."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from rich.console import Console

from ...experiments.predictions import calibration_of, errors, predictions
from ...experiments.process import TOLERANCE, Process, process
from ...experiments.shared.rows import Rows
from ...fields import cut
from ...files import to_csv
from ...tasks import Queries, Table as TableOfNumbers, read_queries, read_table
from ...tasks.division import Division, divide, usual_supports
from ...text_tables import Table, number
from .. import output
from ..depth_tables import depth_config, files_of, json_of, meta_of, print_tables, solve
from ..settings.predict import Predict

SHOWN = 10
"""The number of predictions that the command prints."""


def run(settings: Predict) -> int:
    config = depth_config(settings, centred=True)
    if settings.out is not None:
        output.prepare(settings.out)
    division, doubts = read_task(settings)
    name = settings.table.name
    results = solve({name: (division.task, config)})
    with Console(stderr=True).status(f"{name}: the transformer of the standard deviations"):
        gaussian = process(results[name].kernel, division.task, results[name].facts["ridge"])
    for words in [*doubts, *doubts_of_process(gaussian)]:
        print(words, file=sys.stderr)
    found = predictions(division, results[name], gaussian)
    rmse, calibration = errors(division, results[name]), calibration_of(division, gaussian)
    rows = [row._asdict() for row in found]
    if division.task.y_query is None:
        rows = [{name: value for name, value in row.items() if name != "y"} for row in rows]
    meta = meta_of(settings, results) | {
        "target": settings.target,
        "rmse": rmse,
        "process": gaussian.facts,
        "calibration": calibration,
    }
    if settings.out is not None:
        files = {"predictions.csv": to_csv(rows), **files_of(settings, results, meta)}
        output.write(settings.out, files)
    if settings.json:
        record = {"meta": meta, "predictions": rows, "results": json_of(results)}
        print(output.to_json(record))
    else:
        print_predictions(settings, rows, rmse, gaussian, calibration)
        print_tables(results, settings.seed)
    return 0


def read_task(settings: Predict) -> tuple[Division, list[str]]:
    """The task, and what makes its predictions doubtful."""
    table = read_table(settings.table, settings.target, settings.encode, settings.missing)
    if len(table) < 2:
        raise ValueError(f"{settings.table} must hold at least 2 rows, got {len(table)}")
    queries = None
    if settings.queries is not None:
        queries = read_queries(settings.queries, table, settings.missing)
    supports = settings.supports
    if supports is None:
        supports = usual_supports(table, queries)
    if supports < 2:
        raise ValueError(f"supports must be >= 2, got {supports}; one row does not show a spread")
    division = divide(table, supports, settings.seed, queries)
    doubts = [*about_missing(settings.table, table), *about_missing(settings.queries, queries)]
    doubts += doubts_of(division, table)
    if queries and queries.unseen:
        doubts.append(
            f"{settings.queries} has text that the table does not have, whose features are all 0: "
            f"{cut(', '.join(queries.unseen))}"
        )
    return division, doubts


def about_missing(path: Path | None, part: TableOfNumbers | Queries | None) -> list[str]:
    """Sentences on rows that were left out, and on cells that were filled."""
    words = []
    if part and part.dropped:
        rows = ", ".join(map(str, part.dropped[:SHOWN]))
        more = ", ..." if len(part.dropped) > SHOWN else ""
        words.append(f"{path}: rows left out for missing cells: {len(part.dropped)} ({rows}{more})")
    if part and part.filled:
        words.append(
            f"{path}: missing cells filled: {part.filled} (numbers with their column's median)"
        )
    return words


def doubts_of(division: Division, table: TableOfNumbers) -> list[str]:
    """Sentences on columns that do not vary, and on queries far away from the supports."""
    x, x_query = (np.abs(np.asarray(part)) for part in (division.task.x, division.task.x_query))
    reach, words = x.max(axis=0), []
    names = np.asarray(table.features, object)
    if not np.any(np.asarray(division.task.y)):
        words.append(f"{table.target} is constant in the supports, so that every interval is empty")
    if np.any(reach == 0):
        words.append(f"constant in the supports: {cut(', '.join(names[reach == 0]))}")
    far = x_query > 2 * reach
    if far.any():
        rows = division.rows[far.any(axis=1)]
        words.append(
            f"{len(rows)} queries are more than twice as far from the mean as any support, such as "
            f"row {rows[0]}, in {cut(', '.join(names[far.any(axis=0)]))}; do not trust their "
            "predictions"
        )
    return words


def doubts_of_process(gaussian: Process) -> list[str]:
    if gaussian.error <= TOLERANCE:
        return []
    if not np.isfinite(gaussian.error):
        return [
            "the standard deviations are not known, because numbers overflow; give --ridge and the "
            "bandwidth, or set JAX_ENABLE_X64=1"
        ]
    return [
        "mean and standard deviation of the transformer differ from the exact ones by up to "
        f"{100 * gaussian.error:.1f} % of the standard deviation; use a larger --ridge or "
        "JAX_ENABLE_X64=1"
    ]


def print_predictions(
    settings: Predict,
    found: Rows,
    rmse: dict[str, float],
    gaussian: Process,
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
        "exact: exact KRR. mean, std: mean and standard deviation of a new y under the Gaussian "
        f"process of the same kernel and ridge, from a transformer of {gaussian.blocks} blocks "
        "(prefix_posterior), whose predictions at the supports give the scale of the process. "
        "low, high: 95 % interval, mean -+ 1.96 std\n"
    )
    if rmse:
        each = ", ".join(f"{name} {number(value, 4)}" for name, value in rmse.items())
        words += judged(found, calibration)
        words += f"RMSE in units of {settings.target}: {each}\n"
    if settings.out is None and len(found) > SHOWN:
        words += "--out FOLDER writes all predictions to predictions.csv\n"
    console.print(words)


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
