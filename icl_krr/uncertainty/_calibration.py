"""Whether predictive distributions agree with observed outputs: coverage and uniformity."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy  # imports `stats` when it is used, which takes 0.4 s
from jaxtyping import Array, Float

from .._core import checks
from .._core.readable import readable
from ._densities import cdf, interval
from ._distribution import Predictive, check_outputs

CONFIDENCE = 0.95


@readable
class Coverage(NamedTuple):
    """How many observed outputs lie in their intervals.

    Attributes:
        level: probability of the intervals.
        fraction: part of the outputs that lie in their intervals.
        low: lower end of the 95% confidence interval of the expected fraction.
        high: upper end of this interval.
        outputs: number of outputs.
    """

    level: float
    fraction: float
    low: float
    high: float
    outputs: int

    @property
    def calibrated(self) -> bool:
        """Whether the fraction is not distinguishable from the level: it is in [low, high]."""
        return self.low <= self.level <= self.high


@readable
class Uniformity(NamedTuple):
    """A test of whether probability integral transforms are uniform.

    Attributes:
        statistic: Kolmogorov-Smirnov distance of their distribution from the uniform one.
        p_value: probability of a distance that is at least as large, if they are uniform.
        outputs: number of outputs.
    """

    statistic: float
    p_value: float
    outputs: int

    @property
    def calibrated(self) -> bool:
        """Whether they are not distinguishable from uniform ones: the p-value is >= 0.05."""
        return self.p_value >= 1 - CONFIDENCE


def coverage(
    predictive: Predictive,
    y: Float[Array, "..."] | np.ndarray,
    level: float = 0.95,
    *,
    by_task: bool = False,
) -> Coverage:
    r"""Count the observed outputs that lie in their central intervals.

    The confidence interval is that of Wilson for a binomial fraction. It assumes that the outputs
    are independent given their distributions. Queries of one task are not: they share the supports.
    With `by_task`, the first axis of y counts tasks, at least 2, and the number of outputs is
    replaced by the effective number $f (1 - f) / s^2$, if this is smaller. Here $f$ is the
    fraction, and $s$ is the standard error of the mean of the fractions of the tasks.

    Args:
        level: probability of the intervals, between 0 and 1.

    Source: Wilson, Probable inference, the law of succession, and statistical inference, 1927;
    Korn, Graubard, Confidence intervals for proportions with small expected number of positive
    counts estimated from survey data, 1998, for the effective number.

    >>> normal = Predictive(*np.broadcast_arrays(np.ones((4, 1)), np.zeros((4, 1)), 1.0))
    >>> found = coverage(normal, np.array([-1.0, 0.0, 1.0, 3.0]))
    >>> found.fraction, round(found.low, 2), round(found.high, 2), found.calibrated
    (0.75, 0.3, 0.95, True)
    """
    check_observed(predictive, y, by_task)
    lower, upper = (np.asarray(end) for end in interval(predictive, level))
    inside = (lower <= np.asarray(y)) & (np.asarray(y) <= upper)
    fraction, count = float(inside.mean()), float(inside.size)
    if by_task:
        error = scipy.stats.sem(inside.reshape(len(inside), -1).mean(1))
        count = min(count, fraction * (1 - fraction) / error**2) if error > 0 else count
    z = -float(scipy.special.ndtri((1 - CONFIDENCE) / 2))
    centre = (fraction + z**2 / (2 * count)) / (1 + z**2 / count)
    width = z * np.sqrt(fraction * (1 - fraction) / count + (z / (2 * count)) ** 2)
    half = float(width) / (1 + z**2 / count)
    return Coverage(float(level), fraction, centre - half, centre + half, inside.size)


def uniformity(
    predictive: Predictive,
    y: Float[Array, "..."] | np.ndarray,
    *,
    by_task: bool = False,
    draws: int = 1000,
    seed: int = 0,
) -> Uniformity:
    """Test whether the probability integral transforms of observed outputs are uniform on [0, 1].

    They are, if y has the predictive distributions, and they are independent if every distribution
    also takes the outputs before it into account, as those of a causal model along its supports do.
    Then the p-value is that of Kolmogorov and Smirnov. Queries of one task are not independent.
    With `by_task`, the first axis of y counts tasks, and whole tasks are drawn again with
    replacement. The p-value is the part of the draws whose distance from the observed distribution
    is at least the observed distance from the uniform one. A p-value of 0.05 or more says that the
    distributions are not distinguishable from calibrated ones with these outputs, not that they are
    right.

    Args:
        draws: number of times that the tasks are drawn, with `by_task`.

    Source: Dawid, Present position and potential developments: the prequential approach, 1984, for
    the independence; Diebold, Gunther, Tay, Evaluating density forecasts, 1998.

    >>> normal = Predictive(*np.broadcast_arrays(np.ones((3, 1)), np.zeros((3, 1)), 1.0))
    >>> found = uniformity(normal, np.array([-0.6745, 0.0, 0.6745]))
    >>> round(found.statistic, 3), found.calibrated
    (0.25, True)
    """
    check_observed(predictive, y, by_task)
    checks.count("draws", draws)
    checks.count("seed", seed, minimum=0)
    values = np.asarray(cdf(predictive, jnp.asarray(y)), float)
    statistic, p_value = scipy.stats.kstest(values.ravel(), "uniform")
    if by_task:
        rng, tasks = np.random.default_rng(seed), len(values)
        task_of = np.argsort(values.ravel()) // (values.size // tasks)
        ranks = np.arange(1, values.size + 1)
        as_far = 0
        for _ in range(draws):
            times = np.bincount(rng.integers(tasks, size=tasks), minlength=tasks)
            gap = np.abs(times[task_of].cumsum() - ranks).max() / values.size
            as_far += bool(gap >= statistic)
        p_value = (1 + as_far) / (1 + draws)
    return Uniformity(float(statistic), float(p_value), values.size)


def check_observed(predictive: Predictive, y: Any, by_task: bool) -> None:
    check_outputs(predictive, y)
    checks.flag("by_task", by_task)
    shape = np.shape(y)
    if shape != np.shape(predictive.means)[:-1] or not shape or 0 in shape:
        raise ValueError(
            "y must have one output for each predictive distribution, at least one, got shape "
            f"{list(shape)} and distributions {list(np.shape(predictive.means)[:-1])}"
        )
    if by_task and shape[0] < 2:
        raise ValueError(f"y must have at least 2 tasks with by_task, got shape {list(shape)}")
