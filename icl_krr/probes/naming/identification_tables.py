"""The tables of a result of `identify` and `identify_streams`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ...text_tables import Table, number
from .distances import BASELINES, SPACES, Distance
from .ladder import NULLS, WORDS
from .stream_targets import EARLIER, MIXED, UNTRAINED
from .suspect import Evidence, Statement, Suspect

CONTROLS = {
    EARLIER: "the steps, decoded one layer earlier",
    MIXED: "other steps with the same span",
    UNTRAINED: "the steps, decoded from an untrained model",
}
"""Controls of streams, each at the candidate's own parameters, by the name in tables."""
LAST_ROWS = "Baselines and nulls: " + "; ".join(
    f"{name}: {words}" for name, words in {**BASELINES, **NULLS}.items()
)
LAST_ROWS += ". cond: condition number of K + ridge I, which puts the tasks into groups"
LAST_COLUMNS = (
    f"Controls: {'; '.join(f'{name}: {words}' for name, words in (NULLS | CONTROLS).items())}. "
    "Independent steps: how many independent combinations of the steps so far each layer decodes. "
    "Effect: distance of the change of the answer from that of the candidate's construction, if "
    "its decoded states are removed, and if they are swapped for those of another task."
)
STEPS_OF_LADDER = "Statements: " + "; ".join(f"{name}: {words}" for name, words in WORDS.items())
Baselines = dict[str, dict[str, Distance]]


def tables(
    suspects: Sequence[Suspect],
    baselines: Baselines,
    strata: tuple[float, ...],
    ladder: Sequence[Statement],
) -> list[Table | str]:
    """The tables of a result, each followed by what its names mean."""
    first = candidate_table(suspects, baselines, strata)
    if suspects[0].evidence:
        return [first, LAST_COLUMNS, at_supports(suspects[0].evidence)]
    return [first, LAST_ROWS, ladder_table(suspects[0], ladder), STEPS_OF_LADDER]


def at_supports(known: Evidence) -> str:
    """What is decoded of the first candidate from the streams at the supports, in words."""
    found = [f"{name}: {distance_cell(of['state'])}" for name, of in known.supports.items()]
    return f"States at the supports: {'; '.join(found) or 'not read'}"


def candidate_table(
    suspects: Sequence[Suspect], baselines: Baselines, strata: tuple[float, ...]
) -> Table:
    """A line for every candidate and for every baseline, with the distances in both spaces.

    The last column has the distances of predictions in the groups of tasks, by condition number. Of
    streams, there is the evidence instead, and baselines are controls of the first candidate.
    """
    edges = ", ".join(f"{low} to {high}" for low, high in pairwise(map(number, strata)))
    last = [f"prediction, cond {edges}"]
    if suspects[0].evidence:
        last = ["nearest control", "independent steps", "effect if removed, swapped"]
    header = ["candidate", "kernel", *suspects[0].distances, "ruled out by"]
    header += ["solver step at each layer", "parameters", *last]
    candidates = [
        [
            suspect.fit.candidate,
            suspect.fit.kernel,
            *map(distance_cell, suspect.distances.values()),
            suspect.because,
            steps_cell(suspect),
            ", ".join(parameters_of(suspect.fit.values)),
            *last_cells(suspect),
        ]
        for suspect in suspects
    ]
    last_rows = [
        [
            name,
            "",
            *map(distance_cell, of.values()),
            *("", "", ""),
            *("" if suspects[0].evidence else strata_cell(of["prediction"]) for _ in last),
        ]
        for name, of in baselines.items()
    ]
    title = "Relative distance between layers and solver steps, mean over layers (95 % interval)"
    return Table(title, header, [candidates, last_rows])


def last_cells(suspect: Suspect) -> list[str]:
    known = suspect.evidence
    if known is None:
        return [strata_cell(suspect.distances["prediction"])]
    total = {name: sum(d.mean for d in of.values()) for name, of in known.controls.items()}
    nearest = min(total, key=lambda name: total[name])
    cells = ", ".join(number(d.mean) for d in known.controls[nearest].values())
    effects = ", ".join(map(number, known.effects.values()))
    return [f"{nearest} ({cells})", " ".join(map(str, known.ranks)), effects]


def steps_cell(suspect: Suspect) -> str:
    """The steps of the layers, with a word if they are irregular or at the limit."""
    steps = " ".join(map(str, suspect.fit.alignment))
    words = ["irregular"] * (not suspect.regular) + ["limit"] * bool(suspect.limit)
    return f"{steps} ({', '.join(words)})" if words else steps


def ladder_table(best: Suspect, ladder: Sequence[Statement]) -> Table:
    """A line for every statement about the model, from weak to strong, and the nearest solver."""
    lines = [
        [one.name, one.kernel, *cells_of(one.distances), ", ".join(parameters_of(one.values))]
        for one in ladder
    ]
    solver = f"solver: {best.fit.candidate}"
    lines.append([solver, best.fit.kernel, *cells_of(best.distances), ""])
    title = "Ladder: relative distance to what fulfils a statement, mean over layers"
    return Table(title, ["the model is", "kernel", "prediction", "hat", "parameters"], [lines])


def parameters_of(values: dict[str, float]) -> list[str]:
    return [f"{key} {value:.3g}" for key, value in values.items()]


def cells_of(distances: dict[str, Distance]) -> list[str]:
    return [distance_cell(distances[space]) if space in distances else "" for space in SPACES]


def distance_cell(d: Distance) -> str:
    return f"{number(d.mean)} ({number(d.interval[0])}, {number(d.interval[1])})"


def strata_cell(d: Distance) -> str:
    return ", ".join(map(number, d.by_stratum))
