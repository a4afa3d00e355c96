"""The result of `identify`: its verdict, and a table of every candidate and baseline."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..._core.readable import readable
from ..._core.text_tables import TextTable, as_text, format_number
from .distances import BASELINES, NAMES, SPACES, CandidateResult, Distance, NestedModelResult
from .elimination import CLOSE
from .nested_models import DESCRIPTIONS, NULLS
from .stream_controls import EARLIER, MIXED, UNTRAINED

CONTROLS = {
    EARLIER: "the steps, decoded one layer earlier",
    MIXED: "other steps with the same span",
    UNTRAINED: "the steps, decoded from an untrained model",
}
"""Controls of streams, each at the candidate's own parameters, by the name in tables."""


def _listed(words: dict[str, str]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in words.items())


BASELINE_NOTE = "Baselines and nulls: " + _listed(BASELINES | NULLS)
BASELINE_NOTE += ". cond: condition number of K + ridge I, which puts the tasks into groups"
STREAM_NOTE = (
    f"Controls: {_listed(NULLS | CONTROLS)}. "
    "Independent steps: how many independent combinations of the steps so far each layer decodes. "
    "Effect: distance of the change of the answer from that of the candidate's construction, if "
    "its decoded states are removed, and if they are swapped for those of another task."
)
STATEMENT_NOTE = "Statements: " + _listed(DESCRIPTIONS)


def _candidate_table(
    candidates: Sequence[CandidateResult],
    baselines: dict[str, dict[str, Distance]],
    strata: tuple[float, ...],
) -> TextTable:
    """A line for every candidate and for every baseline, with the distances in both spaces.

    The last column has the distances of predictions in the groups of tasks, by condition number.
    For streams, it has the results of controls instead, and baselines are controls of the first
    candidate.
    """
    edges = ", ".join(f"{low} to {high}" for low, high in pairwise(map(format_number, strata)))
    last = [f"prediction, cond {edges}"]
    stream = candidates[0].stream_result
    if stream:
        last = ["nearest control", "independent steps", "effect if removed, swapped"]
    header = ["candidate", "kernel", *candidates[0].distances, "ruled out by"]
    header += ["solver step at each layer", "parameters", *last]
    lines, last_lines = [], []
    for one in candidates:
        cells = [one.reason, _steps_cell(one), ", ".join(parameters_of(one.fit.values))]
        cells = [*map(distance_cell, one.distances.values()), *cells, *_last_cells(one)]
        lines.append([one.fit.candidate, one.fit.kernel, *cells])
    for name, of in baselines.items():
        cells = [""] * len(last) if stream else [_strata_cell(of["prediction"])]
        last_lines.append([name, "", *map(distance_cell, of.values()), "", "", "", *cells])
    title = "Relative distance between layers and solver steps, mean over layers (95 % interval)"
    return TextTable(title, header, [lines, last_lines])


def _last_cells(result: CandidateResult) -> list[str]:
    if (stream := result.stream_result) is None:
        return [_strata_cell(result.distances["prediction"])]
    nearest = min(stream.controls, key=lambda name: total(stream.controls[name]))
    cells = ", ".join(format_number(d.mean) for d in stream.controls[nearest].values())
    effects = ", ".join(map(format_number, stream.effects.values()))
    return [f"{nearest} ({cells})", " ".join(map(str, stream.ranks)), effects]


def total(distances: dict[str, Distance]) -> float:
    return sum(d.mean for d in distances.values())


def _steps_cell(result: CandidateResult) -> str:
    steps, words = " ".join(map(str, result.fit.alignment)), []
    if not result.regular:
        words.append("irregular")
    if result.limit:
        words.append("limit")
    return f"{steps} ({', '.join(words)})" if words else steps


def _model_table(best: CandidateResult, models: Sequence[NestedModelResult]) -> TextTable:
    """A line for every statement about the model, from weak to strong, and the nearest solver."""
    lines = [
        [one.name, one.kernel, *_cells_of(one.distances), ", ".join(parameters_of(one.values))]
        for one in models
    ]
    lines.append([f"solver: {best.fit.candidate}", best.fit.kernel, *_cells_of(best.distances), ""])
    title = "Nested models: relative distance to what fulfils a statement, mean over layers"
    return TextTable(title, ["the model is", "kernel", "prediction", "hat", "parameters"], [lines])


def parameters_of(values: dict[str, float]) -> list[str]:
    return [f"{key} {value:.3g}" for key, value in values.items()]


