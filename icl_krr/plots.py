"""Figures: one style, colours that the colour-blind tell apart, every label from what was run."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from .experiments.depth import DepthResult

# Okabe and Ito, Color universal design, 2008
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
STYLES = {
    "mean": (ORANGE, "-"),
    "zero": ("black", ":"),
    "nadaraya-watson": (RED, "--"),
    "exact": (GREEN, "-"),
}


def depth_figure(results: dict[str, DepthResult], seed: int) -> Figure:
    """The gap to exact KRR and the error at the queries against depth, one column a task."""
    figure = Figure(figsize=(5.2 * len(results), 6.4), layout="constrained")
    axes = figure.subplots(2, len(results), squeeze=False, sharex="col")
    for (name, result), (top, bottom) in zip(results.items(), axes.T, strict=True):
        facts = result.facts
        label = f"transformer: {facts['solver']}, {facts['kernel']} kernel"
        steps = [row.step for row in result.rows]
        for axis, values in ((top, "gap"), (bottom, "rmse")):
            line = [getattr(row, values) for row in result.rows]
            axis.plot(steps, line, "o-", color=BLUE, markersize=3.5, label=label)
            for row in sorted(result.baselines, key=lambda row: list(STYLES).index(row.predictor)):
                if not (values == "gap" and row.predictor == "exact"):
                    color, style = STYLES[row.predictor]
                    axis.axhline(
                        getattr(row, values), color=color, linestyle=style, label=row.predictor
                    )
            axis.grid(alpha=0.25)
        if any(row.gap > 0 for row in result.rows):
            top.set_yscale("log")
        top.set_ylabel("gap to exact KRR  |f - f*| / |f*|")
        top.set_title(
            f"{name}: n = {facts['n']}, p = {facts['p']}, ridge = {facts['ridge']:.3g}\n"
            f"d_eff = {facts['d_eff']:.1f}, cond = {facts['cond']:.2g}, "
            f"{facts['dtype']}, seed {seed}",
            fontsize=9,
        )
        bottom.set_ylabel("RMSE at the queries (units of y)")
        bottom.set_xlabel(f"solver step ({facts['blocks_per_step']} blocks each)")
        bottom.legend(fontsize=7)
    return figure


def png(figure: Figure) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
