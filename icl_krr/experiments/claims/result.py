"""What a claim gave over several seeds."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .claim import CORRECTED, FALSE, HOLDS, OPEN, Check, Claim, Config, judge, readings


class Result(NamedTuple):
    """The results of a claim over several seeds.

    Attributes:
        status: verdict of this run. If seeds differ, the least favourable verdict.
        expected: verdict that this library found before; "" if a caller gave other settings.
        check: name of the headline check (see `Verdict.headline`).
        measured: mean over seeds, with its 95 % bootstrap `interval`, None for a single seed.
        seed: first seed with a counterexample, at its first `draw`, None if there is none.
        cpu_seconds: time of all CPU cores, with compilation.
        checks: each has the values of the seed with the largest tightness, and shares averaged
            over seeds.
    """

    id: str
    statement: str
    source: str
    quote: str
    truth: str
    untested: tuple[str, ...]
    corrected: str
    told: str
    file: str
    settings: Mapping[str, Any]
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
        found = readings(self.checks) or {"as stated here": self.status in (HOLDS, CORRECTED)}
        tested = {words: HOLDS if holds else "false" for words, holds in found.items()}
        return tested | dict.fromkeys(self.untested, "not tested")

    @property
    def agrees(self) -> bool:
        """Whether the status equals the expected status, if there is one."""
        return self.expected in ("", self.status)


OF_CLAIM = ("statement", "source", "quote", "truth", "untested", "corrected", "told", "dtype")
"""Fields of a claim that its result has, too."""


def summarise(name: str, claim: Claim, config: Config, cells: Mapping[int, Any]) -> Result:
    """The result over several seeds from what each gave (see `verify.measure`)."""
    verdicts = {
        seed: judge(*(Check(**check) for check in cell["checks"])) for seed, cell in cells.items()
    }
    found = [verdict.status for verdict in verdicts.values()]
    status = next(status for status in (OPEN, FALSE, CORRECTED, HOLDS) if status in found)
    seed, verdict = next(pair for pair in verdicts.items() if pair[1].status == status)
    place = verdict.checks.index(verdict.headline)
    each = [own.checks[place] for own in verdicts.values()]
    measured = np.array([check.measured for check in each])
    broken = not verdict.headline.holds
    known = config in (claim.config, claim.quick)
    return Result(
        id=name,
        file=claim.file,
        settings=named_values(config),
        expected=claim.expected if known else "",
        status=status,
        check=verdict.headline.name,
        measured=float(np.mean(measured)),
        interval=bootstrap(measured),
        seed=seed if broken else None,
        draw=verdict.headline.draw,
        seeds=len(verdicts),
        seconds=sum(cell["seconds"] for cell in cells.values()),
        cpu_seconds=sum(cell["cpu_seconds"] for cell in cells.values()),
        checks=tuple(
            over_seeds(dict(zip(verdicts, same, strict=True)))
            for same in zip(*(verdict.checks for verdict in verdicts.values()), strict=True)
        ),
        **{name: getattr(claim, name) for name in OF_CLAIM},
        **means(each, "bound", "tightness", "vacuous"),
    )


def named_values(config: Any) -> Any:
    """The settings by name, and the NamedTuples in them by name, too."""
    if isinstance(config, Config) or hasattr(config, "_asdict"):
        values = vars(config) if isinstance(config, Config) else config._asdict()
        return {name: named_values(value) for name, value in values.items()}
    return [*map(named_values, config)] if isinstance(config, tuple) else config


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
