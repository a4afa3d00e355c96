"""The tables and the figure of the benchmarks `fast_weights` and `fast_weights_naming`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from icl_krr.catalogue import candidate
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
        lines = [[shown(row.get(name, "refused")) for name in rows[0]] for row in rows]
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
    "What each rule costs, with 6 features, and the largest difference of a model from its oracle "
    "in float64, at all of 24 supports and 4 queries with 3 outputs, relative to the largest "
    "prediction, of 3 seeds, masks and both prefixes:": "rules",
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


SHORT = {
    "delta_rule": "delta",
    "momentum_delta_rule": "momentum",
    "implicit_delta_rule": "implicit",
    "preconditioned_delta_rule": "preconditioned",
    "kalman_delta_rule": "Kalman",
    "prefix_conjugate_gradient": "Mesa",
    "gradient_descent": "GD",
    "conjugate_gradient": "CG",
}


def markdown(rows: Sequence[Record], trained: Sequence[Record]) -> str:
    """All tables."""
    parts = []
    for reading in dict.fromkeys(row["reading"] for row in rows):
        chosen = [row for row in rows if row["reading"] == reading and not row["edge"]]
        parts += [f"## Known rules, {reading}\n", to_markdown(confusion(chosen))]
    parts += ["## How far the others are\n", to_markdown(separation(rows))]
    edges = [row for row in rows if row["edge"]]
    if edges:
        parts += ["## Near the edge between two rules\n", to_markdown(edge_table(edges))]
    if trained:
        parts += ["## Trained decoders with linear attention\n", to_markdown(decoders(trained))]
    return "\n".join(parts)


def short(name: str) -> str:
    return f"gated {SHORT[name[6:]]}" if name.startswith("gated_") else SHORT[name]


def truth(row: Record) -> str:
    return f"gated_{row['rule']}" if row["gated"] else row["rule"]


def verdict(row: Record) -> str:
    """The column of a model in the confusion matrix."""
    if row["status"] in ("identified", "not distinguishable"):
        return " or ".join(map(short, row["remain"]))
    return row["status"]


def confusion(rows: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """What a model runs, and how often each verdict was given."""
    names = [f"{gate}{name}" for gate in ("", "gated_") for name in SHORT]
    runs = [name for name in names if name in map(truth, rows)]
    said = {verdict(row) for row in rows}
    columns = [short(name) for name in names if short(name) in said]
    columns += sorted(said - {*columns})
    lines = []
    for name in runs:
        own = [verdict(row) for row in rows if truth(row) == name]
        lines.append([short(name), *(str(own.count(one) or "") for one in columns)])
    return ["runs", *columns], lines


def distance(one: Record) -> float:
    """The larger of the distances in both spaces."""
    return max(value for space, value in one.items() if space in SPACES and value is not None)


SPACES = ("prediction", "hat", "state", "innovation")


def separation(rows: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    """How far each model is from its rule, and from the nearest rule that does not contain it."""
    lines = []
    for reading, name in dict.fromkeys(
        (row["reading"], truth(row)) for row in rows if not row["edge"]
    ):
        own, others = 0.0, []
        for row in rows:
            if (row["reading"], truth(row), row["edge"]) == (reading, name, ""):
                found = {one["name"]: distance(one) for one in row["candidates"]}
                own = max(own, found[name])
                same = {name, *(one for one in found if name in candidate(one).contains)}
                others += [(far, other) for other, far in found.items() if other not in same]
        plain = [one for one in others if not one[1].startswith("gated_")]
        first, without = min(others), min(plain)
        cells = [f"{short(other)} {far:.2g}" for far, other in (first, without)]
        lines.append([reading, short(name), f"{own:.2g}", *cells])
    return ["read by", "runs", "its rule", "nearest other", "nearest other without a gate"], lines


def edge_table(rows: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    lines = []
    for row in rows:
        near = sorted(row["candidates"], key=distance)[:4]
        cells = ", ".join(f"{short(one['name'])} {distance(one):.1g}" for one in near)
        names = ", ".join(map(short, row["remain"])) or ", ".join(row["as near"])
        lines.append([f"{short(row['rule'])}, {row['edge']}", row["status"], names, cells])
    return ["runs", "status", "remain, or as near", "nearest"], lines


def decoders(rows: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    header = ["decoder, seed", "error / exact", "status", "nearest: predictions, hat matrices",
              "the same at all supports", "exact ridge regression there",
              "nearest baseline or null", "by the stream"]  # fmt: skip
    lines = []
    for row in rows:
        best = row["candidates"][0]
        known = min(row["baselines"].items(), key=lambda one: distance(one[1]))
        along = "-" if best["along"] is None else f"{best['along']:.2g}"
        stream = row["by stream"]
        near = stream["candidates"][0]
        lines.append(
            [
                f"{row['model']}, {row['seed']}",
                f"{row['ratio']:.3g}",
                row["status"],
                f"{short(best['name'])} {best['prediction']:.2g}, {best['hat']:.2g}",
                along,
                f"{row['exact along']:.2g}",
                f"{known[0]} {known[1]['prediction']:.2g}, {known[1]['hat']:.2g}",
                f"{stream['status']}; {short(near['name'])} {distance(near):.2g}",
            ]
        )
    return header, lines
