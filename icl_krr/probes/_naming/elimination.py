"""Which candidates are ruled out, in whatever spaces they are measured, and which are tied."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...catalogue import candidate
from .._resampling import Differences, paired_differences
from .candidate_fit import CandidateFit
from .distances import SPACES, AlignedDistances, Gaps

CLOSE = 0.1
"""Largest relative distance of a candidate that is close to the model."""
RESOLUTION = 1e-3
"""Two relative distances count as equal if they differ by less than this value."""
DIVERGED = 10.0
"""A candidate diverges if its error on one scored task is this many times the size of a layer."""


class MeasuredDistances(NamedTuple):
    """Distances of candidates, and after them of what takes no step or is a control, in each space.

    `mean` has the means over layers [c, spaces], `drawn` those on resampled tasks
    [c, spaces, draws].
    """

    spaces: tuple[str, ...]
    mean: np.ndarray
    drawn: np.ndarray


def measure(gaps_of_each: Sequence[Gaps], resample: np.ndarray) -> MeasuredDistances:
    parts = [[*gaps.values()] for gaps in gaps_of_each]
    drawn = [[part.by_layer(resample).mean(axis=-1) for part in row] for row in parts]
    means = [[part.mean for part in row] for row in parts]
    return MeasuredDistances(tuple(gaps_of_each[0]), np.array(means), np.array(drawn))


def eliminate(
    fits: Sequence[CandidateFit],
    distances: MeasuredDistances,
    prior_reasons: Sequence[str],
    farther_if: Callable[..., Any] = np.any,
) -> tuple[list[str], np.ndarray]:
    """Why each candidate is ruled out, or "", and which rows are tied with the nearest.

    A candidate is ruled out if it has a prior reason, if it is farther than the nearest candidate
    in a space and not nearer in another, if it takes no step and another one does, or if a special
    case of it is as near. A row is not tied if it is farther in any space, or, with np.all, in all.
    """
    reasons, count = [*prior_reasons], len(fits)
    in_use = np.array([not one for one in prior_reasons] + [True] * (len(distances.mean) - count))
    places, leads = np.flatnonzero(in_use), in_use & (np.arange(len(in_use)) < count)
    each = paired_differences(distances.mean[in_use], distances.drawn[in_use], leads[in_use])
    leader = fits[places[each.leader]].candidate
    for row, i in enumerate(places[places < count]):
        reasons[i] = farther(each, row, leader, distances.spaces)
    stays = [not np.any(one.alignment) for one in fits]
    if any(not (still or reason) for still, reason in zip(stays, reasons, strict=True)):
        for i, still in enumerate(stays):
            if still and not reasons[i]:  # its start says nothing about the steps after it
                reasons[i] = "takes no step"
    remaining = {one.candidate: distances.mean[i] for i, one in enumerate(fits) if not reasons[i]}
    for i, one in enumerate(fits):
        if not reasons[i] and (simpler := special_cases(one.candidate, remaining)):
            reasons[i] = f"no nearer than {simpler[0]}, its special case"
    is_tied = np.zeros(len(in_use), bool)
    is_tied[places] = np.logical_not(farther_if(each.low > RESOLUTION, axis=1))
    return reasons, is_tied


def special_cases(name: str, distances: Mapping[str, Any]) -> list[str]:
    """The special cases of a candidate that are as near in every space, of those with distances."""
    return [
        other
        for other in candidate(name).contains
        if other in distances and np.all(distances[name] >= distances[other] - RESOLUTION)
    ]


def farther(differences: Differences, row: int, leader: str, spaces: Collection[str]) -> str:
    """The space where a candidate is farther than the leader, unless it is nearer in another."""
    if np.any(differences.high[row] < -RESOLUTION):
        return ""
    for space, low, value, high in zip(
        spaces, differences.low[row], differences.mean[row], differences.high[row], strict=True
    ):
        if low > RESOLUTION:
            return f"{space}: farther than {leader} by {value:.2g} ({low:.2g}, {high:.2g})"
    return ""


def total_distance(gaps: Gaps) -> float:
    """The sum of the distances in all spaces."""
    return sum(part.mean for part in gaps.values())


def diverges(gaps: AlignedDistances) -> bool:
    """Whether the error of one task and layer is `DIVERGED` times the layer's size over tasks."""
    size = gaps.sizes.mean(axis=0)
    return bool(np.any(gaps.squares > DIVERGED**2 * np.where(size > 0, size, np.inf)))


def is_regular(alignment: tuple[int, ...], gaps: Gaps) -> bool:
    """Whether steps at equal intervals >= 1, from any layer on, are as near as the aligned ones."""
    layers, count = gaps["prediction"].matrix.shape
    each = np.arange(layers)
    reach = [gaps[s].matrix[each, list(alignment)].mean() + RESOLUTION for s in SPACES]
    for stride in range(1, max(alignment) + 2):
        firsts = np.arange(-stride * layers, max(alignment) + 1)
        steps = np.clip(firsts[:, None] + stride * each, 0, count - 1)
        means = [gaps[space].matrix[each, steps].mean(axis=1) for space in SPACES]
        if np.any((means[0] <= reach[0]) & (means[1] <= reach[1])):
            return True
    return False
