"""Figures of one forward pass: slot contents after every block, and attention patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import LogNorm, Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..experiments.snapshot import Snapshot

LEAST = 1e-6


def stream_figure(sizes: Mapping[str, np.ndarray], unit: str, title: str) -> Figure:
    """A heatmap on a log scale: the size of each named row after every block."""
    rows = list(sizes)
    figure = Figure(figsize=(7.6, 0.17 * len(rows) + 1.6), layout="constrained")
    axis = figure.subplots()
    values = np.stack([np.asarray(sizes[row], float) for row in rows])
    top = float(values.max(initial=LEAST))
    bottom = max(float(values.min()), LEAST * top)
    shown = axis.imshow(
        np.clip(values, bottom, None),
        norm=LogNorm(bottom, top),
        cmap="cividis",
        aspect="auto",
        interpolation="none",
        extent=(-0.5, values.shape[1] - 0.5, len(rows) - 0.5, -0.5),
    )
    axis.set_yticks(range(len(rows)), rows, fontsize=6)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("after block (0: embedding)")
    axis.set_title(title, fontsize=9)
    bar = figure.colorbar(shown, ax=axis)
    bar.set_label(unit, fontsize=8)
    return figure


def pattern_figure(found: Snapshot, title: str) -> Figure:
    """Every attention pattern as a heatmap; lines separate the token roles.

    Softmax patterns have a square-root colour scale. Keys with weight 0 at the end, such as the
    queries, are left out.
    """
    patterns, roles = found.patterns, found.roles
    read = int(np.flatnonzero(sum(pattern.weights.sum(0) for pattern in patterns))[-1]) + 1
    most = max(float(np.max(np.abs(pattern.weights))) for pattern in patterns)
    signed = any(np.min(pattern.weights) < 0 or most > 1 for pattern in patterns)
    norm = Normalize(-most, most) if signed else PowerNorm(0.5, vmin=0, vmax=1)
    columns = min(4, len(patterns))
    lines = -(-len(patterns) // columns)
    figure = Figure(figsize=(2.3 * columns + 0.9, 2.35 * lines + 0.5), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    ends = np.cumsum([count for _, count in roles])
    shown: Any = None
    for axis, pattern in zip(axes.flat, patterns, strict=False):
        shown = axis.imshow(
            pattern.weights[:, :read],
            cmap="RdBu_r" if signed else "Blues",
            norm=norm,
            interpolation="none",
            aspect="auto",
        )
        for end in ends[:-1]:
            axis.axhline(end - 0.5, color="black", linewidth=0.4)
            axis.axvline(end - 0.5, color="black", linewidth=0.4)
        axis.set_title(f"block {pattern.block}: {pattern.name}", fontsize=7)
        groups = [
            (end - count / 2 - 0.5, role)
            for end, (role, count) in zip(ends, roles, strict=True)
            if count > 1  # no room for the name of a single token, such as the aggregator
        ]
        middles, names = zip(*groups, strict=True)
        axis.set_yticks(middles, names, fontsize=6, rotation=90, va="center")
        keys = [(at, name) for at, name in groups if at < read]
        axis.set_xticks(*zip(*keys, strict=True), fontsize=6)
        axis.tick_params(length=0)
    for axis in axes.flat[len(patterns) :]:
        axis.set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel("attending token", fontsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("attended token (key)", fontsize=7)
    bar = figure.colorbar(shown, ax=axes, shrink=0.6)
    bar.set_label("attention weight", fontsize=7)
    figure.suptitle(title, fontsize=9)
    return figure
