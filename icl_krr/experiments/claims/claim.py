"""What a claim is: a statement, an experiment, and a verdict that follows from its checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from ..shared.rows import Plot, Rows

HOLDS, CORRECTED, FALSE, OPEN = (
    "holds",
    "holds as corrected",
    "false as stated",
    "not confirmed",
)


class Check(NamedTuple):
    """measured <= bound, over a number of draws.

    `measured` and `bound` are those of the draw where their quotient, the `tightness`, is
    largest; `violations` is the share of draws that exceed the bound, `vacuous` the share on
    which it is no better than the trivial one (NaN if none was given), `draw` the first that
    violates it (None where all draws are one number). `seed` is that of the run, if it was one of
    several. `stated` marks what the sources claim, the others are what is claimed here.
    """

    name: str
    stated: bool
    measured: float
    bound: float
    tightness: float
    violations: float
    vacuous: float
    draw: int | None
    seed: int | None = None

    @property
    def holds(self) -> bool:
        return self.violations == 0


class Verdict(NamedTuple):
    """A status that follows from checks (see `judge`)."""

    status: str
    checks: tuple[Check, ...]

    @property
    def headline(self) -> Check:
        """The first stated check that is violated, else the first of all."""
        broken = [check for check in self.checks if check.stated and not check.holds]
        return (*broken, *self.checks)[0]


@dataclass(frozen=True)
class Claim:
    """A claim of the field and its experiment, `run(config, key) -> rows, verdict`.

    `statement` is the claim as it is written, `truth` what holds where that does not, `expected`
    the status that this library found. `config` is the full experiment, `quick` a smaller one;
    all of it runs in `dtype`.
    """

    statement: str
    expected: str
    run: Callable[[Any, jax.Array], tuple[Rows, Verdict]]
    config: Any
    quick: Any
    plot: Plot
    truth: str = ""
    dtype: str = "float64"


def compare(
    name: str,
    measured: Any,
    bound: Any,
    *,
    stated: bool = False,
    trivial: Any = None,
    slack: float = 1e-9,
) -> Check:
    """The check measured <= bound (1 + slack), entry by entry; draws run along the first axis.

    An entry that is not a number violates it. `trivial` is a bound that needs no theorem.
    """
    measured, bound = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(v, float)) for v in (measured, bound))
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(measured <= bound, 0.0, np.inf)
        ratios = np.where(bound > 0, measured / np.where(bound > 0, bound, 1), ratios)
    ratios = np.where(np.isnan(ratios), np.inf, ratios)
    worst = np.unravel_index(np.argmax(ratios), ratios.shape)
    broken = ~(measured <= bound + slack * np.abs(bound))
    by_draw = broken.reshape(len(broken), -1).any(axis=1)
    vacuous = np.nan if trivial is None else float(np.mean(bound >= np.asarray(trivial, float)))
    return Check(
        name,
        stated,
        float(measured[worst]),
        float(bound[worst]),
        float(ratios[worst]),
        float(np.mean(by_draw)),
        vacuous,
        int(np.argmax(by_draw)) if by_draw.any() and len(by_draw) > 1 else None,
    )


def at_least(name: str, measured: Any, bound: Any, *, stated: bool = False) -> Check:
    """The check measured >= bound; its tightness is bound / measured."""
    check = compare(name, bound, measured, stated=stated)
    return check._replace(measured=check.bound, bound=check.measured)


def within(name: str, value: Any, low: float, high: float, *, stated: bool = False) -> Check:
    """The check low <= value <= high, of the value that is farthest from the middle.

    `bound` is the end that is nearer to it, the tightness a quotient of distances.
    """
    middle = (low + high) / 2
    distance = np.atleast_1d(np.asarray(value, float)) - middle
    check = compare(name, np.abs(distance), (high - low) / 2, stated=stated)
    worst = distance.flat[np.argmax(np.abs(distance))]
    return check._replace(measured=float(middle + worst), bound=high if worst > 0 else low)


def judge(*checks: Check, amended: bool = False) -> Verdict:
    """The verdict that checks imply.

    Not confirmed, if one that should be true is violated; else it holds, if all that is stated
    does; else it holds as corrected, if the checks amend the statement, or it is false.
    """
    if not all(check.holds for check in checks if not check.stated):
        return Verdict(OPEN, checks)
    if all(check.holds for check in checks):
        return Verdict(HOLDS, checks)
    return Verdict(CORRECTED if amended else FALSE, checks)
