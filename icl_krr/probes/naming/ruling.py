"""The rules of `identify`: which candidates are ruled out, and what remains to be said."""

from __future__ import annotations

import numpy as np

from ...catalogue import candidate
from ..resampling import Differences, paired_differences
from .candidate_fit import CandidateFit
from .distances import SPACES, Aligned, resampled

CLOSE = 0.1
"""Largest relative distance of a candidate that is close to the model."""
RESOLUTION = 1e-3
"""Two relative distances count as equal if they differ by less than this value."""
DIVERGED = 10.0
"""A candidate diverges if its error on one scored task is this many times the size of a layer."""
Gaps = dict[str, Aligned]


def rule_out(
    fits: list[CandidateFit], gaps: list[Gaps], known: dict[str, Gaps], resample: np.ndarray
) -> tuple[list[str], tuple[str, ...]]:
    """Why each candidate is ruled out, or "", and the baselines that are as near as the nearest."""
    every, spaces = [*gaps, *known.values()], tuple(gaps[0])
    means, drawn = in_all_spaces(every, resample)
    wild = np.array([diverges(one[spaces[0]]) for one in gaps])
    wild &= not wild.all()  # if all diverge, the nearest of them is told
    because = ["diverges on a scored task" if one else "" for one in wild]
    in_use = np.append(~wild, np.ones(len(known), bool))
    may_lead = in_use & (np.arange(len(every)) < len(gaps))
    found = paired_differences(means[in_use], drawn[in_use], may_lead[in_use])
    places = np.flatnonzero(in_use)
    name = fits[places[found.leader]].candidate
    for row, i in enumerate(places):
        if i < len(gaps) and not because[i]:
            because[i] = farther(found, row, name, spaces)
    stays = [not np.any(one.alignment) for one in fits]
    if any(not (still or reason) for still, reason in zip(stays, because, strict=True)):
        for i, still in enumerate(stays):
            if still and not because[i]:  # its start says nothing about the steps after it
                because[i] = "takes no step"
    remain = {one.candidate: i for i, one in enumerate(fits) if not because[i]}
    for i, one in enumerate(fits):
        simpler = [
            name
            for name in candidate(one.candidate).contains
            if name in remain and np.all(means[i] >= means[remain[name]] - RESOLUTION)
        ]
        if not because[i] and simpler:
            because[i] = f"no nearer than {simpler[0]}, its special case"
    first = len(places) - len(known)  # the baselines are the last rows
    sums = dict(zip(known, means[len(gaps) :].sum(axis=1), strict=True))
    farther_off = np.any(found.low[first:] > RESOLUTION, axis=1)
    near = [name for name, far in zip(known, farther_off, strict=True) if not far]
    return because, tuple(sorted(near, key=lambda name: round(float(sums[name]) / RESOLUTION)))


def farther(found: Differences, row: int, leader: str, spaces: tuple[str, ...]) -> str:
    """The space where a candidate is farther than the leader, unless it is nearer in another."""
    if np.any(found.high[row] < -RESOLUTION):
        return ""
    for space, low, value, high in zip(
        spaces, found.low[row], found.mean[row], found.high[row], strict=True
    ):
        if low > RESOLUTION:
            return f"{space}: farther than {leader} by {value:.2g} ({low:.2g}, {high:.2g})"
    return ""


def in_all_spaces(every: list[Gaps], resample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances [c, spaces], mean over layers, and those on resampled tasks [c, spaces, draws]."""
    means = np.array([[mean(part) for part in gaps.values()] for gaps in every])
    return means, np.array([[draws(part, resample) for part in gaps.values()] for gaps in every])


def mean(gaps: Aligned) -> float:
    return float(draws(gaps, np.ones((1, len(gaps.squares))))[0])


def draws(gaps: Aligned, resample: np.ndarray) -> np.ndarray:
    return resampled(gaps, resample).mean(axis=-1)


def is_close(gaps: Gaps) -> bool:
    return all(mean(part) <= CLOSE for part in gaps.values())


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
