"""Figure of ablations: the change of the predictions without each part of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from .style import BLUE, RED, label_ticks, legend

if TYPE_CHECKING:
    from ..experiments.ablate.ablation import Ablation

LEAST = 1e-6


def ablation_figure(found: Ablation, title: str) -> Figure:
    """The change of the predictions without each part, and the expected change."""
    rows = [row for row in found.rows if "change" in row]
    figure = Figure(figsize=(7.2, 0.19 * len(rows) + 1.4), layout="constrained")
    axis = figure.subplots()
    for i, row in enumerate(rows):
        change = max(row["change"], LEAST)
        axis.plot([max(row["low"], LEAST), max(row["high"], LEAST)], [i, i], color=BLUE)
        axis.plot(
            change, i, "o", color=BLUE, markersize=4, label="measured (95 % interval)" * (i == 0)
        )
    expected = [(i, row) for i, row in enumerate(rows) if "expected change" in row]
    if expected:
        at, those = zip(*expected, strict=True)
        changes = [max(row["expected change"], LEAST) for row in those]
        label = "expected: algorithm without the part"
        axis.plot(changes, at, "o", color=RED, fillstyle="none", markersize=8, label=label)
    axis.set_yticks(range(len(rows)))
    axis.set_yticklabels([f"{row['site']} {named(row)}".rstrip() for row in rows], fontsize=6)
    axis.invert_yaxis()
    axis.set_xscale("log")
    label_ticks(axis)
    axis.set_xlabel(
        f"change of the predictions |f' - f| / |f| (smaller values are drawn at {LEAST:g})"
    )
    axis.set_title(title, fontsize=9)
    axis.grid(alpha=0.25)
    legend(figure, axis)
    return figure


def named(row: dict) -> str:
    return row["slot"] if row["kind"] == "swap" else ""
