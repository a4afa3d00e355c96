"""What a claim gave over several seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...files import Lines, to_markdown
from .claim import CORRECTED, FALSE, HOLDS, OPEN, PRINTED, Check, Claim, Verdict, readings, works


class Result(NamedTuple):
    """The results of a claim over several seeds.

    Attributes:
        id: name of the claim, such as "C16".
        statement, source, quote, truth, untested, corrected, told, dtype: those of the `Claim`.
        status: verdict of this run. If seeds differ, the least favourable verdict.
        expected: verdict that this library found before.
        check: name of the headline check (see `Verdict.headline`).
        measured: measured value of the headline check, mean over seeds.
        interval: 95 % bootstrap interval of `measured`, None for a single seed.
        bound: bound of the headline check, mean over seeds.
        tightness: tightness of the headline check, mean over seeds.
        vacuous: vacuous share of the headline check, mean over seeds.
        seed: first seed with a counterexample, None if there is no counterexample.
        draw: first draw of that seed with a counterexample (see `Check.draw`).
        seeds: number of seeds.
        seconds: run time in seconds.
        cpu_seconds: time of all CPU cores in seconds, with compilation.
        checks: all checks. Each has the values of the seed with the largest tightness, and its
            shares are means over seeds.
    """

    id: str
    statement: str
    source: str
    quote: str
    truth: str
    untested: tuple[str, ...]
    corrected: str
    told: str
    status: str
    expected: str
    check: str
    measured: float
    interval: tuple[float, float] | None
    bound: float
    tightness: float
    vacuous: float
    seed: int | None
    draw: int | None
    dtype: str
    seeds: int
    seconds: float
    cpu_seconds: float
    checks: tuple[Check, ...]

    @property
    def readings(self) -> dict[str, str]:
        """The readings of the statement that were considered, and the verdict under each."""
        found = readings(self.checks) or {PRINTED: self.status in (HOLDS, CORRECTED)}
        tested = {words: HOLDS if holds else "false" for words, holds in found.items()}
        return tested | dict.fromkeys(self.untested, "not tested")

    @property
    def agrees(self) -> bool:
        """Whether the status equals the expected status."""
        return self.status == self.expected


OF_CLAIM = (
    "statement",
    "source",
    "quote",
    "truth",
    "untested",
    "corrected",
    "told",
    "expected",
    "dtype",
)
"""Fields of a claim that its result has, too."""


def summarise(
    name: str, claim: Claim, verdicts: dict[int, Verdict], seconds: float, cpu_seconds: float
) -> Result:
    found = [verdict.status for verdict in verdicts.values()]
    status = next(status for status in (OPEN, FALSE, CORRECTED, HOLDS) if status in found)
    seed, verdict = next(pair for pair in verdicts.items() if pair[1].status == status)
    place = verdict.checks.index(verdict.headline)
    each = [own.checks[place] for own in verdicts.values()]
    measured = np.array([check.measured for check in each])
    broken = not verdict.headline.holds
    return Result(
        id=name,
        status=status,
        check=verdict.headline.name,
        measured=float(np.mean(measured)),
        interval=bootstrap(measured),
        seed=seed if broken else None,
        draw=verdict.headline.draw,
        seeds=len(verdicts),
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        checks=tuple(
            over_seeds(dict(zip(verdicts, same, strict=True)))
            for same in zip(*(verdict.checks for verdict in verdicts.values()), strict=True)
        ),
        **{name: getattr(claim, name) for name in OF_CLAIM},
        **means(each, "bound", "tightness", "vacuous"),
    )


def over_seeds(checks: dict[int, Check]) -> Check:
    """Return the check of largest tightness with its seed and with shares averaged over seeds."""
    seed, worst = max(checks.items(), key=lambda pair: pair[1].tightness)
    return worst._replace(**means(checks.values(), "violations", "vacuous"), seed=seed)


def means(checks: Iterable[Check], *names: str) -> dict[str, Any]:
    return {name: float(np.mean([getattr(check, name) for check in checks])) for name in names}


def bootstrap(values: np.ndarray) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the mean, or None for a single value."""
    if len(values) < 2:
        return None
    picks = np.random.default_rng(0).integers(len(values), size=(2000, len(values)))
    low, high = np.percentile(np.mean(values[picks], axis=1), [2.5, 97.5])
    return float(low), float(high)


COLUMNS: dict[str, Callable[[Result], str]] = {
    "claim": lambda result: f"{result.id}: {result.statement}",
    "verdict": lambda result: result.status,
    "source": lambda result: result.source,
    "as printed": lambda result: result.quote,
    "what holds": lambda result: result.truth,
    "whose correction": lambda result: result.corrected,
    "models are told": lambda result: result.told,
    "measured": lambda result: f"{result.measured:.3g}: {result.check}",
    "bound": lambda result: f"{result.bound:.3g}",
    "dtype": lambda result: result.dtype,
}


def table(results: Iterable[Result]) -> Lines:
    """Return the table of claims that the README and the report show."""
    return [*COLUMNS], [[of(result) for of in COLUMNS.values()] for result in results]


def compute(results: Iterable[Mapping[str, Any]]) -> str:
    """Say how much computing time the claims took."""
    seconds = sum(result["cpu_seconds"] for result in results)
    return f"Computing time: {seconds:.0f} CPU seconds, with compilation."


def references(results: Iterable[Result]) -> list[str]:
    """Return a line for each work that the claims quote."""
    quoted = works(result.source for result in results)
    return [f"{name}: {work}." for name, work in quoted.items()]


def markdown(results: Iterable[Result]) -> str:
    results = list(results)
    listed = "".join(f"- {line}\n" for line in references(results))
    parts = (
        "The claims quote:",
        listed + to_markdown(table(results)),
        "The readings of each statement that were considered, and the verdict under each:",
        to_markdown(table_of_readings(results)),
    )
    return "\n\n".join(part.strip() for part in parts) + "\n"


def table_of_readings(results: Iterable[Result]) -> Lines:
    lines = [
        [result.id, words, verdict]
        for result in results
        for words, verdict in result.readings.items()
    ]
    return ["claim", "reading", "verdict"], lines
