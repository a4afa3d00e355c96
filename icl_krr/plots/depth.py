"""Figures of constructions: predictions at every step, and finetuning."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .style import BLUE, COLORS, PURPLE, STYLES, label_ticks, legend, sheet

if TYPE_CHECKING:
    from ..experiments.depth import DepthResult
    from ..experiments.finetune.comparison import Comparison


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


def finetune_depth_figure(found: Comparison) -> Figure:
    """Excess loss over exact KRR against blocks, for trained weights and tuned algorithms."""
    figure, axis = sheet(7.2, 4.4)
    names = list(dict.fromkeys(row["method"] for row in found.losses))
    markers = ["o" if i < len(COLORS) else "^" for i in range(len(names))]  # colours repeat
    for i, name in enumerate(names):
        here = [row for row in found.losses if row["method"] == name]
        depths = sorted({row["blocks"] for row in here})
        excess = [
            [row["loss"] / row["exact"] - 1 for row in here if row["blocks"] == d] for d in depths
        ]
        style = markers[i] + ("-" if name.startswith("trained") else "--")
        mean = [np.mean(values) for values in excess]
        axis.plot(depths, mean, style, color=COLORS[i % len(COLORS)], markersize=4, label=name)
        low, high = [min(values) for values in excess], [max(values) for values in excess]
        axis.fill_between(depths, low, high, color=COLORS[i % len(COLORS)], alpha=0.15)
    words = "loss / loss of exact KRR - 1\n(mean and range over seeds)"
    axis.set(yscale="log", xlabel="number of blocks", ylabel=words)
    label_ticks(axis, whole="x")
    axis.grid(alpha=0.25)
    legend(figure, axis)
    axis.set_title(title_of(found), fontsize=9)
    return figure


def finetune_path_figure(found: Comparison) -> Figure:
    """Loss, step sizes, curvatures and distance from the construction, after every update."""
    figure = Figure(figsize=(9.6, 6.2), layout="constrained")
    axes = figure.subplots(2, 2)
    blocks = sorted({row["block"] for row in found.path})
    losses = {name: mean_loss(found, name) for name in ("tuned step", "GD++, tuned")}
    losses |= {"Chebyshev roots": mean_loss(found, "Chebyshev roots, tuned interval")}
    draw_blocks(axes[0, 0], found, blocks[:1], "loss", "loss at the queries")
    for dashes, (name, loss) in zip(("--", ":", "-."), losses.items(), strict=True):
        axes[0, 0].axhline(loss, color="black", linestyle=dashes, label=name)
    axes[0, 0].set_yscale("log")
    draw_blocks(axes[0, 1], found, blocks, "step x high", "step size\nx largest eigenvalue")
    curvature = "curvature (GD++)\nx largest eigenvalue"
    draw_blocks(axes[1, 0], found, blocks, "curvature x high", curvature)
    draw_blocks(axes[1, 1], found, blocks, "change", "relative distance\nfrom the construction")
    for axis in axes.flat:
        label_ticks(axis, whole="x")
        axis.set_xlabel("update")
        axis.grid(alpha=0.25)
    legend(figure, *axes.flat, ncols=4)
    figure.suptitle(title_of(found), fontsize=9)
    return figure


def title_of(found: Comparison) -> str:
    seeds = sorted({row["seed"] for row in found.losses})
    start = "training starts from constructed gradient descent or GD++"
    return f"{start}; seeds {seeds[0]} to {seeds[-1]}, float32"


def mean_loss(found: Comparison, method: str) -> float:
    depth = max(row["block"] for row in found.path) + 1
    here = [r["loss"] for r in found.losses if (r["method"], r["blocks"]) == (method, depth)]
    return float(np.mean(here))


def draw_blocks(axis: Axes, found: Comparison, blocks: list[int], key: str, label: str) -> None:
    """Mean and range over seeds, one line per block."""
    updates = sorted({row["update"] for row in found.path})
    for block in blocks:
        values = np.array(
            [
                [r[key] for r in found.path if (r["update"], r["block"]) == (update, block)]
                for update in updates
            ]
        )
        one = (f"block {block}", COLORS[block])
        name, color = one if len(blocks) > 1 else ("trained, all weights", "black")
        axis.plot(updates, values.mean(axis=1), color=color, label=name)
        low, high = values.min(axis=1), values.max(axis=1)
        axis.fill_between(updates, low, high, color=color, alpha=0.15)
    axis.set_ylabel(label)
