"""The section on the training of a model."""

from __future__ import annotations

from typing import NamedTuple

from ..experiments.shared.rows import Rows
from .chart import BLUE, GREEN, INK, ORANGE, RED, SKY, Chart, Line, Lines
from .marks import STEPS, curves, log_axis
from .page import Section
from .sliders import Board, Cell


class Measure(NamedTuple):
    """What the curves of a run show: lines by name, the column of each, and words."""

    lines: Lines
    columns: dict[str, str]
    title: str
    units: str
    words: str
    about: str


ERRORS = Measure(
    {
        "training batches": Line(SKY),
        "validation tasks": Line(BLUE),
        "exact KRR": Line(GREEN),
        "Nadaraya-Watson": Line(RED, "6 3"),
        "mean": Line(ORANGE),
        "zero": Line(INK, "2 3"),
    },
    {
        "training batches": "loss",
        "validation tasks": "validation",
        "exact KRR": "exact",
        "Nadaraya-Watson": "nadaraya_watson",
        "mean": "mean",
        "zero": "zero",
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
        "training batches": Line(SKY),
        "validation tasks": Line(BLUE),
        "exact KRR": Line(GREEN),
        "one Gaussian": Line(ORANGE),
    },
    {
        "training batches": "loss",
        "validation tasks": "nll",
        "exact KRR": "exact_nll",
        "one Gaussian": "constant_nll",
    },
    "Minus log densities",
    "minus log density (nats)",
    "Minus the log density of an output with its noise during training, and on the validation "
    "tasks those of exact KRR with its variance and of one Gaussian for all outputs.",
    "Lines of training batches and validation tasks, of exact KRR, and of one Gaussian.",
)


def training_section(name: str, rows: Rows, provenance: str) -> Section:
    """The section with the training curves of a run."""
    measure = DENSITIES if "nll" in rows[-1] else ERRORS
    points = [
        {"step": row["step"], "line": line, "value": float(row[column])}
        for line, column in measure.columns.items()
        for row in rows
    ]
    axis = log_axis(point["value"] for point in points)
    if measure is DENSITIES:
        axis = {"scale": {"zero": False}}
    spec = curves(
        points,
        {"field": "step", "type": "quantitative", "title": "training step"} | STEPS,
        axis | {"title": measure.units},
        measure.lines,
        zoom=True,
        marked=len(rows) == 1,
    )
    spec["height"] = 220
    chart = Chart(
        f"{measure.title} against training steps", measure.about, spec, measure.lines, span=12
    )
    shown = [*rows[: -1 : -(-len(rows) // 8)], rows[-1]]
    header = ["step", *measure.columns]
    table: list[list[str | Cell]] = [
        [str(row["step"]), *(f"{float(row[column]):.3g}" for column in measure.columns.values())]
        for row in shown
    ]
    board = Board((chart,), caption=provenance, tables=((measure.title, header, table),))
    return Section("training", f"How {name} was trained", (measure.words,), (board,))
