"""The tables and the figure of `python -m benchmarks.fast_weights`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from icl_krr.files import to_markdown
from icl_krr.plots.style import BLUE, GREEN, ORANGE, PURPLE, RED, label_ticks, legend
from icl_krr.text_tables import number

Record = dict[str, Any]
MEASURES = ("error", "at the end", "ratio", "regret", "minus Mesa")
DRAWN = {
    "gated delta rule": (BLUE, "-"),
    "momentum": (ORANGE, "--"),
    "implicit": (GREEN, "-"),
    "preconditioned, 1 / A": (RED, "-"),
    "Kalman, isotropic": (PURPLE, "-"),
    "Kalman, diagonal": ("#56B4E9", "-"),
    "Mesa, gated": ("#332288", "-"),
    "exact posterior": ("black", "--"),
}


def document(record: Record) -> str:
    """All tables of a record, each with a line that says what it has."""
    sizes = ((16, 1), (128, 128))
    header = ["method", "multiplications", "numbers of state"]
    header += [f"{what}, m = {m}, r = {r}" for m, r in sizes for what in header[1:]]
    lines = [
        [name, *cost, *(str(eval(one, {"m": m, "r": r})) for m, r in sizes for one in cost)]
        for name, cost in record["costs"].items()
    ]
    parts = [
        "Cost of a token, with its gate, its write and one read, for m features and r outputs. "
        "Mesa solves by Cholesky; a window also keeps its pairs, m + r numbers each:",
        to_markdown((header, lines)),
    ]
    for one in record["contests"]:
        lines = [
            [name, *(spread(row[key]) for key in MEASURES), yes(row), shown(row["not ok"], "-")]
            for name, row in one["rows"].items()
        ]
        parts += [
            f"Tasks: {one['kind']} (seeds {', '.join(map(str, one['seeds']))}). "
            "Medians and 95 % intervals over tasks; errors in units of the variance of "
            "the function, regret: sum over positions of what is above the error of the exact "
            "posterior, minus Mesa: the same beside gated Mesa:",
            to_markdown(
                (["method", *MEASURES, "not distinguishable from Mesa", "status not ok"], lines)
            ),
        ]
    for title, key in TITLES.items():
        rows = record[key]
        lines = [[shown(row[name]) for name in rows[0]] for row in rows]
        parts += [title, to_markdown(([*rows[0]], lines))]
    return "\n".join(parts)


TITLES = {
    "Eight supports without noise, and 64 with noise, that come again 1000 times: relative "
    "distance of the predictions from y at the supports, and of w from the interpolation of least "
    "norm, from ridge regression (0.1) on the supports once, from w after the other order, and of "
    "w of the noisy supports from least squares. Medians over 8 tasks:": "fixed points",
    "One state is rounded after each token: change of the predictions relative to their size, "
    "medians over 8 seeds; - is not finite:": "rounding",
    "Raw normal keys with 64 channels, step size 1, ridge 1, float32: number of supports from "
    "which the status says that the rule diverges, and from which a number is not finite; three "
    "seeds; - is never up to 96:": "divergence",
}


def shown(value: Any, missing: str = "-") -> str:
    if isinstance(value, list):
        return ", ".join(shown(one) for one in value)
    if value is None:
        return missing
    return number(value, 2) if isinstance(value, float) else str(value)


def spread(values: list[float]) -> str:
    middle, low, high = (number(value) for value in values)
    return f"{middle} ({low} to {high})"


def yes(row: Record) -> str:
    _, low, high = row["minus Mesa"]
    return "yes" if low <= 0 <= high else "no"


def fast_weights_figure(record: Record, meta: Record) -> Figure:
    """Error against the number of supports before a token, a panel for each kind of task."""
    contests = record["contests"]
    figure = Figure(figsize=(9.6, 6.2), layout="constrained")
    axes = figure.subplots(2, -(-len(contests) // 2), sharex=True, squeeze=False)
    for axis, one in zip(axes.T.flat, contests, strict=False):
        n = len(one["rows"]["zero"]["curve"])
        edges = np.unique(np.geomspace(1, n, 13).round().astype(int))
        for name, (color, style) in DRAWN.items():
            curve = np.array(one["rows"][name]["curve"])[1:]
            means = [np.mean(curve[low - 1 : high - 1]) for low, high in pairwise(edges)]
            middle = [(low + high - 1) / 2 for low, high in pairwise(edges)]
            axis.loglog(middle, means, style, color=color, linewidth=1.2, label=name)
        axis.axhline(1, color="black", linestyle=":", linewidth=1, label="zero prediction")
        axis.set_title(one["kind"], fontsize=8)
        axis.tick_params(labelsize=7)
        label_ticks(axis)
    for axis in axes[-1]:
        axis.set_xlabel("supports before the token", fontsize=8)
    for axis in axes[:, 0]:
        axis.set_ylabel("squared error / variance", fontsize=8)
    title = f"delta rules and Mesa layers, tuned alike: means over {meta['tasks']} tasks"
    figure.suptitle(f"{title}, seeds from {meta['seed']}, float64", fontsize=9)
    legend(figure, *axes.flat, ncols=5)
    return figure
