"""Figures of models trained from a construction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .style import COLORS, label_ticks, legend

if TYPE_CHECKING:
    from ..experiments.finetune.comparison import Comparison


def finetune_depth_figure(found: Comparison) -> Figure:
    """Excess loss over exact KRR against blocks, for trained weights and tuned algorithms."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axis = figure.subplots()
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
    axis.set_yscale("log")
    label_ticks(axis, whole="x")
    axis.set_xlabel("number of blocks")
    axis.set_ylabel("loss / loss of exact KRR - 1\n(mean and range over seeds)")
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
    for i, (name, loss) in enumerate(losses.items()):
        axes[0, 0].axhline(loss, color=COLORS[i + 1], linestyle="--", label=name)
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
        name = f"block {block}" if len(blocks) > 1 else "trained, all weights"
        axis.plot(updates, values.mean(axis=1), color=COLORS[block], label=name)
        low, high = values.min(axis=1), values.max(axis=1)
        axis.fill_between(updates, low, high, color=COLORS[block], alpha=0.15)
    axis.set_ylabel(label)
