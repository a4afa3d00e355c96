"""A claim: a statement, an experiment and a verdict that follows from the checks."""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np

from ...catalogue import NONE as NONE, TASK_FAMILY as TASK_FAMILY, THIS_TASK as THIS_TASK
from .._shared.rows import Plot, Rows

OURS = "ours alone"

REFERENCES = {
    "Cawley 2025": "L. Cawley, MetaRepICL, 2025, https://github.com/fxcawley/MetaRepICL",
    "Cawley 2026": "L. Cawley, Trained models, probing, and silent failures, 2026, "
    "https://cawley.dev/posts/metarepicl-findings",
    "Choromanski et al. 2021": "K. Choromanski et al., Rethinking attention with Performers, "
    "ICLR 2021, https://arxiv.org/abs/2009.14794",
    "Fokoue 2026": "E. Fokoue, Multi-head attention as ensemble Nadaraya-Watson estimation, 2026, "
    "https://arxiv.org/abs/2605.20271",
    "Lo Gerfo et al. 2008": "L. Lo Gerfo, L. Rosasco, F. Odone, E. De Vito, A. Verri, Spectral "
    "algorithms for supervised learning, Neural Computation 20, 2008",
    "Peng et al. 2025": "L. Peng et al., Gated KalmaNet: a fading memory layer through test-time "
    "ridge regression, 2025, https://arxiv.org/abs/2511.21016",
    "TheoremPath 2026": "TheoremPath, Attention as kernel regression, 2026, "
    "https://theorempath.com/topics/attention-as-kernel-regression",
    "Tsai et al. 2019": "Y.-H. H. Tsai, S. Bai, M. Yamada, L.-P. Morency, R. Salakhutdinov, "
    "Transformer dissection: an unified understanding for Transformer's attention via the lens of "
    "kernel, EMNLP 2019, https://arxiv.org/abs/1908.11775",
    "Vaswani et al. 2017": "A. Vaswani et al., Attention is all you need, NeurIPS 2017, "
    "https://arxiv.org/abs/1706.03762",
    "von Oswald et al. 2023": "J. von Oswald et al., Transformers learn in-context by gradient "
    "descent, ICML 2023, https://arxiv.org/abs/2212.07677, and its notebooks, "
    "https://github.com/google-research/self-organising-systems",
    "von Oswald et al. 2025": "J. von Oswald et al., MesaNet: sequence modeling by locally optimal "
    "test-time training, 2025, https://arxiv.org/abs/2506.05233",
    "Yan et al. 2026": "M. Yan, D. Li, C. Kulick, S. Tang, Transformers can implement "
    "preconditioned Richardson iteration for in-context Gaussian kernel regression, 2026, "
    "https://arxiv.org/abs/2605.08475",
    "Zhang et al. 2023": "A. Zhang, Z. C. Lipton, M. Li, A. J. Smola, Dive into deep learning, "
    "2023, https://d2l.ai",
}
"""Authors and year, as the claims cite them, and the work."""


def authors(source: str) -> list[str]:
    """The keys of `REFERENCES` in the source of a claim."""
    return [part.partition(",")[0] for part in source.split("; ")]


def works(sources: Iterable[str]) -> dict[str, str]:
    """The rows of `REFERENCES` that the sources of some claims name."""
    named = {author for source in sources for author in authors(source)}
    return {name: work for name, work in REFERENCES.items() if name in named}


HOLDS, CORRECTED, FALSE, OPEN = ("holds", "holds as corrected", "false as stated", "not confirmed")


class Check(NamedTuple):
    """The result of testing measured <= bound on several draws.

    Attributes:
        stated: whether the source states this bound, as printed. The other checks are claims of
            ours, or test another `reading`.
        reading: another reading of the statement that this check tests, in words. It differs in a
            constant, a condition, a count or a quantifier; "" if there is none.
        measured: measured value at the draw of largest tightness, and `bound` there.
        tightness: largest quotient measured / bound over the draws.
        violations: share of draws that exceed the bound.
        vacuous: share of entries where the bound is not below the trivial bound, NaN without one.
        draw: first draw that exceeds the bound, None if there is none or one number alone.
        seed: seed of the run with these values, if there were several runs.
    """

    name: str
    stated: bool
    reading: str
    measured: float
    bound: float
    tightness: float
    violations: float
    vacuous: float
    draw: int | None
    seed: int | None = None

    @property
    def holds(self) -> bool:
        """Whether every draw respects the bound."""
        return self.violations == 0


