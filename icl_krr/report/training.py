"""The section on the training of a model."""

from __future__ import annotations

from ..experiments.shared.rows import Rows
from .chart import BLUE, GREEN, INK, ORANGE, RED, SKY, Chart, Line
from .marks import STEPS, curves, log_axis
from .page import Section
from .sliders import Board, Cell

TRAINING = {
    "training batches": ("loss", Line(SKY)),
    "validation tasks": ("validation", Line(BLUE)),
    "exact KRR": ("exact", Line(GREEN)),
    "Nadaraya-Watson": ("nadaraya_watson", Line(RED, "6 3")),
    "mean": ("mean", Line(ORANGE)),
    "zero": ("zero", Line(INK, "2 3")),
}


def training_section(name: str, rows: Rows, provenance: str) -> Section:
    """The section with the training curves of a run."""
    words = (
        "Mean squared error of the model during training, and the errors of known predictors on "
        "the validation tasks.",
    )
    points = [
        {"step": row["step"], "line": line, "value": float(row[column])}
        for line, (column, _) in TRAINING.items()
        for row in rows
    ]
    lines = {name: line for name, (_, line) in TRAINING.items()}
    spec = curves(
        points,
        {"field": "step", "type": "quantitative", "title": "training step"} | STEPS,
        log_axis(point["value"] for point in points)
        | {"title": "mean squared error (units of y²)"},
        lines,
        zoom=True,
        marked=len(rows) == 1,
    )
    spec["height"] = 220
    chart = Chart(
        "Errors against training steps",
        "Lines of the errors on training batches and validation tasks, and of exact KRR, one "
        "softmax head, the mean of the supports and the zero prediction. Log scale.",
        spec,
        lines,
        span=12,
    )
    shown = [*rows[: -1 : -(-len(rows) // 8)], rows[-1]]
    header = ["step", *TRAINING]
    table: list[list[str | Cell]] = [
        [str(row["step"]), *(f"{float(row[column]):.3g}" for column, _ in TRAINING.values())]
        for row in shown
    ]
    board = Board((chart,), caption=provenance, tables=(("Mean squared errors", header, table),))
    return Section("training", f"How {name} was trained", words, (board,))
