"""Tune candidates so that their errors after steps are nearest to those of a model after layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...probes.naming.candidate_fit import (
    CandidateFit,
    Problem,
    Space,
    Start,
    align,
    nearest,
    totals,
)
from ...tasks import Task
from .profile_paths import MEASURES, NULLS, VALUES, Targets, logarithms, row_of, sizes, squares_of

APART = 0.06
"""Least distance of two points that are refined, in the unit cube: the curves have many minima."""


class Errors(NamedTuple):
    """Tasks and targets, and the curve of one measure of a model [L]."""

    targets: Targets
    measure: int
    own: Any

    @property
    def tasks(self) -> Task:
        return self.targets.tasks


def path(name: str, kernel: str, logs: Any, data: Errors, steps: int) -> jax.Array:
    """The curves [2, T + 1] of a candidate."""
    found = jnp.mean(squares_of(name, kernel, logs, data.targets, steps), axis=1)
    return logarithms(found, jnp.mean(sizes(data.targets), axis=-1))


def curves(path: jax.Array, data: Errors) -> jax.Array:
    return path


def differences(path: jax.Array, data: Errors, at: Any) -> jax.Array:
    return path[data.measure][at] - data.own


ERRORS = Space(path, curves, differences, rounds=3, enough=1e-4, row=row_of)


class Search(NamedTuple):
    """Points of each half of a search, and points of each that are refined."""

    points: int
    starts: int


SEARCH = Search(768, 5)


def steps_of(name: str, steps: int) -> int:
    """The largest number of steps of a solver; of a null, the number of its values."""
    return VALUES if name in NULLS else steps


class Tuner:
    """Tunes candidates on one batch of tasks. Half of the points tried have the `known` values."""

    def __init__(self, targets: Targets, steps: int, known: dict[str, float], search: Search):
        self.targets, self.steps, self.known, self.search = targets, steps, known, search
        self.searched: dict[tuple[str, str], tuple[np.ndarray, ...]] = {}

    def points(self, problem: Problem) -> tuple[np.ndarray, ...]:
        """Points of the unit cube, their log parameters, and their curves, for all models.

        A null has fewer points, as its values are many, and its curves have few minima.
        """
        key = problem.name, problem.kernel
        if key not in self.searched:
            half = self.search.points // 8 if problem.name in NULLS else self.search.points
            cube = np.tile(problem.halton(half), (2, 1))
            known = np.full(cube.shape, np.nan)
            known[half:] = np.log([self.known.get(one, np.nan) for one in problem.parameters])
            places = np.where(np.isfinite(known), 2.0, cube)  # far from all others
            self.searched[key] = places, *problem.search(cube, known)
        return self.searched[key]

    def tune(
        self,
        name: str,
        kernel: str,
        own: Float[np.ndarray, " L"],
        measure: str,
        how: str,
        also: Iterable[CandidateFit] = (),
        found: CandidateFit | None = None,
    ) -> CandidateFit:
        """The parameters and steps with the curve nearest to that of a model.

        The steps of a null are monotone: it has no first step. `also` has fits to start from, too,
        and with a fit that was `found`, there is no search.
        """
        place, each = [*MEASURES].index(measure), np.arange(1, len(own) + 1)

        def aligned(curves: np.ndarray) -> np.ndarray:
            return each if how == "1:1" and name not in NULLS else align(cost(curves[place], own))

        data, steps = Errors(self.targets, place, own), steps_of(name, self.steps)
        problem = Problem(ERRORS, name, kernel, steps, data, aligned)
        starts: list[Start] = [(problem, one.logs, problem.aligned(one.logs, each)) for one in also]
        if found is not None:
            starts.append((problem, found.logs, np.array(found.alignment)))
            return min(found, nearest(starts), key=lambda one: one.error)
        cube, logs, curves = self.points(problem)
        steps_at = [aligned(one) for one in curves]
        total = totals(np.array([cost(one[place], own) for one in curves]), steps_at)
        half = len(cube) // 2
        for part, first in ((slice(half, None), half), (slice(half), 0)):
            best = spread(cube[part], total[part], self.search.starts) + first
            starts += [(problem, logs[i], steps_at[i]) for i in best]
        return nearest(starts)


def spread(cube: np.ndarray, total: Sequence[float], count: int) -> np.ndarray:
    """Places of the best points, each at some distance from those before it."""
    chosen: list[int] = []
    for i in np.argsort(total):
        if all(np.abs(cube[i] - cube[j]).max() >= APART for j in chosen):
            chosen.append(int(i))
        if len(chosen) == count:
            break
    return np.array(chosen)


def cost(curve: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Squared differences [L, T + 1] of layers and steps; what diverged is far."""
    return np.nan_to_num((curve[None] - own[:, None]) ** 2, nan=1e4, posinf=1e4)
