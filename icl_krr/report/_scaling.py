"""The section on excess errors of trained models against their sizes, beside those of solvers."""

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
    """Excess errors of models with their `dimension`, and of solvers on the tasks with a key."""
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
    zero = float(np.median([curve[0] for curve in solvers.values()]))  # where most solvers start
    charts: list[Chart] = []
    words: list[str] = [*WORDS]
    for axis in scaling.AXIS_SETTINGS:
        points, lines_of_chart = (drawn, dict(lines)) if axis == "depth" else ([], {})
        dashes = iter(("1 0", "6 3", "2 3", "9 2"))
        for group, rows in scaling.by_architecture(models).items():
            lines_of_chart[group] = Line(INK, next(dashes), 3)
            places: dict[float, list[float]] = {}
            for row in scaling.along_axis([row for row in rows if row["excess"] > 0], axis):
                places.setdefault(scaling.axis_value(axis, row), []).append(np.log(row["excess"]))
            means = [
                (place, float(np.exp(np.mean(logs)))) for place, logs in sorted(places.items())
            ]
            points = points + [{"line": group, "x": place, "value": mean} for place, mean in means]
        limit, sentence = cut([(one["line"], one["value"]) for one in points], zero)
        words += [sentence] if sentence else []
        points = [one for one in points if LEAST <= one["value"] <= limit]
        if len({one["x"] for one in points}) > 1:
            charts.append(chart(axis, points, lines_of_chart))
        else:
            at = "none has an excess"
            if points:
                each = [f"{one['line']}: excess {one['value']:.3g}" for one in points]
                at = f"all have {axis} {points[0]['x']:g} ({', '.join(each)})"
            words.append(f"There is no chart against {axis}: of the models to compare, {at}.")
    board = Board(
        tuple(charts),
        caption=f"First chart: {facts}. Other charts vary one setting of the most common models; "
        f"the means are over training seeds. {provenance}",
        tables=(table(models, key, solver_curves),),
    )
    blocks = {name: SOLVERS[name].blocks.get("softmax", 1) for name in solver_curves.squares}
    counts = ", ".join(f"{n} for {name.replace('_', ' ')}" for name, n in blocks.items() if n > 1)
    words.insert(1, f"A step is one block of a constructed transformer, but {counts}.")
    title = "Errors of trained models against their sizes"
    return Section("scaling", title, tuple(words), (board,))


def chart(axis: str, points: Rows, lines: dict[str, Line]) -> Chart:
    along = [one["x"] for one in points]
    low = min(along, default=1)
    words = {"depth": "steps t of a solver, or depth of a model"}.get(axis, axis)
    x = alt.X("x:Q", title=words, **log_axis((), low, max([*along, 2 * low])))
    y = log_axis(one["value"] for one in points)
    about = f"Lines of the excess error over exact regression against {words}, in log scales."
    title = f"Excess error against {axis}"
    return curves(title, about, points, x, y, lines, marked=True, height=240)


def table(models: Rows, key: tuple, solver_curves: Curves) -> BoardTable:
    """A line for each model; solvers are compared with those of one family of tasks."""
    header = ["model", "p", "N", "depth", "width", "effective dimension", "excess"]
    lines = []
    for row in models:
        sizes = (str(row[part]) for part in ("num_features", "num_supports", "depth", "width"))
        numbers = [three_digits(row[part]) for part in ("dimension", "excess")]
        numbers[1] += "" if row["converged"] else ", still falling"
        comparable = scaling.task_settings(row) == key
        same = scaling.equivalents(solver_curves, row).values() if comparable else ()
        steps = [scaling.format_steps(one) for one in same] or ["-"] * len(solver_curves.squares)
        lines.append([row["model"], *sizes, *numbers, *steps])
    caption = "Excess errors of trained models, and steps of solvers with the same excess"
    header += [name.replace("_", " ") for name in solver_curves.squares]
    return BoardTable(caption, header, lines)
