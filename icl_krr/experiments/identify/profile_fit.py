"""Tune candidates so that their errors after steps are nearest to those of a model after layers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.stats import qmc

from ...probes.naming.candidate_fit import align
from ...probes.naming.candidates import absolute, limits, parameters
from ...probes.reading.hyperparameters import minimise
from .profile_paths import MEASURES, NULLS, VALUES, Targets, curves_of, row_of

ROUNDS = 3
"""Alignments of each refinement."""
APART, DONE = 0.06, 1e-4
"""Least distance of two points that are refined, in the unit cube: the curves have many minima. A
fit with a distance below `DONE` is not improved."""


@partial(jax.jit, static_argnames=("name", "kernel", "steps"))
def search(name, kernel, points, known, targets, steps):
    """Log parameters at s points of the unit cube, or `known`, and their curves [s, 2, T + 1]."""

    def at(part: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        point, known = part
        logs = absolute(row_of(name), kernel, point, targets.tasks)
        logs = jnp.where(jnp.isnan(known), logs, known)
        return logs, curves_of(name, kernel, logs, targets, steps)

    return jax.lax.map(at, (points, known))


@partial(jax.jit, static_argnames=("name", "kernel", "steps"))
def look(name, kernel, steps, logs, targets, measure, own, at):
    """Gaps [L] to a curve at the aligned steps, their slopes in the logs, and all steps [T + 1]."""

    def of(logs: jax.Array) -> tuple[jax.Array, jax.Array]:
        curve = curves_of(name, kernel, logs, targets, steps)[measure]
        return curve[at] - own, curve

    slopes, curve = jax.jacfwd(of, has_aux=True)(logs)
    return curve[at] - own, slopes, curve


class Tuned(NamedTuple):
    """A candidate tuned to the curve of a model, for one measure and one alignment.

    Attributes:
        name: name of the solver or the null.
        logs: logarithms of the tuned parameters.
        values: these parameters by name.
        steps: step of every layer [L]; of a null, the place of its value.
        far: root mean square over layers of the difference in log10.
    """

    name: str
    logs: np.ndarray
    values: dict[str, float]
    steps: tuple[int, ...]
    far: float


class Search(NamedTuple):
    """Points of each half of a search, and points of each that are refined."""

    points: int
    starts: int


SEARCH = Search(768, 5)


class Tuner:
    """Tunes candidates on one batch of tasks. Half of the points tried have the `known` values."""

    def __init__(
        self,
        targets: Targets,
        kernel: str,
        steps: int,
        known: dict[str, float],
        search: Search = SEARCH,
    ):
        self.targets, self.kernel, self.steps, self.known = targets, kernel, steps, known
        self.search = search
        self.searched: dict[str, tuple[np.ndarray, ...]] = {}

    def steps_of(self, name: str) -> int:
        return VALUES if name in NULLS else self.steps

    def count(self, name: str) -> int:
        """Points of each half; a null's values are many, and its curves have few minima."""
        return self.search.points // 8 if name in NULLS else self.search.points

    def points(self, name: str) -> tuple[np.ndarray, ...]:
        """Points of the unit cube, their log parameters, and their curves."""
        if name not in self.searched:
            names = [*parameters(row_of(name), self.kernel)]
            half = self.count(name)
            cube = qmc.Halton(len(names), scramble=False).random(half)
            fixed = np.log([self.known.get(one, np.nan) for one in names])
            points, known = np.tile(cube, (2, 1)), np.full((2 * half, len(names)), np.nan)
            known[half:] = fixed
            points[half:, np.isfinite(fixed)] = 2.0  # far from all others
            steps = self.steps_of(name)
            found = search(name, self.kernel, np.tile(cube, (2, 1)), known, self.targets, steps)
            self.searched[name] = points, *(np.asarray(part, float) for part in found)
        return self.searched[name]

    def tune(
        self,
        name: str,
        own: Float[np.ndarray, " L"],
        measure: str,
        how: str,
        also: Iterable[np.ndarray] = (),
    ) -> Tuned:
        """The parameters and steps with the curve nearest to that of a model.

        The steps of a null are monotone: it has no first step. `also` has log parameters to refine.
        """
        cube, logs, curves = self.points(name)
        place, half = [*MEASURES].index(measure), self.count(name)
        fixed = how == "1:1" and name not in NULLS
        costs = [cost(curve[place], own) for curve in curves]
        steps = [np.arange(1, len(own) + 1) if fixed else align(each) for each in costs]
        total = [each[range(len(own)), at].sum() for each, at in zip(costs, steps, strict=True)]
        first, last = slice(half), slice(half, None)
        free, known = (spread(cube[at], total[at], self.search.starts) for at in (first, last))
        best = (*half + known, *free)
        starts = [(logs[i], steps[i]) for i in best if np.all(np.isfinite(logs[i]))]
        return self.nearest(name, own, place, fixed, starts, also)

    def again(
        self, found: Tuned, own: np.ndarray, measure: str, how: str, also: Iterable[np.ndarray]
    ) -> Tuned:
        """The nearer one of what was found and of what is found from other log parameters."""
        fixed = how == "1:1" and found.name not in NULLS
        rest = (own, [*MEASURES].index(measure), fixed)
        other = self.nearest(found.name, *rest, [(found.logs, np.array(found.steps))], also)
        return min(found, other, key=lambda one: one.far)

    def nearest(
        self,
        name: str,
        own: np.ndarray,
        place: int,
        fixed: bool,
        starts: list[tuple[np.ndarray, np.ndarray]],
        also: Iterable[np.ndarray],
    ) -> Tuned:
        more = ((logs, self.aligned(name, logs, own, place, fixed)) for logs in also)
        found: list[Tuned] = []
        for logs, at in (*more, *starts):
            found.append(self.refine(name, logs, own, place, at, fixed))
            if found[-1].far < DONE:
                break
        return min(found, key=lambda one: one.far)

    def aligned(
        self, name: str, logs: np.ndarray, own: np.ndarray, place: int, fixed: bool
    ) -> np.ndarray:
        """The steps of the layers for some log parameters."""
        each = np.arange(1, len(own) + 1)
        if fixed:
            return each
        given = (logs, self.targets, place, own, each)
        return align(cost(np.asarray(look(name, self.kernel, self.steps_of(name), *given)[2]), own))

    def refine(self, name, logs, own, place, at, fixed) -> Tuned:
        most, given = limits(row_of(name), self.kernel), (self.targets, place, own)
        look_at = partial(look, name, self.kernel, self.steps_of(name))
        best = (np.inf, logs, at)
        for _ in range(ROUNDS):
            far, logs = minimise(lambda x: look_at(x, *given, at)[:2], logs, most)  # noqa: B023
            if far < best[0]:
                best = far, logs, at
            moved = self.aligned(name, logs, own, place, fixed)
            if np.array_equal(moved, at):
                break
            at = moved
        far, logs, at = best
        names = parameters(row_of(name), self.kernel)
        values = dict(zip(names, np.exp(logs).tolist(), strict=True))
        return Tuned(name, logs, values, tuple(map(int, at)), float(far / len(own) ** 0.5))


def spread(cube: np.ndarray, total: list[float], count: int) -> np.ndarray:
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
