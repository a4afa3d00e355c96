"""Figures of named arrays: panels of curves, and panels of heatmaps."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from ._style import COLORS, STYLES, label_ticks, legend

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

DASHES = ("-", "--", ":", "-.")
FEW = 32  # a curve with at most so many points shows them


def curves_figure(
    panels: Mapping[str, Mapping[str, Any]],
    y: str,
    title: str,
    *,
    log: str = "",
    lines: Mapping[str, Any] | None = None,
    dots: Sequence[str] = (),
    limits: tuple[float | None, float | None] = (None, None),
) -> Figure:
    """Named curves in panels side by side, and horizontal lines to compare them with.

    A curve is an array of heights [k] at 0, 1, ..., k - 1, a tuple `(x, y)`, or a tuple
    `(x, y, low, high)` with a band. Curves whose names agree up to the first comma have the same
    colour and different dashes.

    Args:
        panels: {label of the horizontal axis: {name: curve}}.
        y: label of the vertical axis, which all panels share.
        log: axes with a log scale, "x", "y" or "xy"; default: none.
        lines: {name: height} of the horizontal lines; default: none.
        dots: names of the curves that are shown as black marks without a line; default: none.
        limits: lowest and highest value on the vertical axis; default: as the data need.

    >>> gaps = {"transformer": [1.0, 0.2, 0.01]}
    >>> figure = curves_figure({"step": gaps}, "gap", "seed 0", log="y", lines={"zero": 1.0})
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['transformer', 'zero']
    """
    lines = lines or {}
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    unknown = [name for name in dots if name not in names]
    if unknown:
        raise ValueError(f"dots must be names of curves ({', '.join(names)}), got {unknown[0]!r}")
    figure = Figure(figsize=(2.6 + 3.6 * len(panels), 3.8), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    taken = {STYLES[name][0] for name in lines if name in STYLES}
    styles = line_styles([name for name in names if name not in dots], taken)
    styles |= {
        name: {"color": "black", "linestyle": "", "marker": mark, "markersize": 4}
        for name, mark in zip(dots, cycle(".x+"))
    }
    whole = []
    for axis, (x, curves) in zip(axes, panels.items(), strict=True):
        axis.set(xlabel=x, **{f"{name}scale": "log" for name in log})
        whole.append([draw(axis, name, curve, styles[name]) for name, curve in curves.items()])
        for (name, height), dashes in zip(lines.items(), cycle(("--", "-.", ":"))):
            color, style = STYLES.get(name, ("black", dashes))
            axis.axhline(height, color=color, linestyle=style, linewidth=1.2, label=name)
    axes[0].set_ylim(*limits)
    for axis, integers in zip(axes, whole, strict=True):
        label_ticks(axis, whole="x" if all(integers) else "")
        axis.grid(alpha=0.25)
    axes[0].set_ylabel(y)
    figure.suptitle(title, fontsize=9)
    legend(figure, *axes, ncols=1 + len(panels))
    return figure


def line_styles(names: list[str], taken: set[str]) -> dict[str, dict[str, str]]:
    """A colour for what stands before the first comma; curves of a colour differ in dashes."""
    groups = dict.fromkeys(name.split(",")[0] for name in names)
    colors = dict(zip(groups, cycle(one for one in COLORS if one not in taken | {"black"})))
    dashes = {color: cycle(DASHES) for color in COLORS}
    styles = {}
    for name in names:
        color = colors[name.split(",")[0]]
        styles[name] = {"color": color, "linestyle": next(dashes[color])}
    return styles


def draw(axis: Axes, name: str, curve: Any, style: dict[str, Any]) -> bool:
    """Draw one curve, and say whether its points lie at whole numbers."""
    x, y, *band = curve if isinstance(curve, tuple) else (np.arange(len(curve)), curve)
    points = {"marker": "o" if len(x) <= FEW else "", "markersize": 3}
    axis.plot(x, y, **(points | style), label=name)
    if band:
        axis.fill_between(np.ravel(x), *band, color=style["color"], alpha=0.2)
    return bool(np.all(np.asarray(x) == np.round(x)))


def heatmaps_figure(
    panels: Mapping[str, Any], x: str, y: str, title: str, *, names: Sequence[str] = ()
) -> Figure:
    """Matrices as images side by side, each with its own colours, where 0 is white.

    Colours are on a log scale if no entry of the matrix is negative. Otherwise they are linear and
    symmetric about 0.

    Args:
        panels: {title of the panel, with the unit of its colours: matrix [rows, columns]}.
        x: label of the horizontal axis, the number of the column.
        y: label of the vertical axis, which all panels share.
        names: names of the rows; default: their numbers.

    >>> figure = heatmaps_figure({"alpha": [[0.0, -1.0]], "size": [[0.0, 1.0]]}, "step", "i", "")
    >>> [axis.get_title() for axis in figure.axes[:2]]
    ['alpha', 'size']
    """
    figure = Figure(figsize=(2.6 + 2.6 * len(panels), 3.8), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (label, matrix) in zip(axes, panels.items(), strict=True):
        values = np.asarray(matrix, float)
        top, signed = np.max(np.abs(values)), np.min(values) < 0
        image_values = np.where(values == 0, np.nan, values)
        norm = Normalize(-top, top) if signed else LogNorm(np.nanmin(image_values), top)
        colors = "RdBu_r" if signed else "cividis"
        image = axis.imshow(
            image_values, norm=norm, cmap=colors, aspect="auto", interpolation="none"
        )
        label_ticks(axis, whole="xy")
        axis.set_xlabel(x)
        axis.set_title(label, fontsize=9)
        figure.colorbar(image, ax=axis)
    if names:
        axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylabel(y)
    figure.suptitle(title, fontsize=9)
    return figure