def headline(checks: Sequence[Check]) -> Check:
    """The deciding check: a violated check of ours, else of the statement, else the first."""
    ours = [check for check in checks if not (check.stated or check.reading)]
    stated = [check for check in checks if check.stated]
    return (*(check for check in (*ours, *stated) if not check.holds), *stated, *checks)[0]


class Config(SimpleNamespace):
    """The settings of a claim by name: numbers, names and tuples of them; static in its programs.

    >>> Config(draws=20, widths=(2, 4)).replace(draws=5)
    Config(draws=5, widths=(2, 4))
    """

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(tuple(vars(self).items()))

    def replace(self, **others: Any) -> "Config":
        return Config(**vars(self) | others)


class Exactly(tuple):
    """A setting with this number of values."""


Unnamed = Callable[[str], Check]
"""A check that waits for its name, its key in a table of checks."""
Checks = dict[str, Any]
"""Checks by name; a value alone is checked against the bound in the name (see `check`)."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim, where it was made, and the experiment that decides it.

    Attributes:
        statement: the claim in the notation of this library.
        source: key of `REFERENCES`, a comma, and the place; a semicolon is between two sources.
        quote: the statement as printed at that place, with its quantifiers; "" if it is ours.
        expected: status that this library found for the claim.
        required_inputs: what the models of the experiment require besides the kernel: NONE; what
            all tasks of the TASK_FAMILY share, such as the ridge, or training; or what depends on
            THIS_TASK, such as the spectrum of its kernel matrix.
        run: experiment, `run(config, key) -> rows, checks`.
        config: settings of the experiment, and the `axes`, settings with several values.
        quick: settings of a smaller one; those that are not given are those of `config`.
        plot: which columns of the rows the figure shows.
        truth: what holds instead of the statement, or in addition.
        untested: readings of the statement that no check tests.
        corrected: who made the statement in `truth`: "theirs", at another place, "ours" or "both".
    """

    statement: str
    source: str = OURS
    quote: str = ""
    expected: str
    required_inputs: str
    run: Callable[[Config, jax.Array], tuple[Rows, Checks]]
    config: Config
    axes: Config = field(default_factory=Config)
    quick: Config
    plot: Plot
    truth: str = ""
    untested: tuple[str, ...] = ()
    corrected: str = "ours"
    dtype: str = "float64"

    def __post_init__(self):
        if (self.source == OURS) == bool(self.quote):
            raise ValueError(f"a claim has a quote if and only if it has a source: {self.title}")
        object.__setattr__(self, "config", self.config.replace(**vars(self.axes)))
        object.__setattr__(self, "quick", self.config.replace(**vars(self.quick)))

    @property
    def title(self) -> str:
        """The claim in a few words, for short tables: the first line of its file."""
        words = sys.modules[self.run.__module__].__doc__ or ""
        return words.partition("\n")[0].partition(": ")[2].rstrip(".")

    @property
    def file(self) -> str:
        return f"{self.run.__module__.replace('.', '/')}.py"

    @property
    def authors(self) -> list[str]:
        return authors(self.source)


def compare(
    name: str,
    measured: Any,
    bound: Any,
    *,
    stated: bool = False,
    reading: str = "",
    trivial: Any = None,
    slack: float = 1e-9,
) -> Check:
    """Check measured <= bound (1 + slack) in every entry [draws, ...].

    A measured value that is NaN or infinite, or a bound that is NaN, violates the check. `trivial`
    is a bound that holds without any theorem; for `stated` and `reading` see `Check`.
    """
    measured, bound = np.broadcast_arrays(*(np.array(v, float, ndmin=1) for v in (measured, bound)))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(measured <= bound, 0.0, np.inf)
        ratios = np.where(bound > 0, measured / np.where(bound > 0, bound, 1), ratios)
    ratios = np.where(np.isnan(ratios) | ~np.isfinite(measured), np.inf, ratios)
    worst = np.unravel_index(np.argmax(ratios), ratios.shape)
    broken = ~(np.isfinite(measured) & (measured <= bound + slack * np.abs(bound)))
    by_draw = broken.reshape(len(broken), -1).any(axis=1)
    vacuous = np.nan if trivial is None else float(np.mean(bound >= np.asarray(trivial, float)))
    draw = int(np.argmax(by_draw)) if by_draw.any() and len(by_draw) > 1 else None
    value, most, ratio = (float(part[worst]) for part in (measured, bound, ratios))
    return Check(name, stated, reading, value, most, ratio, float(np.mean(by_draw)), vacuous, draw)


