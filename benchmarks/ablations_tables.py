"""The tables and the figure of `python -m benchmarks.ablations`."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.ablations_measure import PARTS
from benchmarks.ablations_models import CANDIDATES, KIND, NAMES, RIVALS
from benchmarks.ablations_patterns import RANGE, SETS
from icl_krr.experiments.solverbench.score import Share
from icl_krr.files import to_markdown
from icl_krr.plots.style import COLORS, legend

Record = dict[str, Any]

TITLES = {"heads": "all heads", "units": "the MLP", "layer": "the whole layer"}
BESIDE = ("gradient_descent", "richardson", "random_encoder")
"""Constructions whose distances to trained models the table shows, near or not."""
EFFECT_WORDS = {
    "change": "distance to the intact predictions",
    "target": "error to the targets",
    "exact": "distance to exact KRR",
}


def shown(name: str) -> str:
    return name.replace("_", " ")


def counted(cases: int, total: int) -> str:
    return str(Share.of(cases, total))


def score_table(record: Record) -> str:
    header = ["parts removed", "replaced by", "effect", "right", "of lone names, right"]
    header += ["right among those as near", "as near (mean)", "right, other tasks' family"]
    header += ["one solver (95 %)", "two solvers (5 %)"]
    lines = []
    for one in record["confusion"]:
        lines.append([
            one["set"],
            one["replaced"],
            EFFECT_WORDS[one["effect"]],
            *(counted(*one[name]) for name in ("right", "lone", "among")),
            f"{one['size']:.1f}",
            counted(*one["other family"]),
            f"{one['within']:.2g}",
            f"{one['between']:.2g}",
        ])  # fmt: skip
    return to_markdown((header, lines))


def matrix_table(record: Record) -> str:
    """Who is named, by the first line of the scores."""
    said = record["confusion"][0]["said"]
    lines = [
        [shown(name), ", ".join(f"{shown(other)} ({count})" for other, count in ordered(line))]
        for name, line in said.items()
    ]
    return to_markdown((["solver", "solver of the nearest pattern (number of models)"], lines))


def variant_table(record: Record) -> str:
    """Right names by the setting in which a model differs, for the main kind of pattern."""
    found = record["confusion"][: len(SETS)]
    header = ["setting that no other model has", *(one["set"] for one in found)]
    lines = [
        [name, *(counted(*one["by variant"][name]) for one in found)]
        for name in found[0]["by variant"]
    ]
    return to_markdown((header, lines))


def stranger_table(record: Record) -> str:
    """Models whose solver is not among the names: how many get one candidate's name alone."""
    found = record["confusion"][: len(SETS)]
    kinds = {"candidate": "a candidate, without the patterns of its own solver"}
    kinds |= {kind: kind for kind in ("other solver", "no solver")}
    lines = [
        [words, *(counted(*one["strangers"][kind]) for one in found)]
        for kind, words in kinds.items()
        if kind in found[0]["strangers"]
    ]
    return to_markdown((["what the model runs", *(one["set"] for one in found)], lines))


