"""`icl-krr sweep`: run a grid of models; finished cells are not computed again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from ..._core.files import _parse_number, plain
from ..._core.text_tables import TextTable
from ...catalogue._choices import AxisName
from ...experiments._sweep.settings import SweepSettings
from .._options import ONE_DEVICE, Command, OnDevices, checked, refuse_unused
from .._output import Outcome, working
from .._user_solver import register_file

if TYPE_CHECKING:
    from ...experiments._shared.rows import Rows
    from ...experiments._sweep.config import SweepConfig

EIGENVALUES = "d_eff is tr K inv(K + ridge I), tail the sum of the lost eigenvalues over tr K. "


@dataclass(frozen=True)
class Sweep(Command, SweepSettings):
    """Vary one quantity and compare constructed transformers with exact KRR at every depth. If a
    sweep is interrupted, the same command continues it. The same command with more --lines or more
    seeds adds the new results to the finished results. In float32, curves of conjugate gradient
    are rough at depths before it has converged, because it amplifies rounding errors;
    JAX_ENABLE_X64=1 makes them smooth."""

    axis: tyro.conf.Positional[AxisName] = tyro.MISSING
    """Quantity to vary."""
    values: tuple[str, ...] = ()
    """Values of the quantity. If empty, a default grid is used."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Path | None = None
    """Folder for results.csv, meta.json and the figure. If None, icl-krr-sweep-AXIS."""
    devices: OnDevices = ONE_DEVICE

    @property
    def folder(self) -> Path:
        return self.out or Path(f"icl-krr-sweep-{self.axis}")

    def refuse_options_without_effect(self) -> None:
        from ...experiments._sweep.config import axis_of, kernel_for

        linear = kernel_for(self.axis, self.kernel) == "linear"
        every = axis_of(self.axis).unused
        unused = [name for name in every if linear or name != "temperature"]
        refuse_unused(self, tuple(unused), f"along the axis {self.axis!r}, which does not use it")


def run(settings: Sweep) -> Outcome:
    import jax.numpy as jnp

    from ...experiments import _study
    from ...experiments._sweep import grid
    from ...experiments._sweep.config import SweepConfig, axis_of
    from ...plots import sweep_figure

    values, lines = map(_parse_number, settings.values), map(register_file, settings.lines)
    config = checked(settings, SweepConfig, values=tuple(values), lines=tuple(lines))
    with working(settings) as show:
        work = _study.run(grid.study(config), settings.folder, show)
    rows = [row for _, cell in work.cells for row in cell]
    axis, dtype = axis_of(config.axis), str(jnp.result_type(float))
    sources = {one["cell"]["line"]: one["source"] for one in work.records if one["source"]}
    drawn = grid.last(rows) if axis.plot.x == "value" else rows
    return Outcome(
        {"rows": rows},
        summary(config, rows),
        {
            "results.csv": [row for one in work.records for row in one["result"]],
            "meta.json": {},
            config.axis: partial(sweep_figure, config.axis, axis.plot, drawn, dtype, axis.against),
        },
        {
            "dtype": dtype,
            "config": plain(asdict(config)),
            "own_solvers": sources,
            "cells": [one["cell"] | {"rows": len(one["result"])} for one in work.records],
        },
        [f"{work.before} of {len(work.cells)} cells (pairs of line and seed) were finished before"],
    )


def summary(config: SweepConfig, rows: Rows) -> tuple[TextTable, str]:
    """The medians over seeds at the last step, of every line and of the baselines."""
    from statistics import median

    from ...experiments._sweep.config import axis_of
    from ...experiments._sweep.grid import BASELINES, last

    final = last(rows)
    values = list(dict.fromkeys(row["value"] for row in final))
    columns = [*values[: -1 : -(-len(values) // 5)], values[-1]]

    def medians(name: str, column: str, among: Rows) -> list[str]:
        gaps = [[row[column] for row in among if row["value"] == value] for value in columns]
        return [name, *("-" if isnan(gap[0]) else f"{median(gap):.2g}" for gap in gaps)]

    names = list(dict.fromkeys(row["line"] for row in final))
    lines = [medians(name, "gap", [row for row in final if row["line"] == name]) for name in names]
    baselines = [medians(name, f"{name} gap", final) for name in BASELINES if name not in names]
    spectrum = [medians(name, name, final) for name in ("d_eff", "tail") if final[0][name] >= 0]
    against = axis_of(config.axis).against
    title = f"{config.axis}: gap to {against} |f - f*| / |f*|, median over seeds"
    header = [f"line, {config.axis}", *map(str, columns)]
    return (
        TextTable(title, header, [lines, baselines, spectrum]),
        "zero, mean, nadaraya_watson and exact are the predictions 0, the mean of y, the "
        "Nadaraya-Watson estimator (for a positive kernel) and exact KRR. "
        f"{EIGENVALUES if spectrum else ''}results.csv has all values, steps and errors.",
    )
