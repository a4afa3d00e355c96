"""The power curves of SolverBench."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from ..experiments.solverbench.power import KINDS, curves
from .style import BLUE, RED

if TYPE_CHECKING:
    from ..experiments.shared.rows import Rows

COLORS = dict(zip(KINDS, (BLUE, "#56B4E9", "#999999", "#E69F00", RED), strict=True))


def power_figure(rows: Rows, title: str) -> Figure:
    """Shares of the outcomes against the noise on the weights, a panel for every way to read.

    Args:
        rows: rows of `icl_krr.experiments.solverbench.power.measure`.
        title: title of the figure.
    """
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
            for kind, color in COLORS.items():
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