def ordered(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def trained_table(record: Record) -> str:
    header = ["model", "error / exact error", "parts removed", "nearest", "distance"]
    header += ["as near", *(f"distance to {shown(name)}" for name in BESIDE)]
    header += ["one solver (95 %)", "reading"]
    lines = []
    for row in record["trained"]:
        for one in row["nearest"]:
            near = [shown(name) for name in one["as near"] if name != one["name"]]
            lines.append([
                row["model"],
                f"{row['ratio']:.3g}",
                one["set"],
                shown(one["name"]),
                f"{one['distance']:.2g}",
                ", ".join(near),
                *(f"{one['distances'].get(name, np.nan):.2g}" for name in BESIDE),
                f"{one['within']:.2g}",
                one["reading"],
            ])  # fmt: skip
    return to_markdown((header, lines))


def statement_table(record: Record) -> str:
    """How many models of each solver a statement is true of."""
    header = ["statement", "trained", *(shown(name) for name in CANDIDATES)]
    header += ["other solvers", "no solver"]
    lines = []
    for one in record["statements"]:
        cells = [f"{one['trained'][0]}/{one['trained'][1]}"]
        groups = [(name,) for name in CANDIDATES]
        groups += [RIVALS, tuple(name for name in NAMES if KIND[name] == "no solver")]
        for names in groups:
            found = [one["known"][name] for name in names if name in one["known"]]
            cases, total = (sum(pair[k] for pair in found) for k in (0, 1))
            cells.append(f"{cases}/{total}" if total else "-")
        lines.append([one["statement"], *cells])
    return to_markdown((header, lines))


def retrained_table(record: Record) -> str:
    header = ["retrained model", "training seeds", "error / exact error (least to largest)"]
    lines = [
        [name, str(len(ratios)), f"{min(ratios):.3g} to {max(ratios):.3g}"]
        for name, ratios in record["retrained"].items()
    ]
    return to_markdown((header, lines))


def pattern_table(record: Record) -> str:
    header = ["model", "tasks", *(f"without {TITLES[part]}, by layer" for part in PARTS)]
    lines = []
    for row in record["patterns"]:
        cells = [" ".join(f"{value:.2g}" for value in row["change"][part]) for part in PARTS]
        lines.append([shown(row["model"]), row["tasks"], *cells])
    return to_markdown((header, lines))


SECTIONS = {
    "Does the nearest pattern name the solver?": score_table,
    "Right names by setting": variant_table,
    "Named by one candidate alone, although the model runs none of those offered": stranger_table,
    "Who is named": matrix_table,
    "Trained models: the nearest pattern of constructions on the same tasks": trained_table,
    "Statements: true of how many models": statement_table,
    "Retrained without a part (benchmarks.retraining)": retrained_table,
    "Changes |f' - f| / |f| without a part of a layer": pattern_table,
}


def markdown(record: Record) -> str:
    return "\n".join(f"{title}\n\n{make(record)}" for title, make in SECTIONS.items())


def draw(axis: Axes, values: list[float], label: str, color: str, style: str) -> None:
    count = len(values)
    where = (np.arange(count) + 0.5) / count
    axis.plot(
        where, np.clip(values, *RANGE), style, color=color, label=label, linewidth=1, markersize=3
    )


def ablations_figure(record: Record) -> Figure:
    """Changes without heads, MLP or whole layers: constructions above, trained models below."""
    figure = Figure(figsize=(9.6, 7.6), layout="constrained")
    axes = figure.subplots(2, len(PARTS), sharex=True, sharey=True)
    known = [row for row in record["patterns"] if row["tasks"] == "process"]
    trained = [row for row in record["patterns"] if row["tasks"] == "own"]
    marks = {"candidate": "o-", "other solver": "s--", "no solver": "^:"}
    for k, part in enumerate(PARTS):
        for i, row in enumerate(known):
            style = marks[KIND[row["model"]]]
            label = f"{shown(row['model'])} ({KIND[row['model']]})"
            draw(axes[0, k], row["change"][part], label, COLORS[i % len(COLORS)], style)
        for i, row in reversed([*enumerate(trained)]):
            style = "o-" if "encoder" in row["model"] else "s--"
            named = i < len(COLORS)  # more have no colour of their own
            color = COLORS[i] if named else "#bbbbbb"
            label = f"{row['model']} (trained)" if named else "further trained models"
            draw(axes[1, k], row["change"][part], label, color, style)
        axes[0, k].set_title(f"without {TITLES[part]}", fontsize=9)
        axes[1, k].set_xlabel("layer / number of layers")
    for row, words in zip(axes, ("constructions", "trained models"), strict=True):
        row[0].set_ylabel(f"relative change of predictions, {words}", fontsize=8)
    for axis in axes.flat:
        axis.set_yscale("log")
        axis.grid(alpha=0.25)
    figure.suptitle(
        "One layer at a time, zeros in place of the part; Gaussian process tasks above, the run's "
        "own tasks below; seed 0, float64",
        fontsize=8,
    )
    legend(figure, *axes.flat, ncols=4)
    return figure
