"""The tables and the figure of `benchmarks.profiles`, from its rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.records import RESULTS
from benchmarks.streams_cases import Case
from benchmarks.streams_models import JUNK, NOISE, PLAIN, RANDOM, STRANGER
from benchmarks.streams_readings import READINGS
from benchmarks.streams_tables import group_of, of, said_of
from icl_krr.experiments.identify.error_profile import CANDIDATES
from icl_krr.experiments.identify.profile_paths import NULLS
from icl_krr.experiments.solverbench.score import Share, outcome
from icl_krr.experiments.solverbench.verdicts import IDENTIFIED, NEAR, TIED
from icl_krr.files import to_markdown

Row = dict[str, Any]
OWN, FACTOR, PROBE = "its own prediction", "one factor per layer", "a linear probe"
READERS = {
    OWN: "the prediction that the model itself would make after a layer",
    FACTOR: "that prediction times a factor per layer, fitted to the targets: an ideal probe",
    PROBE: "a ridge regression of the targets on all channels, per layer: the published reading",
}
KNOWN = (PLAIN, JUNK, NOISE)
THROUGH_STREAMS = ("state", "innovation", "streams", "use")
HOWS = [("error", "1:1"), ("gap", "1:1"), ("error", "monotone"), ("gap", "monotone")]
"""Measures and alignments, in the order of the tables."""

ABOUT = """\
`python -m benchmarks.profiles` reads models of known solver by their errors alone, as in published
work: read a prediction from every layer, take its mean squared error ("error") or its relative
distance to exact kernel ridge regression ("gap") on 16 tasks, and find the solver whose errors,
step by step, are nearest in log10. Kernel width, ridge and step size of every candidate are tuned
on 16 other tasks, in the same way for all, for every measure and alignment anew. "1:1": layer l is
compared with step l. "monotone": a later layer has no earlier step, of 12.

- Candidates: {candidates}. Nulls, which run no solver: {nulls}.
- right: the nearest solver is the one that runs. among: it is not, but the one that runs is as near
  beyond chance. certain and wrong: a wrong solver is nearest, and nothing else is as near. a null
  is as near: the errors do not show that any solver runs.
- Read from: {readers}
- Wilson's 95 % intervals of shares. 6 layers, float64. Models are rotated; those with noise have
  every weight multiplied by 1 + level z.
