"""Figures of claims and sweeps."""

from __future__ import annotations

from itertools import cycle, product
from math import isnan
from statistics import median
from textwrap import fill
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from ._style import COLORS, cut_diverged, finish, label_ticks, legend, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..experiments._claims.claim import Claim
    from ..experiments._shared.rows import Plot, Rows


def claim_figure(name: str, claim: Claim, rows: Rows) -> Figure:
    """The values of a claim: medians over draws and seeds, and the bound as dashed lines."""
    plot = claim.plot
    rows = [row for row in rows if plot.y in row]
    figure, axis = sheet(6.4, 4.6)
    curves(axis, plot, plot.y, rows)
    xscale, yscale = ("log" if log else "linear" for log in (plot.logx, plot.logy))
    axis.set(xscale=xscale, yscale=yscale, xlabel=plot.x)
    axis.set_ylabel(f"{plot.y} (dashed: {plot.bound})" if plot.bound else plot.y)
    seeds = [row["seed"] for row in rows]
    title = (
        f"{name}: {fill(claim.title, 80)}\n"
        f"{claim.dtype}, seeds {min(seeds)} to {max(seeds)}, medians over draws and seeds"
    )
    ticks = "x" if whole(rows, plot.x) else ""
    return finish(figure, axis, title, ticks, heading=", ".join(plot.by))


PLACES = dict(context="supports", position="supports before the token", rounding="condition number")
"""What varies along an axis of a sweep whose name does not say it."""


def sweep_figure(name: str, plot: Plot, rows: Rows, dtype: str, other: str = "exact KRR") -> Figure:
    """The results of a sweep: the plot of its axis above, the error at the queries below."""
    figure = Figure(figsize=(6.8, 7.4), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    curves(top, plot, plot.y, rows)
    curves(bottom, plot._replace(bound=""), "rmse", rows)
    line(bottom, rows, plot.x, "exact rmse", "black", "-.", "exact KRR")
    line(bottom, rows, plot.x, "zero rmse", "black", ":", "zero prediction")
    gap = f"gap to {other}  |f - f*| / |f*|"
    words = {"gap": gap, "error": "|alpha - alpha*|_A / |alpha*|_A"}
    top.set_ylabel(words[plot.y] + (f" (dashed: {plot.bound})" if plot.bound else ""), fontsize=8)
    bottom.set_ylabel("RMSE at the queries (units of y)", fontsize=8)
    bottom.set_xlabel("step" if plot.x == "step" else PLACES.get(name, name))
    sentences = []
    for axis, zero in ((top, 1.0), (bottom, max(row["zero rmse"] for row in rows))):
        axis.set_xscale("log" if plot.logx else "linear")
        axis.set_yscale("log")
        sentences.append(cut_diverged(axis, zero))
        label_ticks(axis, whole="x" if whole(rows, plot.x) else "")
        axis.grid(alpha=0.25)
    places = sorted({row[plot.x] for row in rows})
    if plot.logx and len(places) <= 10:
        bottom.set_xticks(places, [f"{place:g}" for place in places])
        bottom.minorticks_off()
    legend(figure, top, bottom, heading="\n".join(filter(None, sentences)))
    seeds = sorted({row["seed"] for row in rows})
    steps = max(row["step"] for row in rows)
    of = "dtype: see lines" if name == "precision" else dtype
    title = f"{name}: medians over {len(seeds)} seeds from {seeds[0]}, at most {steps} steps, {of}"
    top.set_title(title, fontsize=9)
    return figure


def whole(rows: Rows, x: str) -> bool:
    return all(float(row[x]).is_integer() for row in rows)


def curves(axis: Axes, plot: Plot, y: str, rows: Rows) -> None:
    """Draw y for each group, and the bound dashed; the marker changes if colours repeat."""
    groups: dict[str, Rows] = {}
    for row in rows:
        groups.setdefault(", ".join(str(row[part]) for part in plot.by), []).append(row)
    styles = product("os^D", COLORS)
    for (label, here), (marker, color) in zip(groups.items(), cycle(styles)):
        line(axis, here, plot.x, y, color, f"{marker}-", label or y)
        if plot.bound:
            line(axis, here, plot.x, plot.bound, color, "--", "")


def line(axis: Axes, rows: Rows, x: str, y: str, color: str, style: str, label: str) -> None:
    values: dict[float, list[float]] = {}
    for row in rows:
        if row.get(y) is not None and not isnan(row[y]):
            values.setdefault(row[x], []).append(row[y])
    at = sorted(values)
    medians = [median(values[v]) for v in at]
    axis.plot(at, medians, style, color=color, markersize=3.5, label=label or None)
