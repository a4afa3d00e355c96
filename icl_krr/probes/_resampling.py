"""Distances on bootstrap resamples of the tasks, and paired comparisons of them."""

from typing import NamedTuple

import numpy as np

INTERVAL_QUANTILES = (0.025, 0.975)
RESAMPLES = 1000
"""Number of bootstrap resamples of the tasks behind an interval."""
LEVEL = 0.95
"""Probability that all intervals of the differences hold together."""


def resamples(count: int, number: int, seed: int) -> np.ndarray:
    """How often each of `count` tasks is in each bootstrap resample [number, count]."""
    draw = np.random.default_rng(seed).multinomial
    return draw(count, np.full(count, 1 / count), size=number).astype(float)


def relative_distances(squares: np.ndarray, sizes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Relative distances [..., L] over tasks with weights [..., b]."""
    total = weights @ sizes
    return np.sqrt((weights @ squares) / np.where(total > 0, total, 1))


class Differences(NamedTuple):
    """Differences from the leader's distances [c, spaces], with simultaneous intervals."""

    leader: int
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def paired_differences(distances: np.ndarray, draws: np.ndarray, valid: np.ndarray) -> Differences:
    r"""Compare every candidate with the leader, by the max-T method.

    The leader has the least sum of distances over spaces, of the candidates that are `valid`. All
    candidates are measured on the same resampled tasks, so the variation that tasks cause in all of
    them cancels in the differences $\Delta_c$. With the bootstrap deviation $s_c$ of $\Delta_c$,
    the intervals are $\Delta_c \pm t s_c$, where $t$ is the `LEVEL` quantile, over resamples, of
    the largest $|\Delta_c^* - \Delta_c| / s_c$ of all candidates and spaces. So the intervals hold
    for all candidates together. Where one task has most of the distance, $s_c$ is about $\Delta_c$,
    and the interval contains 0 although every resample has a difference > 0. The lower end is
    therefore set to at least the quantile of $\Delta_c^*$ at half of 1 - `LEVEL`, divided by the
    number of differences.

    Source: Westfall, Young, Resampling-based multiple testing, 1993; Hansen, Lunde, Nason, The
    model confidence set, 2011.

    >>> distances = np.array([[0.1], [0.3]])
    >>> draws = np.array([[[0.05, 0.15]], [[0.25, 0.35]]])  # only their common part varies
    >>> found = paired_differences(distances, draws, np.array([True, True]))
    >>> found.leader, found.low.round(3).tolist(), found.high.round(3).tolist()
    (0, [[0.0], [0.2]], [[0.0], [0.2]])
    """
    leader = int(np.argmin(np.where(valid, distances.sum(axis=1), np.inf)))
    mean = distances - distances[leader]
    drawn = draws - draws[leader] - mean[..., None]
    deviation = drawn.std(axis=-1)
    sure = deviation <= 1e-12 * np.maximum(np.abs(mean), 1)
    scaled = np.abs(drawn) / np.where(sure, np.inf, deviation)[..., None]
    margin = np.quantile(scaled.max(axis=(0, 1)), LEVEL) * np.where(sure, 0, deviation)
    least = np.quantile(drawn, (1 - LEVEL) / 2 / mean.size, axis=-1)
    low = mean + np.where(sure, 0, np.maximum(-margin, least))
    return Differences(leader, mean, low, mean + margin)
