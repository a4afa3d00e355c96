"""Verdicts on the models of SolverBench: a table of them, and those of `identify`."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...catalogue import candidate
from ...probes import Identification, identify_arrays
from ...probes._naming.identification import IDENTIFIED, NEAR, TIED
from ...tasks import Task
from .._study import Cell, Study
from ._load import Manifest, Submitted
from ._models import Answers

COLUMNS = ("model", "status", "names")
NONE = "none"
STATUSES = (IDENTIFIED, TIED, NEAR, NONE)
"""One solver; one of several; no solver, but this one is nearest; no solver."""
ALSO_NONE = ("none is close", "not identified", "")


class Verdict(NamedTuple):
    """What a participant says of a model."""

    status: str  # one of `STATUSES`
    names: tuple[str, ...] = ()  # names of solvers; none for "none"


def read_verdicts(path: Path, models: Mapping[str, Any]) -> dict[str, Verdict]:
    """Read a CSV table with the columns model, status and names (separated by spaces)."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header, rows = reader.fieldnames or (), [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} must be comma-separated UTF-8 text: {error}") from None
    if missing := [name for name in COLUMNS if name not in header]:
        raise ValueError(f"{path} must have the columns {', '.join(COLUMNS)}, got no {missing[0]}")
    verdicts: dict[str, Verdict] = {}
    for line, row in rows:
        where = f"{path}, line {line}"
        if row["model"] not in models:
            raise ValueError(f"{where}: model must be a model of the labels, got {row['model']!r}")
        if row["model"] in verdicts:
            raise ValueError(f"{where}: model must have one line, got {row['model']!r} again")
        verdicts[row["model"]] = _read_verdict(row, where)
    if absent := [name for name in models if name not in verdicts]:
        raise ValueError(
            f"{path} must have a line for every model, got none for {len(absent)} of {len(models)} "
            f'models, such as {absent[0]}; write "none" where you name no solver'
        )
    return {name: verdicts[name] for name in models}


def _read_verdict(row: Mapping[str, str], where: str) -> Verdict:
    words = " ".join((row["status"] or "").replace("_", " ").lower().split())
    status = NONE if words in ALSO_NONE else words
    if status not in STATUSES:
        raise ValueError(f"{where}: status must be {', '.join(STATUSES)}, got {row['status']!r}")
    try:
        names = tuple(candidate(name).name for name in (row["names"] or "").split())
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    if status == NONE:
        return Verdict(NONE)
    count = "two or more names" if status == TIED else "one name"
    if (len(names) < 2) if status == TIED else (len(names) != 1):
        raise ValueError(f"{where}: names must be {count} for {status!r}, got {len(names)}")
    return Verdict(status, names)


def identify_answers(tasks: Task, answers: Answers, **options: Any) -> Identification | None:
    """Identify a model, with options of `identify`; None if its answers are not finite."""
    if not all(np.isfinite(values).all() for values in answers):
        return None
    return identify_arrays(tasks, *answers, **options)


def verdict_of(result: Identification | None) -> Verdict:
    """The verdict in the words of SolverBench."""
    if result is None or result.status not in (IDENTIFIED, TIED, NEAR):
        return Verdict(NONE)
    names = result.remain if result.status != NEAR else (result.best.fit.candidate,)
    return Verdict(result.status, names)


def identification_study(manifest: Manifest, models: list[Submitted], seed: int) -> Study:
    """A cell is a model: its verdict and nearest candidate."""
    named = {one.name: one for one in models}

    def measure(cell: Cell) -> dict[str, Any]:
        one = named[cell["model"]]
        try:
            return verdict_row(identify_answers(one.tasks, one.answers, seed=seed))
        except ValueError as error:  # answers of other shapes than the tasks ask for
            raise ValueError(f"{one.name}: {error}") from None

    settings = {"config": asdict(manifest["config"]), "sha256": manifest["sha256"], "seed": seed}
    name, axes = "identification of SolverBench", {"model": sorted(named)}
    return Study(name, settings, axes, measure, files=("verdicts.csv",))


def verdict_row(result: Identification | None) -> dict[str, Any]:
    """The verdict as a line of a table, with the distances of the nearest candidate."""
    verdict = verdict_of(result)
    row: dict[str, Any] = {"status": verdict.status, "names": " ".join(verdict.names)}
    if result is None:
        return row
    best = result.best
    distances = {space: gap.mean for space, gap in best.distances.items()}
    return row | {"nearest": best.fit.candidate, "kernel": best.fit.kernel, **distances}
