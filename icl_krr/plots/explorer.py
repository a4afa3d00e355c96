"""The explorer: a figure of one task at one temperature, ridge, width and depth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from .style import BLUE, GREEN, ORANGE, RED, legend

if TYPE_CHECKING:
    from ..experiments.explorer import Explored

DIVERGING = "RdBu_r"
SPAN = (1e-8, 1e3)


def explorer_figure(found: Explored, at: dict[str, int]) -> Figure:
    """Predictions on the circle, gaps and bounds against depth and width, and the slots."""
    config = found.config
    figure = Figure(figsize=(9.6, 9.2), layout="constrained")
    grid = figure.subplot_mosaic(
        [["f", "f", "f"], ["depth", "depth", "width"], ["alpha", "r", "p"]],
        height_ratios=[1.15, 1, 1],
    )

    def line(name: str, data: str, x: Any, label: str, **style: Any) -> None:
        values = np.broadcast_to(look_up(found, data, at), len(x))
        grid[name].plot(x, values, label=label, **style)

    task = found.task
    angle, asked = (np.arctan2(x[:, 1], x[:, 0]) for x in map(np.asarray, (task.x, task.x_query)))
    axis = grid["f"]
    truth = np.asarray(task.y_query)
    axis.plot(asked, truth, color="black", linewidth=1, alpha=0.5, label="true function")
    axis.plot(angle, np.asarray(task.y), "o", color="black", markersize=4, label="supports")
    line("f", "smoother", asked, "Nadaraya-Watson (one head)", color=RED, linestyle="--")
    line("f", "exact", asked, "exact KRR", color=GREEN, linewidth=4, alpha=0.4)
    line("f", "prediction", asked, "transformer", color=BLUE)
    reach = 1.6 * float(np.max(np.abs(np.asarray(task.y))))
    axis.set_ylim(-reach, reach)
    axis.set_xlabel("angle of x on the circle (radians)")
    axis.set_ylabel("y (units of its\nprior standard deviation)")

    widths = range(len(config.widths))
    for name, ticks in (("depth", range(config.steps + 1)), ("width", widths)):
        axis = grid[name]
        for data, label, style in (
            ("gap", "transformer", "-"),
            ("bound", "bound on the transformer's gap (claims C4, C18)", ":"),
        ):
            values = look_up(found, data, at, along=name)
            axis.plot(ticks, values, style, color=BLUE, label=label)
        ends = (ticks[0], ticks[-1])
        line(name, "smoother gap", ends, "Nadaraya-Watson (one head)", color=RED, linestyle="--")
        line(name, "mean gap", ends, "mean of the supports", color=ORANGE)
        axis.axhline(1, color="black", linestyle=":", label="zero prediction")
        axis.axvline(ticks[at[name]], color="black", linewidth=8, alpha=0.12)
        axis.set_yscale("log")
        axis.set_ylim(*SPAN)
        axis.grid(alpha=0.25)
    grid["depth"].set_xlabel("solver step")
    grid["depth"].set_ylabel("gap to exact KRR  |f - f*| / |f*|")
    legend(figure, grid["f"], grid["depth"], ncols=4)
    grid["width"].set_xticks(widths, [str(width or "all") for width in config.widths])
    grid["width"].set_xlabel("width (feature channels)")
    for slot in ("alpha", "r", "p"):
        axis = grid[slot]
        shown = axis.imshow(
            scaled(look_up(found, slot, at, along="depth")).T,
            cmap=DIVERGING,
            vmin=-1,
            vmax=1,
            aspect="auto",
            interpolation="none",
        )
        axis.set_xlabel("solver step")
        axis.set_title(f"slot {slot}", fontsize=9)
    grid["alpha"].set_ylabel("support token (sorted by angle)")
    bar = figure.colorbar(shown, ax=[grid[slot] for slot in ("alpha", "r", "p")], shrink=0.8)
    bar.set_label("entry / largest entry of the slot")
    return figure


def look_up(found: Explored, name: str, at: dict[str, int], along: str = "") -> np.ndarray:
    """The array at the place `at`; all values along the axis `along`."""
    place = tuple(slice(None) if axis == along else at[axis] for axis in found.over[name])
    return found.arrays[name][place]


def scaled(values: np.ndarray) -> np.ndarray:
    return values / max(float(np.max(np.abs(values))), np.finfo(float).tiny)
