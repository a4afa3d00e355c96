"""`icl-krr sweep`: run a grid of models; finished cells are not computed again."""

from __future__ import annotations

import dataclasses
import sys
from math import isnan
from pathlib import Path
from statistics import median
from typing import Any

import jax.numpy as jnp
from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn

from ... import fields
from ...experiments.shared.rows import Rows
from ...experiments.sweep.config import SweepConfig
from ...experiments.sweep.grid import (
    BASELINES,
    cells,
    last,
    models_of,
    rows_of_a_cell,
    sweep,
)
from ...files import from_json, to_csv
from ...plots import images, sweep_figure
from ...text_tables import Table
from .. import output
from ..csv_rows import is_whole, parse_rows, parse_value
from ..settings.sweep import Sweep

EXTENDS = ("lines", "seed", "seeds")
"""Settings that may differ when a run continues; finished cells do not depend on them."""


def run(settings: Sweep) -> int:
    asked: dict[str, Any] = {
        field.name: value
        for field in dataclasses.fields(SweepConfig)
        if (value := getattr(settings, field.name)) is not None
    }
    asked["values"] = tuple(map(parse_value, settings.values))
    config = SweepConfig(**asked)
    folder = settings.out or Path(f"icl-krr-sweep-{config.axis}")
    output.prepare(folder)
    meta = {
        **output.surroundings(settings),
        "dtype": str(jnp.result_type(float)),
        "config": output.plain(dataclasses.asdict(config)),
    }
    rows = finished_rows(folder, meta, config)
    done = frozenset((row["line"], row["seed"]) for row in rows)
    save_rows(folder, meta, rows)
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with output.progress(*columns) as progress:
        wanted = cells(config)
        bar = progress.add_task("", total=len(wanted), completed=len(done & {*wanted}))
        for (line, seed), found in sweep(config, done):
            progress.update(bar, description=f"{line}, seed {seed}", advance=1)
            rows += found
            save_rows(folder, meta, rows)
    there = rows
    rows = [row for row in there if (row["line"], row["seed"]) in wanted]
    models = models_of(config)
    plot = models.plot
    shown = last(rows) if plot.x == "value" else rows
    figure = sweep_figure(config.axis, plot, shown, meta["dtype"], models.against)
    drawn = images(config.axis, figure)
    output.save(folder, drawn)
    if settings.json:
        print(output.to_json({"meta": with_cells(meta, there), "rows": rows}))
    else:
        print_medians(config, rows)
    names = ", ".join(str(folder / n) for n in ("results.csv", "meta.json", *drawn))
    print(
        f"{len(done & {*wanted})} of {len(wanted)} cells (pairs of line and seed) were "
        f"finished before; wrote {names}",
        file=sys.stderr,
    )
    return 0


def save_rows(folder: Path, meta: dict[str, Any], rows: Rows) -> None:
    files = {"meta.json": (output.to_json(with_cells(meta, rows)) + "\n").encode()}
    output.save(folder, files | ({"results.csv": to_csv(rows)} if rows else {}))


def with_cells(meta: dict[str, Any], rows: Rows) -> dict[str, Any]:
    """Add the list of the cells in results.csv, including cells of earlier runs."""
    done = dict.fromkeys((row["line"], row["seed"]) for row in rows)
    return {**meta, "cells": [{"line": line, "seed": seed} for line, seed in done]}


def finished_rows(folder: Path, meta: dict[str, Any], config: SweepConfig) -> Rows:
    """The finished cells of an earlier run of this sweep; ValueError if the settings differ."""
    if not (folder / "results.csv").exists():
        return []
    try:
        before = from_json((folder / "meta.json").read_text())
        there = {**before["config"], "dtype": before["dtype"]}
        rows = parse_rows(folder / "results.csv")
        by_cell: dict[Any, Rows] = {}
        for row in rows:
            by_cell.setdefault((row["line"], row["seed"]), []).append(row)
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(
            f"{folder} must be empty or hold a sweep, got other files; choose another --out"
        ) from None
    here = {**meta["config"], "dtype": meta["dtype"]}
    differs = [
        f"{name}: stored {fields.shown(there.get(name))}, given {fields.shown(here[name])}"
        for name in here
        if name not in EXTENDS and there.get(name) != here[name]
    ]
    if differs:
        raise ValueError(
            f"{folder} holds a sweep with other settings: {'; '.join(differs)}; "
            "choose another --out"
        )
    return [
        row
        for (line, _), cell in by_cell.items()
        if len(cell) == rows_of_a_cell(config, line)
        and all(map(is_whole, cell))
        and "exact gap" in cell[0]  # earlier versions measured no baselines
        for row in cell
    ]


def print_medians(config: SweepConfig, rows: Rows) -> None:
    """Print the medians over seeds at the last step, of every line and of the baselines."""
    final = last(rows)
    values = list(dict.fromkeys(row["value"] for row in final))
    shown = [*values[: -1 : -(-len(values) // 5)], values[-1]]

    def medians(name: str, column: str, among: Rows) -> list[str]:
        gaps = [[row[column] for row in among if row["value"] == value] for value in shown]
        return [name, *("-" if isnan(gap[0]) else f"{median(gap):.2g}" for gap in gaps)]

    names = list(dict.fromkeys(row["line"] for row in final))
    lines = [medians(name, "gap", [row for row in final if row["line"] == name]) for name in names]
    baselines = [medians(name, f"{name} gap", final) for name in BASELINES if name not in names]
    against = models_of(config).against
    title = f"{config.axis}: gap to {against} |f - f*| / |f*|, median over seeds"
    header = [f"line, {config.axis}", *map(str, shown)]
    console = output.wide()
    console.print(Table(title, header, [lines, baselines], tuple(header[2:-1]), "results.csv"))
    console.print(
        "zero, mean, nadaraya_watson and exact are the predictions 0, the mean of y, the "
        "Nadaraya-Watson estimator (for a positive kernel) and exact KRR. "
        "results.csv has all values, steps and errors."
    )
