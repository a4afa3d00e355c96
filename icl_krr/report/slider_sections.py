"""Sections with sliders: the explorer, and sweeps."""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np

from ..experiments.explorer import Explored
from ..experiments.shared.rows import Rows
from ..plots import explorer_figure
from .page import Figure, Section
from .sliders import Axis, Cell, Sliders

PREDICTORS = {
    "transformer, at this depth and width": ("gap", "rmse"),
    "exact KRR, same temperature and ridge": (None, "exact rmse"),
    "Nadaraya-Watson, same temperature": ("smoother gap", "smoother rmse"),
    "Nadaraya-Watson, temperature by leave-one-out": ("tuned smoother gap", "tuned smoother rmse"),
    "mean of the supports": ("mean gap", "mean rmse"),
    "zero prediction": ("zero gap", "zero rmse"),
}


def explorer_section(found: Explored) -> Section:
    """The explorer: predictions, gaps, bounds and slots at the slider positions."""
    config = found.config
    start = {
        "temperature": nearest_index(config.temperatures, 0.5),
        "ridge": nearest_index(config.ridges, config.noise),
        "width": len(config.widths) - 1,
        "depth": config.steps // 2,
    }
    axes = {
        "temperature": Axis("temperature", tuple(map(str, config.temperatures))),
        "ridge": Axis("ridge / k(x, x)", tuple(map(str, config.ridges))),
        "width": Axis("width (channels)", tuple(str(w or "all") for w in config.widths)),
        "depth": Axis("depth (solver steps)", tuple(map(str, range(config.steps + 1)))),
    }
    figure, moving = explorer_figure(found, start)
    lines: list[list[str | Cell]] = [
        [name, *("0" if data is None else Cell(data, {}) for data in pair)]
        for name, pair in PREDICTORS.items()
    ]
    facts: list[list[str | Cell]] = [
        ["bound on the transformer's gap", Cell("bound", {})],
        ["condition number of K + ridge I", Cell("condition", {})],
        ["effective dimension of K", Cell("dimension", {})],
    ]
    depths = sorted({0, 1, 2, 4, 8, 12, config.steps} & {*range(config.steps + 1)})
    grid: list[list[str | Cell]] = [
        [
            str(depth),
            *(Cell("gap", {"depth": depth, "width": w}) for w in range(len(config.widths))),
        ]
        for depth in depths
    ]
    curves = [name for name in found.arrays if found.arrays[name].ndim > len(found.over[name])]
    numbers = [name for name in found.arrays if name not in curves]
    moved = Sliders(
        name="explorer",
        axes=axes,
        start=start,
        numbers={name: over_and_values(found, name) for name in numbers},
        curves={name: over_and_values(found, name) for name in curves},
        figure=figure,
        moving=moving,
        caption=(
            f"Conjugate gradient as a transformer on one task: n = {config.num_supports} supports "
            f"on the unit circle, {config.num_queries} queries, y from a Gaussian process with "
            f"k(x, x) = 1 at temperature 0.5 and noise variance {config.noise:g}. Top: "
            "predictions. Middle: gaps to exact KRR and the bound on the transformer's gap, "
            "against depth and width. Bottom: the slots alpha, r and p at every support token "
            "after every step, divided by the largest entry of the slot. "
            f"Seed {config.seed}, {found.dtype}."
        ),
        tables=(
            (
                "At these settings: gap |f - f*| / |f*| to exact KRR, and RMSE at the queries "
                "against the true function (units of y)",
                ["predictor", "gap to exact KRR", "RMSE"],
                lines,
            ),
            (
                "Bound on the gap, and condition of the linear system",
                ["", "value"],
                facts,
            ),
            (
                "Gap to exact KRR by depth and width, at this temperature and ridge",
                ["solver steps", *(f"width {w or 'all'}" for w in config.widths)],
                grid,
            ),
        ),
    )
    words = (
        "One softmax head is a Nadaraya-Watson smoother: it predicts a weighted mean of the "
        "outputs. A deep stack of softmax heads runs conjugate gradient on (K + ridge I) alpha = "
        "y. After enough steps, its predictions are those of kernel ridge regression (KRR). Width "
        '"all" is softmax attention on the exponential kernel e^(<x, z> / temperature). Width m '
        "is linear attention on the m Nystrom features with the smallest error in K. Every curve "
        "of the transformer is a forward pass with explicitly constructed weights.",
        "The bound is the sum of two bounds: the convergence rate of conjugate gradient (claim C4) "
        "and the error of m channels (claim C18). It holds on every draw. A bound above 1 is "
        "uninformative, because the zero prediction has gap 1.",
    )
    return Section("explorer", "Temperature, ridge, depth and width", words, (moved,))


def nearest_index(values: tuple[float, ...], wanted: float) -> int:
    return int(np.argmin(np.abs(np.asarray(values) - wanted)))


def over_and_values(found: Explored, name: str) -> tuple[tuple[str, ...], np.ndarray]:
    return found.over[name], found.arrays[name]


def sweep_section(name: str, axis: str, rows: Rows, figure: bytes, provenance: str) -> Section:
    """A sweep: medians over seeds of every line, at each value and step."""
    lines, values, steps = (
        list(dict.fromkeys(row[key] for row in rows)) for key in ("line", "value", "step")
    )
    along_depth = axis == "depth"
    over = ("step",) if along_depth else ("value", "step")
    axes = {"step": Axis("depth (solver steps)", tuple(map(str, steps)))}
    if not along_depth:
        axes = {"value": Axis(axis, tuple(map(str, values)))} | axes
    numbers = {}
    for line in lines:
        here = [row for row in rows if row["line"] == line]
        for quantity in ("gap", "rmse", "exact rmse"):
            found: dict[Any, list[float]] = {}
            for row in here:
                found.setdefault(tuple(row[key] for key in over), []).append(row[quantity])
            # a model with fewer steps, such as one head, keeps its last value
            last = {key[:-1]: key for key in found}
            grid = [(step,) if along_depth else (v, step) for v in values for step in steps]
            grid = grid[: len(steps)] if along_depth else grid
            array = [median(found.get(key) or found[last[key[:-1]]]) for key in grid]
            shape = [len(axes[key].values) for key in over]
            numbers[f"{line}: {quantity}"] = over, np.reshape(array, shape)
    table: list[list[str | Cell]] = [
        [line, *(Cell(f"{line}: {quantity}", {}) for quantity in ("gap", "rmse", "exact rmse"))]
        for line in lines
    ]
    moved = Sliders(
        name=name,
        axes=axes,
        start={key: len(one.values) - 1 for key, one in axes.items()},
        numbers=numbers,
        curves={},
        figure=None,
        moving=[],
        caption="",
        tables=(
            (
                f"Medians over seeds at these settings. {provenance}",
                ["line", "gap to exact KRR", "RMSE", "RMSE of exact KRR"],
                table,
            ),
        ),
    )
    parts = (Figure(figure, f"Medians over seeds against the axis {axis}. {provenance}"), moved)
    return Section(name, f"Sweep over the axis {axis}", (), parts)
