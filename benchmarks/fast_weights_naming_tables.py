"""The tables of `benchmarks.fast_weights_naming`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from icl_krr.catalogue import candidate
from icl_krr.files import to_markdown

Record = dict[str, Any]
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
    """How far each model is from its rule, and from the nearest other, the nearest of all cases.

    A rule that has the true one as a special case is no other.
    """
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
    header = ["decoder, seed", "error / exact", "status", "nearest: predictions, hat matrices"]
    header += [
        "the same at all supports",
        "exact ridge regression there",
        "nearest baseline or null",
    ]
    header += ["by the stream"]
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
