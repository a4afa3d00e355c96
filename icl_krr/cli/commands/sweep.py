"""`icl-krr sweep`: run a grid of models; finished cells are not computed again."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from ... import fields
from ...catalogue import AXES
from ...catalogue.choices import Axis
from ...experiments.sweep.config import SweepConfig, kernel_for
from ...files import from_csv, number_of, to_csv
from ...text_tables import Table
from .. import output
from ..options import ONE_DEVICE, Command, OnDevices, checked, refuse_unused
from ..own_solver import register_file

if TYPE_CHECKING:
    from ...experiments.shared.rows import Rows

EXTENDS = ("lines", "seed", "seeds")
"""Settings that may differ when a run continues; finished cells do not depend on them."""

EIGENVALUES = "d_eff is tr K inv(K + ridge I), tail the sum of the lost eigenvalues over tr K. "


@dataclass(frozen=True)
class Sweep(Command, SweepConfig):
    """Vary one quantity and compare constructed transformers with exact KRR at every depth. If a
    sweep is interrupted, the same command continues it. The same command with more --lines or more
    seeds adds the new results to the finished results. In float32, curves of conjugate gradient
    are rough at depths before it has converged, because it amplifies rounding errors;
    JAX_ENABLE_X64=1 makes them smooth."""

    axis: tyro.conf.Positional[Axis] = tyro.MISSING
    """Quantity to vary."""
    values: tuple[str, ...] = ()
    """Values of the quantity. If empty, a default grid is used."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Path | None = None
    """Folder for results.csv, meta.json and the figure. If None, icl-krr-sweep-AXIS."""
    devices: OnDevices = ONE_DEVICE

    def refuse_options_without_effect(self) -> None:
        axis = AXES[self.axis]
        linear = kernel_for(axis, self.kernel) == "linear"
        unused = [name for name in axis.unused if linear or name != "temperature"]
        refuse_unused(self, tuple(unused), f"along the axis {axis.name!r}, which does not use it")


def run(settings: Sweep) -> int:
    import jax.numpy as jnp

    from ...experiments.sweep.grid import cells, last, models_of, sweep
    from ...plots import images, sweep_figure

    values, lines = map(number_of, settings.values), map(register_file, settings.lines)
    config = checked(settings, SweepConfig, values=tuple(values), lines=tuple(lines))
    folder = settings.out or Path(f"icl-krr-sweep-{config.axis}")
    output.prepare(folder)
    dtype = str(jnp.result_type(float))
    meta = output.surroundings(settings, dtype=dtype, config=output.plain(asdict(config)))
    rows = finished_rows(folder, meta, config)
    done = frozenset((row["line"], row["seed"]) for row in rows)
    save_rows(folder, meta, rows)
    with output.count() as progress:
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
    drawn = images(config.axis, sweep_figure(config.axis, plot, shown, dtype, models.against))
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
    files = {"meta.json": output.json_file(with_cells(meta, rows))}
    output.save(folder, files | ({"results.csv": to_csv(rows)} if rows else {}))


def with_cells(meta: dict[str, Any], rows: Rows) -> dict[str, Any]:
    """Add the list of the cells in results.csv, including cells of earlier runs."""
    done = dict.fromkeys((row["line"], row["seed"]) for row in rows)
    return {**meta, "cells": [{"line": line, "seed": seed} for line, seed in done]}


def finished_rows(folder: Path, meta: dict[str, Any], config: SweepConfig) -> Rows:
    """The finished cells of an earlier run of this sweep; ValueError if the settings differ."""
    from ...experiments.sweep.grid import is_whole, rows_of_a_cell

    if not (folder / "results.csv").exists():
        return []
    try:
        before = json.loads((folder / "meta.json").read_text())
        there = {**before["config"], "dtype": before["dtype"]}
        earlier = before.get("own_solvers", {})
        meta["own_solvers"] = earlier | meta["own_solvers"]
        rows = from_csv(folder / "results.csv")
        by_cell: dict[Any, Rows] = {}
        for row in rows:
            if meta["own_solvers"].get(row["line"]) == earlier.get(row["line"]):
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
        if len(cell) == rows_of_a_cell(config, line) and all(map(is_whole, cell))
        for row in cell
    ]


def print_medians(config: SweepConfig, rows: Rows) -> None:
    """Print the medians over seeds at the last step, of every line and of the baselines."""
    from statistics import median

    from ...experiments.sweep.grid import BASELINES, last, models_of

    final = last(rows)
    values = list(dict.fromkeys(row["value"] for row in final))
    shown = [*values[: -1 : -(-len(values) // 5)], values[-1]]

    def medians(name: str, column: str, among: Rows) -> list[str]:
        gaps = [[row[column] for row in among if row["value"] == value] for value in shown]
        return [name, *("-" if isnan(gap[0]) else f"{median(gap):.2g}" for gap in gaps)]

    names = list(dict.fromkeys(row["line"] for row in final))
    lines = [medians(name, "gap", [row for row in final if row["line"] == name]) for name in names]
    baselines = [medians(name, f"{name} gap", final) for name in BASELINES if name not in names]
    known = [medians(name, name, final) for name in ("d_eff", "tail") if final[0][name] >= 0]
    against = models_of(config).against
    title = f"{config.axis}: gap to {against} |f - f*| / |f*|, median over seeds"
    header = [f"line, {config.axis}", *map(str, shown)]
    console = output.wide()
    console.print(Table(title, header, [lines, baselines, known]))
    console.print(
        "zero, mean, nadaraya_watson and exact are the predictions 0, the mean of y, the "
        "Nadaraya-Watson estimator (for a positive kernel) and exact KRR. "
        f"{EIGENVALUES if known else ''}results.csv has all values, steps and errors."
    )