def _cells_of(distances: dict[str, Distance]) -> list[str]:
    return [distance_cell(distances[space]) if space in distances else "" for space in SPACES]


def distance_cell(d: Distance) -> str:
    low, high = map(format_number, d.interval)
    return f"{format_number(d.mean)} ({low}, {high})"


def _strata_cell(d: Distance) -> str:
    return ", ".join(map(format_number, d.by_stratum))


EXACT = 0.01
"""Largest relative distance of a candidate that is identified."""
IDENTIFIED, NEAR, TIED, NONE = "identified", "close to", "not distinguishable", "none is close"
NOTHING = "not identified"
STATUSES = (IDENTIFIED, NEAR, TIED, NONE, NOTHING)
"""What `identify` says, from the strongest statement to the weakest."""
REASONS = {
    IDENTIFIED: "every other candidate is farther on the same tasks, diverges, takes no step, or "
    "is a more general form of this solver that is no nearer",
    TIED: "on the same tasks, no difference between their distances is beyond chance",
}


@readable
class Identification(NamedTuple):
    """Result of `identify`: the verdict, all candidates and the baselines.

    Attributes:
        status: "identified" (one candidate remains, at most `EXACT` = 0.01 away in both spaces, at
            regular steps), "close to" (one remains, farther or at irregular steps), "not
            distinguishable" (several remain), "none is close" (the best candidate is farther than
            `CLOSE` = 0.1 in one space) or "not identified" (none remains).
        remain: names of the candidates that were not ruled out.
        candidates: results of all candidates, first those that remain; each group the nearest
            first.
        baselines: {baseline: {space: `Distance`}}. The baseline "zero" predicts 0, "mean" the mean
            of the supports' y, and "start" is the prediction before the first layer. The nulls take
            no steps: "interpolation" is between 0 and exact kernel ridge regression, "ridge path"
            is that regression with a ridge per layer, "gradient flow" has a time per layer.
        strata: condition numbers at the edges of the groups of tasks [strata + 1].
        tied: names of the baselines and nulls that are at least as near to the model as the
            nearest candidate; the nearest first.
        nested_models: weaker statements about the model, from weak to strong.
        num_excluded: number of tasks that are left out, with values 100 times those of most tasks.
    """

    status: str
    remain: tuple[str, ...]
    candidates: tuple[CandidateResult, ...]
    baselines: dict[str, dict[str, Distance]]
    strata: tuple[float, ...]
    tied: tuple[str, ...]
    nested_models: tuple[NestedModelResult, ...] = ()
    num_excluded: int = 0

    @property
    def best(self) -> CandidateResult:
        """The nearest candidate that was not ruled out, or the nearest of all if none remains."""
        return self.candidates[0]

    @property
    def verdict(self) -> str:
        """The status, the candidates that remain and the reason, in a sentence, and warnings."""
        return "; ".join([self.statement, *self.warnings])

    @property
    def warnings(self) -> list[str]:
        """What should be known of the arrays that the statement rests on."""
        distances = {one.name: one.distances for one in self.nested_models}
        fits = next(iter(self.best.distances.values())).mean <= EXACT
        words = []
        if self.num_excluded:
            words.append(f"{self.num_excluded} tasks were left out, as their values explode")
        gap = distances["homogeneous"]["prediction"].mean if "homogeneous" in distances else 0.0
        if fits and self.status != IDENTIFIED and gap > CLOSE:
            words.append(
                "the hat matrices do not explain the predictions (homogeneous: "
                f"{gap:.2g}); were they computed without gradients?"
            )
        return words

    @property
    def statement(self) -> str:
        """The verdict without warnings."""
        stream, distances = self.best.stream_result, self.best.distances.items()
        if self.tied:
            words = {**BASELINES, **NULLS, **CONTROLS}[self.tied[0]]
            one, two = (NAMES[space] for space in self.best.distances)
            where = f"in {one} and in {two} alike" if stream else f"neither in {one} nor in {two}"
            return f"{self.status}: no candidate is nearer than {words}, {where}"
        if self.status == NOTHING:
            prefix = "is decodable, but " if stream and stream.effects else "is ruled out: "
            return f"{self.status}: {self.best.fit.candidate} {prefix}{self.best.reason}"
        if self.status == NONE:
            away = " and ".join(f"{d.mean:.2g} away in {NAMES[space]}" for space, d in distances)
            others = f"; tied: {', '.join(self.remain[1:])}" if self.remain[1:] else ""
            nearest = f"nearest: {self.best.fit.candidate}, {away}{others}"
            return f"{self.status} ({nearest}); close is at most {CLOSE} in each"
        named = f"{self.status}: {', '.join(self.remain)}"
        large = [f"{d.mean:.2g} in {NAMES[space]}" for space, d in distances if d.mean > EXACT]
        if self.status == TIED and large:
            named += f", and the nearest is only close ({' and '.join(large)})"
        if self.status != NEAR:
            and_controls = "every control and " if self.depth and self.status == IDENTIFIED else ""
            return f"{named}{self.depth}; {and_controls}{REASONS[self.status]}"
        distance = f"its distance is {' and '.join(large)}"
        reasons = {
            f"{distance} (identified: at most {EXACT})": large,
            "its steps at the layers are not regular": not self.best.regular,
            f"a layer is at the limit of {self.best.limit} steps": self.best.limit,
        }
        why = [words for words, holds in reasons.items() if holds]
        why = why or ["its use is not tested, and it has as many parameters as layers with steps"]
        return f"{named}{self.depth}; {', and '.join(why)}"

    @property
    def depth(self) -> str:
        """What is known of the nearest candidate's steps in a stream, in words, or ""."""
        stream = self.best.stream_result
        if stream is None or self.status in (NONE, NOTHING):
            return ""
        use = "used" if stream.effects else "use not tested"
        return f" (decodable, arrives in order, {use})"

    def __str__(self) -> str:
        """The table of candidates and the verdict, as `icl-krr identify` prints them."""
        return as_text(*self.tables, self.verdict)

    @property
    def tables(self) -> list[TextTable | str]:
        """The tables of the candidates and of the nested models, each with what its names mean."""
        first = _candidate_table(self.candidates, self.baselines, self.strata)
        if stream := self.best.stream_result:
            line = [f"{name}: {distance_cell(of['state'])}" for name, of in stream.supports.items()]
            support_line = f"States at the supports: {'; '.join(line) or 'not read'}"
            return [first, STREAM_NOTE, support_line]
        return [first, BASELINE_NOTE, _model_table(self.best, self.nested_models), STATEMENT_NOTE]