"""


def listed(rows: Iterable[Row]) -> list[Row]:
    """Models that run a candidate of the protocol."""
    return [row for row in rows if row["right"]]


def reading(row: Row, reader: str, how: tuple[str, str]) -> Row | None:
    """What one reading says of a model, None if it was not read so."""
    every = row["read"].get(reader, {"readings": []})["readings"]
    found = [one for one in every if (one["measure"], one["alignment"]) == how]
    return found[0] if found else None


def outcome_of(row: Row, said: Row) -> str:
    names = {said["nearest"], *said["as near"]}
    if said["nearest"] in row["right"]:
        return "right"
    if names & {*row["right"]}:
        return "among"
    return "wrong" if said["as near"] else "certain and wrong"


def with_null(said: Row) -> bool:
    return bool({*said["as near"]} & {*NULLS})


def share(found: Iterable[bool]) -> str:
    values = list(found)
    return str(Share.of(sum(values), len(values))) if values else "-"


def summary(rows: list[Row], readers: Iterable[str]) -> tuple[list[str], list[list[str]]]:
    header = ["read from", "measure", "alignment", "models", "right", "among", "wrong"]
    header += ["certain and wrong", "a null is as near", "right one", "next one"]
    header += ["strangers named for certain", "strangers: a null is as near"]
    lines = []
    known, strange = listed(of(rows, *KNOWN)), of(rows, STRANGER, RANDOM)
    for reader in readers:
        for how in HOWS:
            each = [(row, said) for row in known if (said := reading(row, reader, how))]
            if not each:
                continue
            found = [outcome_of(row, said) for row, said in each]
            own = [least(said, row["right"]) for row, said in each]
            rest = [least(said, {*CANDIDATES} - {*row["right"]}) for row, said in each]
            other = [said for row in strange if (said := reading(row, reader, how))]
            lines.append([
                reader,
                *how,
                str(len(each)),
                *(share(one == name for one in found) for name in OUTCOMES),
                share(with_null(said) for _, said in each),
                f"{median(own):.2g}",
                f"{median(rest):.2g}",
                share(not said["as near"] for said in other),
                share(with_null(said) for said in other),
            ])  # fmt: skip
    return header, lines


OUTCOMES = ("right", "among", "wrong", "certain and wrong")


def least(said: Row, names: Iterable[str]) -> float:
    far = [one["distance"] for one in said["candidates"] if one["candidate"] in {*names}]
    return min(far, default=np.inf)


def by_group(rows: list[Row], readers: Iterable[str]) -> tuple[list[str], list[list[str]]]:
    """The nearest name by group of models, for the error, 1:1."""
    names = list(readers)
    header = ["models", "seeds", *(f"right, read from {name}" for name in names)]
    lines = []
    known = listed(of(rows, *KNOWN))
    for group in dict.fromkeys(map(group_of, known)):
        own = [row for row in known if group_of(row) == group]
        seeds = ", ".join(map(str, sorted({row["seed"] for row in own})))
        cells = []
        for name in names:
            each = [(row, said) for row in own if (said := reading(row, name, HOWS[0]))]
            cells.append(share(said["nearest"] in row["right"] for row, said in each))
        lines.append([f"{group} ({len(own)})", seeds, *cells])
    return header, lines


def confusion(
    rows: list[Row], reader: str, how: tuple[str, str]
) -> tuple[list[str], list[list[str]]]:
    """Rotated models by the solver that runs and by the nearest candidate or null."""
    names, counts = counted(rows, reader, how)
    header = ["runs", *names]
    lines = [
        [true, *(str(count) if count else "" for count in line)]
        for true, line in zip(CANDIDATES, counts, strict=True)
        if sum(line)
    ]
    return header, lines


def counted(rows: list[Row], reader: str, how: tuple[str, str]) -> tuple[list[str], np.ndarray]:
    names = [*CANDIDATES, *NULLS]
    counts = np.zeros((len(CANDIDATES), len(names)), int)
    for row in listed(of(rows, PLAIN)):
        if said := reading(row, reader, how):
            first = min(said["candidates"], key=lambda one: one["distance"])["candidate"]
            true = next(name for name in CANDIDATES if name in row["right"])
            counts[CANDIDATES.index(true), names.index(first)] += 1
    return names, counts


@cache
def through_streams() -> dict[tuple, Row]:
    """Verdicts of `benchmarks.streams`, by case."""
    path = RESULTS / "solverbench-streams.json"
    rows = json.loads(path.read_text())["rows"]
    names = [name for name in Case._fields if name != "probed"]
    return {tuple(row[name] for name in names): row for row in rows}


def beside(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """The readings through the stream, on the same models."""
    names = [name for name in Case._fields if name != "probed"]
    pairs = [(row, through_streams().get(tuple(row[name] for name in names))) for row in rows]
    header = ["reading", "models", "right", "wrong", "no name", "strangers", "named", "close to"]
    lines = []
    known = [(r, s) for r, s in pairs if s and r["kind"] in KNOWN and r["right"]]
    strange = [(r, s) for r, s in pairs if s and r["kind"] in (STRANGER, RANDOM)]
    for name in THROUGH_STREAMS:
        found = [outcome({"names": row["runs"]}, said_of(s, name)) for row, s in known]
        said = [said_of(s, name).status for _, s in strange]
        right = [one == "right" for one in found]
        wrong = [one in ("wrong", "close to another") for one in found]
        none = [not (a or b) for a, b in zip(right, wrong, strict=True)]
        lines.append([
            f"{name}: {READINGS[name]}",
            str(len(known)),
            *map(share, (right, wrong, none)),
            str(len(strange)),
            share(one in (IDENTIFIED, TIED) for one in said),
            share(one == NEAR for one in said),
        ])  # fmt: skip
    return header, lines


def strangers(rows: list[Row], readers: Iterable[str]) -> tuple[list[str], list[list[str]]]:
    names = list(readers)
    header = ["tasks", "model", *(f"nearest solver, {name}" for name in names)]
    header += ["nearest of all", "through the stream"]
    lines, keys = [], [name for name in Case._fields if name != "probed"]
    for row in of(rows, STRANGER):
        every = [reading(row, name, HOWS[0]) for name in names]
        cells = []
        for said in every:
            if said is None:
                cells.append("-")
                continue
            far = least(said, [said["nearest"]])
            sure = "" if said["as near"] else ", for certain"
            cells.append(f"{said['nearest']}, {far:.2g}{sure}")
        last: Any = next(said for said in every if said)
        first = min(last["candidates"], key=lambda one: one["distance"])
        other = through_streams().get(tuple(row[name] for name in keys))
        words = said_of(other) if other else None
        through = "-" if words is None else f"{words.status} {', '.join(words.names)}".strip()
        cells += [f"{first['candidate']}, {first['distance']:.2g}", through]
        lines.append([row["tasks"], row["about"], *cells])
    return header, lines


def apart(rows: list[Row], reader: str) -> tuple[list[str], list[list[str]]]:
    """How far the tuned candidates are from each known model: the noise-free, rotated ones."""
    header = ["tasks", "runs", *CANDIDATES, *NULLS]
    lines = []
    for row in of(rows, PLAIN):
        said = reading(row, reader, HOWS[0])
        if said and row["seed"] == 0:
            far = {one["candidate"]: one["distance"] for one in said["candidates"]}
            cells = [f"{far[name]:.2g}" if name in far else "" for name in header[2:]]
            lines.append([row["tasks"], f"{row['about']}, {row['kernel']}", *cells])
    return header, lines


def markdown(rows: list[Row], left: int) -> str:
    about = ABOUT.format(
        candidates=", ".join(CANDIDATES),
        nulls="; ".join(one.words for one in NULLS.values()),
        readers="; ".join(f"{name}: {words}" for name, words in READERS.items()) + ".",
    )
    tables = {
        "What each reading says of models of known solver, and of models that run no candidate. "
        '"Right one" and "next one": median distance in log10 of the solver that runs, and of the '
        "nearest other one": summary(rows, READERS),
        "The error, 1:1, by group of models": by_group(rows, READERS),
        **{
            f"Rotated models, nearest candidate or null by {measure}, {how}, read from {reader}": (
                confusion(rows, reader, (measure, how))
            )
            for measure, how in HOWS[::2]
            for reader in (OWN, PROBE)
        },
        "The same models through their streams (`python -m benchmarks.streams`, all candidates of "
        "the catalogue)": beside(rows),
        "Distance in log10 of every tuned candidate and null, error, 1:1, read from the model's "
        "own prediction": apart(rows, OWN),
        "Models that run no candidate, error, 1:1": strangers(rows, READERS),
    }
    parts = [about, f"{len(rows)} models; {left} were not run.\n"]
    parts += [f"{title}:\n\n{to_markdown(table)}\n" for title, table in tables.items() if table[1]]
    return "\n".join(parts)


def confusion_figure(rows: list[Row]) -> Figure:
    """Confusion matrices of the error profile on rotated models, beside that of the stream."""
    known = listed(of(rows, PLAIN))
    keys = [name for name in Case._fields if name != "probed"]
    panels = [
        ("error, 1:1, own prediction", *counted(rows, OWN, HOWS[0])),
        ("error, 1:1, linear probe", *counted(rows, PROBE, HOWS[0])),
        ("error, monotone, linear probe", *counted(rows, PROBE, HOWS[2])),
    ]
    names = [*CANDIDATES, "another solver", "no name"]
    counts = np.zeros((len(CANDIDATES), len(names)), int)
    for row in known:
        if other := through_streams().get(tuple(row[name] for name in keys)):
            said = said_of(other)
            own = "no name"
            if said.status in (IDENTIFIED, TIED):
                right = {*said.names} <= {*row["runs"]}
                own = row["right"][0] if right else said.names[0]
            place = own if own in names else "another solver"
            true = next(name for name in CANDIDATES if name in row["right"])
            counts[CANDIDATES.index(true), names.index(place)] += 1
    panels.append(("through the stream, with use", names, counts))
    figure = Figure(figsize=(18, 5.4), layout="constrained")
    for axis, (title, columns, found) in zip(
        figure.subplots(1, len(panels), sharey=True), panels, strict=True
    ):
        share = found / np.maximum(found.sum(axis=1, keepdims=True), 1)
        axis.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for (i, j), count in np.ndenumerate(found):
            if count:
                color = "white" if share[i, j] > 0.5 else "black"
                axis.text(j, i, str(count), ha="center", va="center", color=color)
        words = [name.replace("_", " ") for name in columns]
        axis.set_xticks(range(len(words)), words, rotation=60, ha="right", fontsize=8)
        axis.set_yticks(range(len(CANDIDATES)), [name.replace("_", " ") for name in CANDIDATES])
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("nearest candidate, or name")
    figure.axes[0].set_ylabel("solver that runs")
    seeds = ", ".join(map(str, sorted({row["seed"] for row in known})))
    title = f"Rotated models of known solver: number of models by name (seeds {seeds}, float64)"
    figure.suptitle(title, fontsize=11)
    return figure
