"""What a claim gave over several seeds."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .claim import CORRECTED, FALSE, HOLDS, OPEN, Check, Claim, Config, headline, judge, readings

Record = dict[str, Any]
FIELDS = ("statement", "source", "quote", "truth", "untested", "corrected", "required_inputs")
"""What a record says of the claim itself."""


def summarise(name: str, claim: Claim, config: Config, cells: Mapping[int, Any]) -> Record:
    """The record of a claim over several seeds, from what each gave (see `verify.measure`).

    `status` is the verdict of this run, the least favourable one if seeds differ, and `expected`
    the one that this library found before, "" for other settings. `check` is the deciding check
    (see `headline`), and `measured` its mean over seeds, with a 95 % bootstrap `interval` (None for
    one seed). `counterexample` is the first seed and draw that violate it. Each of `checks` has the
    values of the seed with the largest tightness, and shares averaged over seeds. `cpu_seconds` is
    the time of all cores, with compilation. `readings` are those of the statement that were
    considered, with the verdict under each.
    """
    by_seed = {seed: [Check(**check) for check in cell["checks"]] for seed, cell in cells.items()}
    verdicts = {seed: judge(checks) for seed, checks in by_seed.items()}
    status = next(one for one in (OPEN, FALSE, CORRECTED, HOLDS) if one in verdicts.values())
    seed = next(seed for seed, one in verdicts.items() if one == status)
    head = headline(by_seed[seed])
    each = [checks[by_seed[seed].index(head)] for checks in by_seed.values()]
    measured = np.array([check.measured for check in each])
    by_check = zip(*by_seed.values(), strict=True)
    together = [over_seeds(dict(zip(by_seed, same, strict=True))) for same in by_check]
    expected = claim.expected if config in (claim.config, claim.quick) else ""
    tested = readings(together) or {"as stated here": status in (HOLDS, CORRECTED)}
    return {
        "id": name,
        **{field: getattr(claim, field) for field in FIELDS},
        "file": claim.file,
        "settings": named_values(config),
        "status": status,
        "expected": expected,
        "check": head.name,
        "measured": float(np.mean(measured)),
        "interval": bootstrap(measured),
        **means(each, "bound", "tightness", "vacuous"),
        "dtype": claim.dtype,
        "seeds": len(cells),
        "seconds": sum(cell["seconds"] for cell in cells.values()),
        "cpu_seconds": sum(cell["cpu_seconds"] for cell in cells.values()),
        "checks": [check._asdict() | {"holds": check.holds} for check in together],
        "agrees": expected in ("", status),
        "readings": {reading: HOLDS if holds else "false" for reading, holds in tested.items()}
        | dict.fromkeys(claim.untested, "not tested"),
        "counterexample": None if head.holds else {"seed": seed, "draw": head.draw},
    }


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
