"""The section on excess errors of trained models against depth and updates, beside solvers."""

from __future__ import annotations

from itertools import product
from typing import Any

import altair as alt
import numpy as np

from ..catalogue import SOLVERS
from ..experiments import _scaling as scaling
from ..experiments._curves import Curves
from ..experiments._shared.rows import Rows, cut
from ._chart import INK, PALETTE, Board, BoardTable, Chart, Line, three_digits
from ._marks import curves, log_axis
from ._page import Section

TRAINED = "trained decoder"
LEAST = 1e-3
"""The least excess that the charts show."""
WORDS = (
    "The excess error of a prediction is its mean squared error at the queries, divided by that of "
    "exact kernel ridge regression, minus 1. Trained models are compared with solvers that have "
    "the kernel and the ridge of the tasks. The other parameters of a solver, such as its step "
    "size, have the least error on other tasks, separately for every number of steps t. Newton-"
    "Schulz iteration starts from one gradient step, and runs on features only.",
)


def scaling_section(models: Rows, key: tuple, solver_curves: Curves, provenance: str) -> Section:
    """Excess errors of the stages of models, and of solvers on the tasks with a key."""
    facts = ", ".join(f"{name} {v:g}" for name, v in zip(scaling.TASK_SETTINGS, key, strict=True))
    solvers = {name.replace("_", " "): solver_curves.excess(name) for name in solver_curves.squares}
    styles = product(("1 0", "5 1"), PALETTE)
    lines = {name: Line(color, dash) for name, (dash, color) in zip(solvers, styles, strict=False)}
    drawn: list[dict[str, Any]] = [
        {"line": name, "x": t, "value": float(value)}
        for name, curve in solvers.items()
        for t, value in enumerate(curve)
        if t
    ]
    limit, sentence = cut(
        [(one["line"], one["value"]) for one in drawn],
        float(np.median([curve[0] for curve in solvers.values()])),  # where most solvers start
    )
    words = [*WORDS, *([sentence] if sentence else [])]
    last = [row for row in scaling.last_stages(models) if scaling.task_settings(row) == key]
    for row in last:
        drawn.append({"line": TRAINED, "x": row["depth"], "value": row["excess"]})
    lines[TRAINED] = Line(INK, "1 0", 3)
    names = dict.fromkeys(row["model"] for row in models)
    styles = product(("1 0", "5 1"), PALETTE)
    stages = {name: Line(color, dash) for name, (dash, color) in zip(names, styles, strict=False)}
    along = [{"line": row["model"], "x": row["updates"], "value": row["excess"]} for row in models]
    charts = (
        chart("steps t of a solver, or depth of a model", "depth", limit, drawn, lines),
        chart("updates", "updates", limit, along, stages),
    )
    board = Board(
        charts,
        caption=f"First chart: {facts}. {provenance}",
        tables=(table(models, key, solver_curves),),
    )
    blocks = {name: SOLVERS[name].blocks.get("softmax", 1) for name in solver_curves.squares}
    counts = ", ".join(f"{n} for {name.replace('_', ' ')}" for name, n in blocks.items() if n > 1)
    words.insert(1, f"A step is one block of a constructed transformer, but {counts}.")
    title = "Errors of trained models"
    return Section("scaling", title, tuple(words), (board,))


def chart(words: str, axis: str, limit: float, points: Rows, lines: dict[str, Line]) -> Chart:
    points = [one for one in points if LEAST <= one["value"] <= limit]
    along = [one["x"] for one in points]
    low = min(along, default=1)
    x = alt.X("x:Q", title=words, **log_axis((), low, max([*along, 2 * low])))
    y = log_axis(one["value"] for one in points)
    about = f"Lines of the excess error over exact regression against {words}, in log scales."
    title = f"Excess error against {axis}"
    return curves(title, about, points, x, y, lines, marked=True, height=240)


def table(models: Rows, key: tuple, solver_curves: Curves) -> BoardTable:
    """A line for each model; solvers are compared with those of one family of tasks."""
    header = ["model", "p", "N", "depth", "width", "updates", "excess"]
    lines = []
    for row in models:
        parts = ("num_features", "num_supports", "depth", "width", "updates")
        sizes = (str(row[part]) for part in parts)
        excess = three_digits(row["excess"])
        comparable = scaling.task_settings(row) == key
        same = scaling.equivalents(solver_curves, row).values() if comparable else ()
        steps = [scaling.format_steps(one) for one in same] or ["-"] * len(solver_curves.squares)
        lines.append([row["model"], *sizes, excess, *steps])
    caption = "Excess errors of trained models, and steps of solvers with the same excess"
    header += [name.replace("_", " ") for name in solver_curves.squares]
    return BoardTable(caption, header, lines)
