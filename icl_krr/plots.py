"""Figures: one style, colours that the colour-blind tell apart, every label from what was run."""

from __future__ import annotations

from io import BytesIO
from itertools import cycle, product
from math import isnan
from statistics import median
from textwrap import fill
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .bench import Row
    from .experiments.claim import Claim, Plot, Rows
    from .experiments.depth import DepthResult

# Okabe and Ito, Color universal design, 2008
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
COLORS = (BLUE, ORANGE, GREEN, RED, "#CC79A7", "#56B4E9", "black", "#F0E442")
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


def scaling_figure(rows: list[Row], seed: int) -> Figure:
    """Time, and bytes in between, of both routes as one size grows; one column a size."""
    rows = [row for row in rows if row.suite == "scaling"]
    grown = list(dict.fromkeys(axis_of(row) for row in rows))
    figure = Figure(figsize=(3.4 * len(grown), 5.6), layout="constrained")
    axes = figure.subplots(2, len(grown), squeeze=False, sharex="col", sharey="row")
    for size, (top, bottom) in zip(grown, axes.T, strict=True):
        for route, color in (("B", BLUE), ("A", RED)):
            here = [r for r in rows if axis_of(r) == size and r.contest.startswith(f"{route},")]
            ours = [row for row in here if row.program == "icl_krr"]
            at = [row.size[size] for row in ours]
            top.plot(at, [r.median_ms for r in ours], "o-", color=color, label=f"{route}: forward")
            bare = [
                min(r.median_ms for r in here if r.ratio == 1 and r.size == o.size) for o in ours
            ]
            top.plot(at, bare, "s--", color=color, markersize=3, label=f"{route}: bare solver")
            bottom.plot(at, [r.scratch_mb for r in ours], "o-", color=color, label=f"{route}")
        for axis in (top, bottom):
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.grid(alpha=0.25)
        bottom.set_xlabel(size)
        column = [row for row in rows if axis_of(row) == size]
        fixed = {k: v for k, v in column[0].size.items() if k != size}
        top.set_title(", ".join(f"{k} = {v}" for k, v in fixed.items()), fontsize=8)
    axes[0, 0].set_ylabel("median time (ms)")
    axes[1, 0].set_ylabel("scratch memory of the forward (MB)")
    axes[0, 0].legend(fontsize=7)
    figure.suptitle(
        f"conjugate gradient, linear (B) and softmax (A) attention, {rows[0].dtype}, seed {seed}",
        fontsize=9,
    )
    return figure


def claim_figure(name: str, claim: Claim, rows: Rows) -> Figure:
    """A claim's rows as its plot says: medians over draws and seeds, dashed the bound."""
    plot = claim.plot
    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    axis = figure.subplots()
    curves(axis, plot, plot.y, rows)
    axis.set_xscale("log" if plot.logx else "linear")
    axis.set_yscale("log" if plot.logy else "linear")
    axis.set_xlabel(plot.x)
    axis.set_ylabel(f"{plot.y} (dashed: {plot.bound})" if plot.bound else plot.y)
    axis.grid(alpha=0.25)
    axis.legend(fontsize=7, title=", ".join(plot.by) or None, title_fontsize=7)
    seeds = [row["seed"] for row in rows]
    axis.set_title(
        f"{name}: {fill(claim.statement, 80)}\n"
        f"{claim.dtype}, seeds {min(seeds)} to {max(seeds)}, medians of {len(rows)} rows",
        fontsize=8,
    )
    return figure


def sweep_figure(name: str, plot: Plot, rows: Rows, dtype: str) -> Figure:
    """What a sweep measured: the plot of its axis above, the error at the queries below."""
    figure = Figure(figsize=(6.8, 7.4), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    curves(top, plot, plot.y, rows)
    curves(bottom, plot._replace(bound=""), "rmse", rows)
    line(bottom, rows, plot.x, "exact rmse", "black", "-", "exact KRR")
    line(bottom, rows, plot.x, "zero rmse", "black", ":", "zero")
    words = {"gap": "gap to exact KRR  |f - f*| / |f*|", "error": "|alpha - alpha*|_A / |alpha*|_A"}
    top.set_ylabel(words[plot.y] + (f" (dashed: {plot.bound})" if plot.bound else ""))
    bottom.set_ylabel("RMSE at the queries (units of y)")
    bottom.set_xlabel("step" if plot.x == "step" else name)
    for axis in (top, bottom):
        axis.set_xscale("log" if plot.logx else "linear")
        axis.set_yscale("log")
        axis.grid(alpha=0.25)
    top.legend(fontsize=7, title=", ".join(plot.by), title_fontsize=7)
    bottom.legend(fontsize=7)
    seeds = sorted({row["seed"] for row in rows})
    steps = max(row["step"] for row in rows)
    top.set_title(
        f"{name}: medians of {len(seeds)} seeds from {seeds[0]}, {steps} steps, "
        f"{'each dtype' if name == 'precision' else dtype}",
        fontsize=9,
    )
    return figure


def curves(axis: Axes, plot: Plot, y: str, rows: Rows) -> None:
    """A line of y for each group, dashed the bound; another marker when colours repeat."""
    groups: dict[str, Rows] = {}
    for row in rows:
        groups.setdefault(", ".join(str(row[part]) for part in plot.by), []).append(row)
    styles = product("os^D", COLORS)
    for (label, here), (marker, color) in zip(groups.items(), cycle(styles)):
        line(axis, here, plot.x, y, color, f"{marker}-", label or y)
        if plot.bound:
            line(axis, here, plot.x, plot.bound, color, "--", "")


def line(axis: Axes, rows: Rows, x: str, y: str, color: str, style: str, label: str) -> None:
    """Medians of y for every x that has one."""
    values: dict[float, list[float]] = {}
    for row in rows:
        if row.get(y) is not None and not isnan(row[y]):
            values.setdefault(row[x], []).append(row[y])
    at = sorted(values)
    axis.plot(
        at, [median(values[v]) for v in at], style, color=color, markersize=3.5, label=label or None
    )


def axis_of(row: Row) -> str:
    """The size that grows: `B, n = 64` is a row of n."""
    return row.contest.split(", ")[1].split(" = ")[0]


def png(figure: Figure) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
