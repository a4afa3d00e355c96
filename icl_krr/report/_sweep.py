"""The sections on curves that finished runs hold: a sweep, and the training of a model."""

from __future__ import annotations

from itertools import cycle, product
from statistics import median
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from ..experiments._shared.rows import Plot, Rows, cut
from . import _chart
from ._chart import BLUE, GREEN, INK, ORANGE, SKY, Board, BoardTable, Cell, Line
from ._marks import STEPS, curves, log_axis
from ._page import Section

WORDS = {
    "gap": "Gap to exact KRR, |f - f*| / |f*|",
    "error": "Error of alpha, |alpha - alpha*|_A / |alpha*|_A",
    "rmse": "RMSE at the queries (units of y)",
}


class Curve(NamedTuple):
    """A line with its medians [place on the x axis, place of the slider]."""

    line: Line
    values: np.ndarray


def sweep_section(anchor: str, axis: str, plot: Plot, rows: Rows, provenance: str) -> Section:
    """A sweep: medians over seeds of every line, against the axis or against the step."""
    along, steps = (list(dict.fromkeys(row[key] for row in rows)) for key in (plot.x, "step"))
    moves = plot.x == "value" and axis != "depth"
    frames = steps if moves else [0]
    x = alt.X("x:Q", title=axis, scale={"nice": False, "zero": False})
    if not moves:
        x = alt.X("x:Q", title="solver steps", **STEPS)
    elif any(isinstance(value, str) for value in along):
        x = alt.X("x:O", title=axis, sort=None)
    elif plot.logx:
        x = alt.X("x:Q", title=axis, **log_axis(map(float, along)))

    def medians(rows: Rows, column: str) -> np.ndarray:
        """A model with fewer steps than the slider, such as one head, keeps its last value."""
        at: dict[tuple[Any, int], list[float]] = {}
        for row in rows:
            place = row[plot.x], row["step"] if moves else 0
            at.setdefault(place, []).append(float(row[column]))
        last = {value: max(step for other, step in at if other == value) for value in along}
        return np.array([[median(at[v, min(step, last[v])]) for step in frames] for v in along])

    groups: dict[str, Rows] = {}
    for row in rows:
        groups.setdefault(", ".join(str(row[part]) for part in plot.by), []).append(row)
    top: dict[str, Curve] = {}
    bottom: dict[str, Curve] = {}
    styles = cycle(product(("1 0", "6 3", "1 2"), _chart.PALETTE))
    for (label, group), (dashes, color) in zip(groups.items(), styles, strict=False):
        top[label] = Curve(Line(color, dashes), medians(group, plot.y))
        if plot.bound:
            top[f"{label}: {plot.bound}"] = Curve(Line(color, "2 3"), medians(group, plot.bound))
        bottom[label] = Curve(Line(color, dashes), medians(group, "rmse"))
    bottom["exact KRR"] = Curve(Line(INK), medians(rows, "exact rmse"))
    bottom["zero prediction"] = Curve(Line(INK, "2 3"), medians(rows, "zero rmse"))
    top = {label: one for label, one in top.items() if np.any(np.isfinite(one.values))}
    places = [*range(0, len(along), -(-len(along) // 8))]
    frame = "step" if moves else 0
    charts, data, tables, words = [], {}, [], []
    zero = {"top": 1.0, "bottom": float(np.max(bottom["zero prediction"].values))}
    for name, column, lines in (("top", plot.y, top), ("bottom", "rmse", bottom)):
        each = [(label, value) for label, one in lines.items() for value in one.values.ravel()]
        limit, sentence = cut(each, zero[name])
        if len(along) > 1:
            charts.append(chart(WORDS[column], name, lines, along, x, frame, limit))
            words += [f"{WORDS[column]}. {sentence}"] if sentence else []
        data[name] = [_chart.numbers(one.values) for one in lines.values()]
        cells = [[key, *(Cell((name, i, k, frame)) for k in places)] for i, key in enumerate(lines)]
        header = ["line", *(str(along[k]) for k in places)]
        tables.append(BoardTable(f"{WORDS[column]}, against {x['title']}", header, cells))
    if len(along) == 1:
        words = [f"There is one value of {x['title']}, {along[0]}: the table has its numbers."]
    slider = _chart.Axis("depth (solver steps)", tuple(map(str, steps)), len(steps) - 1)
    board = Board(
        charts=tuple(charts),
        axes={"step": slider} if moves else {},
        data=data,
        caption=f"Medians over seeds. {provenance}",
        tables=tuple(tables),
    )
    return Section(anchor, f"Sweep over the axis {axis}", tuple(words), (board,))


def chart(
    title: str, name: str, drawn: dict[str, Curve], along: list, x: alt.X, frame: Any, limit: float
) -> _chart.Chart:
    """The curves in the array `name` of the board, up to a limit."""
    pairs = product(enumerate(drawn), enumerate(along))
    points = [{"line": label, "curve": i, "place": k, "x": v} for (i, label), (k, v) in pairs]
    lines = {label: one.line for label, one in drawn.items()}
    value = f"toNumber({name}[datum.curve][datum.place][{frame}])"
    values = np.concatenate([one.values.ravel() for one in drawn.values()])
    values = values[values <= limit]
    in_range = "isFinite(datum.value) && datum.value > 0"
    in_range += f" && datum.value <= {limit:g}" if np.isfinite(limit) else ""
    return curves(
        title,
        f"Lines of medians over seeds against {x['title']}, on a log scale.",
        points,
        x,
        log_axis(values.tolist()),
        lines,
        base=alt.Chart().transform_calculate(value=value).transform_filter(in_range),
        zoom=x["shorthand"] == "x:Q",
        marked=True,
        height=240,
        reads=(name,),
    )


class Measure(NamedTuple):
    """What the curves of a run show: {line: (its column, how it is drawn)}, and words."""

    drawn: dict[str, tuple[str, Line]]
    title: str
    units: str
    words: str
    about: str


ERRORS = Measure(
    {
        "training batches": ("loss", Line(SKY)),
        "validation tasks": ("validation", Line(BLUE)),
        "exact KRR": ("exact", Line(GREEN)),
        "Nadaraya-Watson": ("nadaraya_watson", Line(_chart.RED, "6 3")),
        "mean": ("mean", Line(ORANGE)),
        "zero": ("zero", Line(INK, "2 3")),
    },
    "Mean squared errors",
    "mean squared error (units of y²)",
    "Mean squared error of the model during training, and the errors of known predictors on "
    "the validation tasks.",
    "Lines of the errors on training batches and validation tasks, and of exact KRR, one "
    "softmax head, the mean of the supports and the zero prediction. Log scale.",
)
DENSITIES = Measure(
    {
        "training batches": ("loss", Line(SKY)),
        "validation tasks": ("nll", Line(BLUE)),
        "exact KRR": ("exact_nll", Line(GREEN)),
        "one Gaussian": ("constant_nll", Line(ORANGE)),
    },
    "Minus log densities",
    "minus log density (nats)",
    "Minus the log density of an output with its noise during training, and on the validation "
    "tasks those of exact KRR with its variance and of one Gaussian for all outputs.",
    "Lines of training batches and validation tasks, of exact KRR, and of one Gaussian.",
)


def training_section(name: str, rows: Rows, provenance: str) -> Section:
    measure = DENSITIES if "nll" in rows[-1] else ERRORS
    columns = {label: column for label, (column, _) in measure.drawn.items()}
    lines = {label: line for label, (_, line) in measure.drawn.items()}
    points = [
        {"step": row["step"], "line": line, "value": float(row[column])}
        for line, column in columns.items()
        for row in rows
    ]
    words = [measure.words]
    if measure is DENSITIES:
        axis = {"scale": {"zero": False}}
    else:
        limit, sentence = cut([(one["line"], one["value"]) for one in points], rows[-1]["zero"])
        points = [one for one in points if not one["value"] > limit]  # NaN is a gap in a line
        axis, words = log_axis(one["value"] for one in points), [*words, *filter(None, [sentence])]
    chart = curves(
        f"{measure.title} against training steps",
        measure.about,
        points,
        alt.X("step:Q", title="training step", **STEPS),
        axis | {"title": measure.units},
        lines,
        zoom=True,
        height=220,
        span=12,
    )
    table_rows = [*rows[: -1 : -(-len(rows) // 8)], rows[-1]]
    header = ["step", *columns]
    table = [
        [str(row["step"]), *(f"{float(row[column]):.3g}" for column in columns.values())]
        for row in table_rows
    ]
    charts = (chart,)
    if len(rows) == 1:
        charts, words = (), [*words, "There is one step, whose errors are in the table."]
    board = Board(charts, caption=provenance, tables=(BoardTable(measure.title, header, table),))
    return Section("training", f"How {name} was trained", tuple(words), (board,))
