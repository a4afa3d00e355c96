"""Which candidates are ruled out, in whatever spaces they are measured, and what is as near."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...catalogue import candidate
from .._resampling import Differences, paired_differences
from .candidate_fit import CandidateFit
from .distances import SPACES, Aligned, Gaps

CLOSE = 0.1
"""Largest relative distance of a candidate that is close to the model."""
RESOLUTION = 1e-3
"""Two relative distances count as equal if they differ by less than this value."""
DIVERGED = 10.0
"""A candidate diverges if its error on one scored task is this many times the size of a layer."""


class Measured(NamedTuple):
    """Distances of candidates, and after them of what takes no step or is a control, in each space.

    `mean` has the means over layers [c, spaces], `drawn` those on resampled tasks
    [c, spaces, draws].
    """

    spaces: tuple[str, ...]
    mean: np.ndarray
    drawn: np.ndarray


def measured(every: Sequence[Gaps], resample: np.ndarray) -> Measured:
    parts = [[*gaps.values()] for gaps in every]
    drawn = [[part.by_layer(resample).mean(axis=-1) for part in row] for row in parts]
    means = [[part.mean for part in row] for row in parts]
    return Measured(tuple(every[0]), np.array(means), np.array(drawn))


def eliminate(
    fits: Sequence[CandidateFit],
    found: Measured,
    refused: Sequence[str],
    farther_if: Callable[..., Any] = np.any,
) -> tuple[list[str], np.ndarray]:
    """Why each candidate is ruled out, or "", and which rows are as near as the nearest candidate.

    A candidate is ruled out if it was `refused`, if it is farther than the nearest candidate in a
    space and not nearer in another, if it takes no step and another one does, or if a special case
    of it is as near. A row is not as near if it is farther in any space, or, with np.all, in all.
    """
    reasons, count = [*refused], len(fits)
    in_use = np.append(
        np.logical_not([*map(bool, refused)]), np.ones(len(found.mean) - count, bool)
    )
    places, leads = np.flatnonzero(in_use), in_use & (np.arange(len(in_use)) < count)
    each = paired_differences(found.mean[in_use], found.drawn[in_use], leads[in_use])
    leader = fits[places[each.leader]].candidate
    for row, i in enumerate(places[places < count]):
        reasons[i] = farther(each, row, leader, found.spaces)
    stays = [not np.any(one.alignment) for one in fits]
    if any(not (still or reason) for still, reason in zip(stays, reasons, strict=True)):
        for i, still in enumerate(stays):
            if still and not reasons[i]:  # its start says nothing about the steps after it
                reasons[i] = "takes no step"
    far = {one.candidate: found.mean[i] for i, one in enumerate(fits) if not reasons[i]}
    for i, one in enumerate(fits):
        if not reasons[i] and (simpler := special_cases(one.candidate, far)):
            reasons[i] = f"no nearer than {simpler[0]}, its special case"
    near = np.zeros(len(in_use), bool)
    near[places] = np.logical_not(farther_if(each.low > RESOLUTION, axis=1))
    return reasons, near


def special_cases(name: str, far: Mapping[str, Any]) -> list[str]:
    """The special cases of a candidate that are as near in every space, of those with distances."""
    return [
        other
        for other in candidate(name).contains
        if other in far and np.all(far[name] >= far[other] - RESOLUTION)
    ]


def farther(found: Differences, row: int, leader: str, spaces: Collection[str]) -> str:
    """The space where a candidate is farther than the leader, unless it is nearer in another."""
    if np.any(found.high[row] < -RESOLUTION):
        return ""
    for space, low, value, high in zip(
        spaces, found.low[row], found.mean[row], found.high[row], strict=True
    ):
        if low > RESOLUTION:
            return f"{space}: farther than {leader} by {value:.2g} ({low:.2g}, {high:.2g})"
    return ""


def far(gaps: Gaps) -> float:
    """The sum of the distances in all spaces."""
    return sum(part.mean for part in gaps.values())


def diverges(gaps: Aligned) -> bool:
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
