"""Colours that are safe for colour-blind readers, and image files."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from ..experiments._shared.rows import cut

# Okabe and Ito, Color universal design, 2008; then grey, and Tol's indigo
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE = "#CC79A7"
COLORS = (BLUE, ORANGE, GREEN, RED, PURPLE, "#56B4E9", "black", "#F0E442", "#999999", "#332288")
STYLES = {
    "mean": (ORANGE, "-"),
    "zero": ("black", ":"),
    "nadaraya_watson": (RED, "--"),
    "exact": (GREEN, "-"),
}


def sheet(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def label_ticks(axis: Axes, whole: str = "") -> None:
    """Tick labels at whole numbers on the axes in `whole`, and several on short log axes."""
    for name, part in (("x", axis.xaxis), ("y", axis.yaxis)):
        low, high = sorted(part.get_view_interval())
        if part.get_scale() == "log" and high < 100 * low:
            few = (1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 4, 5, 6, 8)
            part.set_major_locator(LogLocator(subs=few))
            part.set_major_formatter("{x:g}")
            part.set_minor_formatter(NullFormatter())
        elif part.get_scale() == "linear" and name in whole:
            part.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def cut_diverged(axis: Axes, zero: float) -> str:
    """Cut an axis where curves diverge; a sentence that names them, or "" (see `cut`)."""
    lines = [(line.get_label(), np.asarray(line.get_ydata(), float)) for line in axis.lines]
    limit, sentence = cut([(str(name), value) for name, values in lines for value in values], zero)
    if sentence:
        axis.set_ylim(top=limit)
    return sentence


def finish(figure: Figure, axis: Axes, title: str, whole: str = "x", **options: Any) -> Figure:
    """Ticks, title, grid and legend, with its `options`, of a figure with one panel."""
    label_ticks(axis, whole=whole)
    axis.set_title(title, fontsize=8)
    axis.grid(alpha=0.25)
    if axis.get_legend_handles_labels()[1]:
        legend(figure, axis, **options)
    return figure


def legend(figure: Figure, *axes: Axes, heading: str = "", ncols: int = 3) -> None:
    """One legend for all axes, below them, so that it hides no curve."""
    handles = {}
    for axis in axes:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=ncols,
        fontsize=7,
        handlelength=3,  # a dashed line with a marker would look solid
        title=heading or None,
        title_fontsize=7,
    )


def images(name: str, figure: Figure) -> dict[str, bytes]:
    """A figure as PNG and as SVG with text elements, {file name: content}."""
    png = BytesIO()
    figure.savefig(png, format="png", dpi=150)
    return {f"{name}.png": png.getvalue(), f"{name}.svg": svg(figure, name)}


def svg(figure: Figure, name: str) -> bytes:
    """An SVG with reproducible bytes: identifiers come from `name`, and there is no date."""
    buffer = BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