def identification(
    candidates: Sequence[CandidateResult],
    baselines: dict[str, dict[str, Distance]],
    tied: tuple[str, ...],
    strata: tuple[float, ...] = (),
    nested_models: tuple[NestedModelResult, ...] = (),
    num_excluded: int = 0,
    last: Collection[str] = (),
) -> Identification:
    """The result: candidates that remain come first, each group in the order of its distances.

    Before those that a comparison rules out are those that only the test of use rules out; `last`
    are the names of those whose distances say nothing.
    """

    def place(one: CandidateResult) -> tuple[bool, bool, bool, float]:
        tested = one.stream_result is not None and bool(one.stream_result.effects)
        return one.fit.candidate in last, bool(one.reason), not tested, total(one.distances)

    candidates = sorted(candidates, key=place)
    remain = [one for one in candidates if not one.reason]
    largest = [max(distance.mean for distance in one.distances.values()) for one in remain]
    best, status = candidates[0], status_of(largest, _is_conclusive(candidates[0]))
    if status == TIED and best.stream_result and largest[0] > EXACT:
        status = NEAR  # several are close, and none is what the model runs
    names = tuple(one.fit.candidate for one in remain)
    baselines = best.stream_result.controls if best.stream_result else baselines
    return Identification(
        status, names, tuple(candidates), baselines, strata, tied, nested_models, num_excluded
    )


def _is_conclusive(one: CandidateResult) -> bool:
    """Whether the steps are regular, and use was tested or more layers have steps than parameters.

    Of predictions, whose use needs no test, no layer may be aligned with the last step.
    """
    if one.stream_result is None:
        return one.regular and not one.limit
    used = bool(one.stream_result.effects)
    return used or int(np.count_nonzero(one.fit.alignment)) > len(one.fit.values)


def status_of(distances: Sequence[float], regular: bool = True) -> str:
    """What can be said of candidates that remain, by their distances, the nearest first."""
    if not distances:
        return NOTHING
    if distances[0] > CLOSE:
        return NONE
    if len(distances) > 1:
        return TIED
    return IDENTIFIED if distances[0] <= EXACT and regular else NEAR