def at_most(measured: Any, bound: Any, **options: Any) -> Unnamed:
    """Check measured <= bound in every entry, with the options of `compare`."""
    return lambda name: compare(name, measured, bound, **options)


def nearly(measured: Any, bound: Any, **options: Any) -> Unnamed:
    """`at_most` with room for the rounding of long computations."""
    return at_most(measured, bound, slack=1e-6, **options)


def at_least(measured: Any, bound: Any, **options: Any) -> Unnamed:
    """Check measured >= bound in every entry. The tightness is bound / measured."""

    def check(name: str) -> Check:
        result = compare(name, bound, measured, **options)
        return result._replace(measured=result.bound, bound=result.measured)

    return check


def within(value: Any, low: float, high: float, **options: Any) -> Unnamed:
    """Check low <= value <= high in every entry, as a distance from the middle."""
    middle = (low + high) / 2
    distance = np.atleast_1d(np.asarray(value, float)) - middle

    def check(name: str) -> Check:
        result = compare(name, np.abs(distance), (high - low) / 2, **options)
        worst = distance.flat[np.argmax(np.abs(distance))]
        return result._replace(measured=float(middle + worst), bound=high if worst > 0 else low)

    return check


_NUMBER = r"(-?[\d.]+(?:e[+-]?\d+)?)"
_RELATION = re.compile(
    rf"(?:(<=|>=) {_NUMBER}(?:/(\d+))?( %)?|in \[{_NUMBER}, {_NUMBER}\])"
    r"(?=$|,| \(| (?:after|at|everywhere|for|in|over)\b)"
)


def check(value: Any, **options: Any) -> Unnamed:
    """Check what the name says: a bound such as "<= 1e-9", ">= 1/4", "<= 5 %" or "in [0.5, 2]".

    The name has one bound by a number, at its end or before a comma, a bracket or a word such as
    "after". For other bounds there are `at_most`, `at_least` and `within`.

    >>> check(0.3)("share of heads >= 1/4 (our number)").holds
    True
    """

    def of(name: str) -> Check:
        bounds = _RELATION.findall(name)
        if len(bounds) != 1:
            raise ValueError(f"a check must have one bound by a number in its name, got {name!r}")
        ((sign, number, divisor, percent, low, high),) = bounds
        if not sign:
            return within(value, float(low), float(high), **options)(name)
        bound = float(number) / (float(divisor or 1) * (100 if percent else 1))
        return (at_most if sign == "<=" else at_least)(value, bound, **options)(name)

    return of


def named(checks: Checks) -> list[Check]:
    """The checks of a table, in its order."""
    tests: Any = {name: of if callable(of) else check(of) for name, of in checks.items()}
    return [test(name) for name, test in tests.items()]


def stated(value: Any, **options: Any) -> Unnamed:
    """Check what the name says, and what the source states."""
    return check(value, stated=True, **options)


PRINTED = "as printed"


def readings(checks: Iterable[Check]) -> dict[str, bool]:
    """The readings of the statement that the checks test, and whether each one holds."""
    verdicts = {}
    for check in checks:
        for reading in filter(None, (PRINTED * check.stated, check.reading)):
            verdicts[reading] = verdicts.get(reading, True) and check.holds
    return verdicts


def judge(checks: Sequence[Check]) -> str:
    """Return the verdict that the checks imply.

    It is "not confirmed" if a check is violated that tests no reading of the statement, "holds" if
    the statement holds as printed, "holds as corrected" if it does not, but another reading of it,
    or of a part of it, does, about the same kind of model, and "false as stated" if no reading
    holds.
    """
    verdicts = readings(checks)
    if not all(check.holds for check in checks if not (check.stated or check.reading)):
        return OPEN
    if verdicts.get(PRINTED, True):
        return HOLDS
    return CORRECTED if any(verdicts.values()) else FALSE
