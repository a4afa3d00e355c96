"""The tables and the figure of `python -m benchmarks.subjects`."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from icl_krr.files import to_markdown
from icl_krr.plots.style import BLUE, ORANGE, legend
from icl_krr.probes import Identification
from icl_krr.probes.naming.distances import SPACES, TITLES, Distance
from icl_krr.probes.naming.identification import IDENTIFIED, NEAR, TIED
from icl_krr.probes.naming.identify import weakest
from icl_krr.probes.naming.ruling import CLOSE

MARKS = "os^"
NAMED = (IDENTIFIED, NEAR, TIED)
"""The statuses of a model to which a solver is close."""

Record = dict[str, Any]


def row_of(found: Identification) -> Record:
    """What an identification found of a model, as a record for JSON."""
    best = found.best
    nulls = {name: spaces_of(spaces) for name, spaces in found.baselines.items()}
    return {
        "status": found.status,
        "verdict": found.verdict,
        "remain": found.remain,
        "as near": found.as_near,
        "left out": found.left_out,
        "nearest": {
            "candidate": best.fit.candidate,
            "kernel": best.fit.kernel,
            "values": best.fit.values,
            "alignment": best.fit.alignment,
            "regular": best.regular,
            "limit": best.limit,
            **spaces_of(best.distances),
        },
        "candidates": {
            f"{one.fit.candidate}, {one.fit.kernel}": {
                "ruled out": one.because,
                **spaces_of(one.distances),
            }
            for one in found.suspects
        },
        "nulls": nulls,
        "nearest null": min(nulls, key=lambda name: sum(nulls[name][s]["mean"] for s in SPACES)),
        "ladder": {
            one.name: {"kernel": one.kernel, "values": one.values, **spaces_of(one.distances)}
            for one in found.ladder
        },
    }


def spaces_of(distances: dict[str, Distance]) -> Record:
    keep = ("mean", "interval", "by_layer")
    return {
        space: {name: getattr(found, name) for name in keep} for space, found in distances.items()
    }


def by_configuration(rows: list[Record]) -> dict[str, list[Record]]:
    names = dict.fromkeys(row["model"] for row in rows)
    return {name: [row for row in rows if row["model"] == name] for name in names}


def verdict_of(rows: list[Record]) -> str:
    """What the identifications with all training seeds of a configuration allow."""
    status, remain = weakest([(row["status"], row["remain"]) for row in rows])
    return f"{status}: {', '.join(remain)}" if status in NAMED else status


def of_seed(row: Record) -> str:
    """The verdict of one model, with the null or baseline that no candidate is nearer than."""
    if row["status"] in NAMED:
        return f"{row['status']}: {', '.join(row['remain'])}"
    return f"{row['status']} (as near: {row['as near'][0]})" if row["as near"] else row["status"]


def cell(distance: Record) -> str:
    low, high = distance["interval"]
    return f"{distance['mean']:.2g} ({low:.2g}, {high:.2g})"


def together(cells: list[str]) -> str:
    """The cells of all seeds, or one cell if they are equal."""
    return cells[0] if len({*cells}) == 1 else "; ".join(cells)


def verdict_table(rows: list[Record]) -> str:
    header = ["model", "error / exact error", "Nadaraya-Watson", "mean", "zero"]
    header += ["verdict of each seed", "verdict of all seeds"]
    lines = []
    for name, own in by_configuration(rows).items():
        others = [
            sum(r[b] / r["exact"] for r in own) / len(own)
            for b in ("nadaraya_watson", "mean", "zero")
        ]
        ratios = ", ".join(f"{r['ratio']:.3g}" for r in own)
        verdicts = together([of_seed(r) for r in own])
        lines.append([name, ratios, *(f"{x:.3g}" for x in others), verdicts, verdict_of(own)])
    return to_markdown((header, lines))


def distance_table(rows: list[Record]) -> str:
    header = ["model", "seed", "nearest solver, kernel", "step at each layer"]
    header += [
        *(TITLES[space] for space in SPACES),
        *(f"last layer, {TITLES[space]}" for space in SPACES),
    ]
    header += ["nearest null", *(f"null, {TITLES[space]}" for space in SPACES)]
    lines = []
    for row in rows:
        best, null = row["nearest"], row["nulls"][row["nearest null"]]
        steps = " ".join(map(str, best["alignment"])) + (" (limit)" if best["limit"] else "")
        lines.append([
            row["model"],
            str(row["seed"]),
            f"{best['candidate']}, {best['kernel']}",
            steps + ("" if best["regular"] else " (irregular)"),
            *(cell(best[space]) for space in SPACES),
            *(f"{best[space]['by_layer'][-1]:.2g}" for space in SPACES),
            row["nearest null"],
            *(cell(null[space]) for space in SPACES),
        ])  # fmt: skip
    return to_markdown((header, lines))


def ladder_table(rows: list[Record]) -> str:
    """The distance of every statement in hat matrices, or in predictions if it has no other."""
    rungs = list(rows[0]["ladder"])
    lines = []
    for name, own in by_configuration(rows).items():
        cells = []
        for rung in rungs:
            found = [r["ladder"][rung] for r in own]
            means = [each.get("hat", each.get("prediction"))["mean"] for each in found]
            cells.append(spread(means))
        lines.append([name, *cells, spread([r["nearest"]["hat"]["mean"] for r in own])])
    return to_markdown((["model", *rungs, "nearest solver"], lines))


def spread(values: list[float]) -> str:
    """The least and the largest value over the seeds."""
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return low if low == high else f"{low} to {high}"


def markdown(rows: list[Record]) -> str:
    """Verdicts of every configuration, distances of every model, and the ladder."""
    ordered = [row for own in by_configuration(rows).values() for row in own]
    return "\n".join(make(ordered) for make in (verdict_table, distance_table, ladder_table))


def subjects_figure(rows: list[Record], meta: Record) -> Figure:
    """Distances of every model to the nearest solver and to the nearest null, with intervals."""
    grouped, seeds = by_configuration(rows), meta["training seeds"]
    figure = Figure(figsize=(9.6, 0.6 + 0.42 * len(grouped)), layout="constrained")
    axes = figure.subplots(1, len(SPACES), sharey=True)
    for axis, space in zip(axes, SPACES, strict=True):
        for i, own in enumerate(grouped.values()):
            for row in own:
                k = seeds.index(row["seed"])
                null = row["nulls"][row["nearest null"]]
                kinds = {
                    "nearest solver": (BLUE, row["nearest"][space], -0.16),
                    "nearest baseline or null": (ORANGE, null[space], 0.16),
                }
                for label, (color, found, shift) in kinds.items():
                    low, high = found["interval"]
                    place = i + shift + 0.09 * (k - (len(seeds) - 1) / 2)
                    axis.plot([low, high], [place, place], color=color, linewidth=1)
                    axis.plot(
                        found["mean"], place, MARKS[k % 3], color=color, markersize=3.5,
                        linestyle="", label=f"{label}, training seed {row['seed']}",
                    )  # fmt: skip
        for i in range(len(grouped)):
            axis.axhline(i + 0.5, color="black", alpha=0.08, linewidth=0.8)
        axis.axvline(CLOSE, color="black", linestyle=":", linewidth=1, label=f"close: {CLOSE}")
        axis.set_xlim(left=0)
        axis.set_xlabel(f"relative distance in {TITLES[space]}")
        axis.grid(alpha=0.25, axis="x")
    axes[0].set_yticks(range(len(grouped)), list(grouped), fontsize=7)
    axes[0].invert_yaxis()
    words = ", ".join(map(str, seeds))
    title = (
        f"training seeds {words}, seed {meta['seed']} of tasks; mean over layers, 95 % intervals"
    )
    figure.suptitle(f"{title}; {meta['dtype']}", fontsize=8)
    legend(figure, *axes, ncols=4)
    return figure
