"""The result of `identify`: its verdict, and a table of every candidate and baseline."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from ..readable import readable
from ..text_tables import Table, as_text, number
from .candidate_fit import CandidateFit
from .distances import BASELINES, Distance

CLOSE = 0.1
"""Largest relative distance of a candidate that is close to the model."""
IDENTIFIED, TIED, NONE = "identified", "not distinguishable", "none is close"
NOTHING = "not identified"
REASONS = {
    IDENTIFIED: "every other candidate is farther, with disjoint intervals, takes no step, or is a "
    "more general form of this solver",
    TIED: "the intervals of these candidates overlap in predictions and in hat matrices, and none "
    "is a special case of another",
    NONE: f"the nearest candidate is farther than {CLOSE} in predictions or in hat matrices",
}
LAST_ROWS = "Baselines: " + "; ".join(f"{name}: {words}" for name, words in BASELINES.items())


@readable
class Suspect(NamedTuple):
    """A fitted candidate, its distances, and the reason why it was ruled out.

    Attributes:
        fit: the fitted candidate.
        distances: {space: `Distance`} for the spaces "prediction" and "hat".
        because: why the candidate was ruled out: the space where it is farther than the nearest
            candidate, a remaining candidate that is a special case of it, that it takes no step, or
            a baseline that is as near. Empty if the candidate remains.
    """

    fit: CandidateFit
    distances: dict[str, Distance]
    because: str


@readable
class Identification(NamedTuple):
    """Result of `identify`: the verdict, all candidates and the baselines.

    Attributes:
        status: "identified" (one candidate remains), "not distinguishable" (several remain),
            "none is close" (the best candidate is farther than `CLOSE` = 0.1 in one space) or "not
            identified" (no candidate is nearer than a baseline, so none remains).
        remain: names of the candidates that were not ruled out.
        suspects: all candidates: first those that remain, then the others, each group in the order
            of increasing distance.
        baselines: {baseline: {space: `Distance`}}. The baseline "zero" predicts 0, "mean" predicts
            the mean of the supports' y, and "start" is the prediction before the first layer.
        strata: condition numbers at the edges of the groups of tasks [strata + 1], including the
            smallest and the largest.
        as_near: names of the baselines that no candidate is nearer than, the nearest first.
    """

    status: str
    remain: tuple[str, ...]
    suspects: tuple[Suspect, ...]
    baselines: dict[str, dict[str, Distance]]
    strata: tuple[float, ...]
    as_near: tuple[str, ...]

    @property
    def best(self) -> Suspect:
        """The nearest candidate that was not ruled out, or the nearest of all if none remains."""
        return self.suspects[0]

    @property
    def verdict(self) -> str:
        """The status, the candidates that remain and the reason, in a sentence."""
        if self.as_near:
            return (
                f"{self.status}: no candidate is nearer than {BASELINES[self.as_near[0]]}, neither "
                "in predictions nor in hat matrices"
            )
        return f"{self.status}: {', '.join(self.remain)}; {REASONS[self.status]}"

    def __str__(self) -> str:
        """The table of candidates and the verdict, as `icl-krr identify` prints them."""
        return as_text(candidate_table(self), LAST_ROWS, self.verdict)


def candidate_table(found: Identification) -> Table:
    """A line for every candidate and for every baseline, with the distances in both spaces.

    The last column has the distances of predictions in the groups of tasks, which have the
    condition numbers in its header.
    """
    edges = pairwise(map(number, found.strata))
    header = [
        "candidate",
        "kernel",
        "prediction",
        "hat",
        "ruled out by",
        "solver step at each layer",
        "parameters",
        f"prediction, cond {', '.join(f'{low} to {high}' for low, high in edges)}",
    ]
    candidates = [
        [
            suspect.fit.candidate,
            suspect.fit.kernel,
            *map(distance_cell, suspect.distances.values()),
            suspect.because,
            " ".join(map(str, suspect.fit.alignment)),
            ", ".join(f"{key} {value:.3g}" for key, value in suspect.fit.values.items()),
            strata_cell(suspect.distances["prediction"]),
        ]
        for suspect in found.suspects
    ]
    baselines = [
        [
            name,
            "",
            *map(distance_cell, spaces.values()),
            *("", "", ""),
            strata_cell(spaces["prediction"]),
        ]
        for name, spaces in found.baselines.items()
    ]
    title = "Relative distance between layers and solver steps, mean over layers (95 % interval)"
    return Table(title, header, [candidates, baselines])


def distance_cell(d: Distance) -> str:
    return f"{number(d.mean)} ({number(d.interval[0])}, {number(d.interval[1])})"


def strata_cell(d: Distance) -> str:
    return ", ".join(map(number, d.by_stratum))
