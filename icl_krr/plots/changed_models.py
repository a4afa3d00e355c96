"""Figures of changed models: without one of their parts, and with noise on the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from ..experiments.solverbench.power import KINDS, curves
from .style import BLUE, RED, label_ticks, legend

if TYPE_CHECKING:
    from ..experiments.ablate.ablation import Ablation
    from ..experiments.shared.rows import Rows

LEAST = 1e-6
OUTCOMES = dict(zip(KINDS, (BLUE, "#56B4E9", "#999999", "#E69F00", RED), strict=True))


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


def power_figure(rows: Rows, title: str) -> Figure:
    """Shares of the outcomes against the noise on the weights, a panel for every way to read."""
    found = curves(rows)
    panels = list(dict.fromkeys((row["tasks"], row["reading"]) for row in found))
    solvers = list(dict.fromkeys(row["solver"] for row in found))
    levels = list(dict.fromkeys(row["level"] for row in found))
    figure = Figure(figsize=(2.6 * len(solvers) + 1.2, 1.7 * len(panels) + 1), layout="constrained")
    axes = figure.subplots(len(panels), len(solvers), squeeze=False, sharex=True, sharey=True)
    for line, (tasks, reading) in zip(axes, panels, strict=True):
        for axis, solver in zip(line, solvers, strict=True):
            cell = [
                row
                for row in found
                if (row["tasks"], row["reading"], row["solver"]) == (tasks, reading, solver)
            ]
            below = [0.0] * len(cell)
            for kind, color in OUTCOMES.items():
                shares = [row[kind].share for row in cell]
                axis.bar(range(len(cell)), shares, 0.85, below, color=color, label=kind)
                below = [low + share for low, share in zip(below, shares, strict=True)]
            axis.set_title(f"{solver}\n{tasks} tasks, {reading}", fontsize=7)
            axis.set_xticks(range(len(levels)), [f"{level:g}" for level in levels], fontsize=6)
            axis.tick_params(axis="y", labelsize=6)
    for axis in axes[-1]:
        axis.set_xlabel("relative noise on every weight", fontsize=7)
    figure.supylabel("share of seeds", fontsize=8)
    figure.suptitle(title, fontsize=9)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(KINDS), fontsize=7)
    return figure
