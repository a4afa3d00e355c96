"""The figure of a construction: its predictions at every step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from .style import BLUE, PURPLE, STYLES, label_ticks, legend

if TYPE_CHECKING:
    from ..experiments.depth import DepthResult


def depth_figure(results: dict[str, DepthResult], seed: int) -> Figure:
    """Distances to exact KRR and the error at the queries against depth, one column per task."""
    known = not any(math.isnan(row.rmse) for found in results.values() for row in found.baselines)
    figure = Figure(figsize=(5.2 * len(results), 7 if known else 4.2), layout="constrained")
    axes = figure.subplots(1 + known, len(results), squeeze=False, sharex="col")
    for (name, result), column in zip(results.items(), axes.T, strict=True):
        top, bottom = column[0], column[-1]
        facts, rows = result.facts, result.rows
        solver = f"transformer: {facts['solver']}, {facts['kernel']} kernel"
        steps = [row.step for row in rows]
        for axis, values in zip(column, ("gap", "rmse"), strict=False):
            line = [getattr(row, values) for row in rows]
            axis.plot(steps, line, "o-", color=BLUE, markersize=3.5, label=solver)
            for row in sorted(result.baselines, key=lambda row: list(STYLES).index(row.predictor)):
                if not (values == "gap" and row.predictor == "exact"):
                    color, style = STYLES[row.predictor]
                    at = getattr(row, values)
                    axis.axhline(at, color=color, linestyle=style, label=row.predictor)
            axis.grid(alpha=0.25)
        errors = [row.alpha_error for row in rows]
        words = "error of alpha in the A-norm"
        top.plot(steps, errors, "s-", color=PURPLE, markersize=3.5, label=words)
        bounds = [row.bound for row in rows]
        top.plot(steps, bounds, "--", color="black", label="proven bound on the error of alpha")
        if any(row.gap > 0 for row in rows):
            top.set_yscale("log")
        top.set_ylabel("relative distance to exact KRR")
        top.set_title(
            f"{name}: n = {facts['n']}, p = {facts['p']}, ridge = {facts['ridge']:.3g}\n"
            f"d_eff = {facts['d_eff']:.1f}, cond = {facts['cond']:.2g}, "
            f"{facts['dtype']}, seed {seed}",
            fontsize=9,
        )
        if known:
            bottom.set_ylabel("RMSE at the queries (units of y)")
        label_ticks(top)
        label_ticks(bottom, whole="x")
        bottom.set_xlabel(f"solver step ({facts['blocks_per_step']} blocks each)")
    legend(figure, *axes[:, 0], ncols=2 * len(results))
    return figure
