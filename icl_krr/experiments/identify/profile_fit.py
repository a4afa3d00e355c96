"""The errors of candidates after their steps, tuned to the errors of a model after its layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import qmc

from ... import solvers
from ...catalogue import Box, candidate as find_candidate, make_kernel
from ...kernels import Kernel
from ...linalg import eigh
from ...numerics import matmul
from ...probes.naming.alignment import align
from ...probes.naming.candidates import absolute, limits, parameters, solve
from ...probes.reading.hyperparameters import minimise
from ...tasks import Task, map_tasks, system

MEASURES = {
    "error": "mean squared error at the queries",
    "gap": "distance to exact kernel ridge regression, over its size",
}
"""What is measured after every layer and every step, in logarithms to base 10."""
ALIGNMENTS = {"1:1": "layer l is compared with step l", "monotone": "later layers, no earlier step"}
FLOOR = 1e-4
"""Smallest `gap`, and smallest error over the error of predicting 0; smaller ones count as this."""
POINTS, STARTS, ROUNDS = 768, 5, 3
"""Points of each search, points of each that are refined, and alignments of each refinement."""
APART, DONE = 0.06, 1e-4
"""Least distance of two points that are refined, in the unit cube: the curves have many minima. A
fit with a distance below `DONE` is not improved."""
VALUES = 192
"""Number of values that a layer of a null may have."""


class Targets(NamedTuple):
    """A batch of tasks, and what errors are measured against.

    Attributes:
        tasks: batch of b tasks without `y_query`.
        truth: targets [b, q].
        exact: predictions of exact kernel ridge regression [b, q].
    """

    tasks: Task
    truth: Any
    exact: Any


class Null(NamedTuple):
    """A predictor with a value of its own at every layer, which takes no steps.

    Attributes:
        words: what it is, in a sentence.
        fitted: search ranges of what all layers share; `unit` is the unit of the values.
        values: function from m places from 0 to 1 to the values of layers.
        weigh: function from eigenvalues [n], a ridge and values [m, 1] to filters [m, n].
    """

    words: str
    fitted: dict[str, Box]
    values: Callable[[Any, Any], Any]
    weigh: Callable[[Any, Any, Any], Any]


UNIT, RIDGE = {"unit": Box(0, 0, power=1)}, {"ridge": Box(-5, 0.5, power=1)}
NULLS = {
    "gradient flow": Null(
        "gradient flow with a time of its own at every layer",
        RIDGE | UNIT,
        lambda at, unit: 10 ** (9 * at - 3) / unit,
        lambda sigma, ridge, time: -jnp.expm1(-time * (sigma + ridge)) / (sigma + ridge),
    ),
    "falling ridge": Null(
        "exact kernel ridge regression with a ridge of its own at every layer",
        UNIT,
        lambda at, unit: unit * 10 ** (1.5 - 7.5 * at),
        lambda sigma, ridge, own: 1 / (sigma + own),
    ),
    "growing share": Null(
        "exact kernel ridge regression times a share of its own at every layer",
        RIDGE,
        lambda at, unit: 1 - 10 ** (-4 * at),
        lambda sigma, ridge, share: share / (sigma + ridge),
    ),
}
"""The nulls: later layers have longer times, smaller ridges or larger shares."""


def row_of(name: str) -> Any:
    return NULLS[name] if name in NULLS else find_candidate(name)


def path(name: str, kernel: str, logs: Float[Array, " k"], task: Task, steps: int) -> jax.Array:
    """Predictions [steps + 1, q] of a candidate after every step, or of a null at its values."""
    if name not in NULLS:
        return solve(find_candidate(name), kernel, logs, task, steps)
    null = NULLS[name]
    shared = dict(zip(parameters(null, kernel), jnp.exp(logs), strict=True))
    gram, cross, y = system(make_kernel(kernel, shared), task)
    sigma, vectors = eigh(gram)
    own = null.values(jnp.linspace(0, 1, steps), shared.get("unit"))
    filters = null.weigh(jnp.maximum(sigma, 0)[None], shared.get("ridge"), own[:, None])
    found = matmul(filters * matmul(vectors.T, y).T, matmul(cross, vectors).T)
    return jnp.concatenate([jnp.zeros_like(found[:1]), found])


def squares(predictions: jax.Array, targets: Targets) -> Float[Array, "2 b T"]:
    """Squared errors and squared distances to exact regression, the mean over queries."""
    against = jnp.stack([targets.truth, targets.exact])[:, :, None]
    return jnp.mean((predictions[None] - against) ** 2, axis=-1)


def sizes(targets: Targets) -> Float[Array, "2 b"]:
    """Squares of the targets and of the exact predictions, the mean over queries."""
    return jnp.mean(jnp.stack([targets.truth, targets.exact]) ** 2, axis=-1)


def logarithms(squared: Any, size: Any, xp: Any = jnp) -> Any:
    """The curves [2, ..., T] in log10 from mean squares [2, ..., T] and mean sizes [2, ...]."""
    over = xp.maximum(squared / size[..., None], FLOOR**2)
    error, gap = xp.log10(over)
    return xp.stack([error + xp.log10(size[0])[..., None], gap / 2])


@partial(jax.jit, static_argnames=("name", "kernel", "steps"))
def squares_of(name, kernel, logs, targets, steps):
    """Squares [2, b, T + 1] of a candidate after every step."""
    made = map_tasks(lambda task: path(name, kernel, logs, task, steps), targets.tasks)
    return squares(made, targets)


def curves_of(name, kernel, logs, targets, steps):
    found = jnp.mean(squares_of(name, kernel, logs, targets, steps), axis=1)
    return logarithms(found, jnp.mean(sizes(targets), axis=-1))


@partial(jax.jit, static_argnames=("name", "kernel", "steps"))
def search(name, kernel, points, known, targets, steps):
    """Log parameters at s points of the unit cube, and their curves [s, 2, T + 1].

    Log parameters that are not NaN in `known` [s, k] are taken from there.
    """

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


class Tuner:
    """Tunes candidates on one batch of tasks; their search is the same for all models.

    Half of the points that are tried have the bandwidth and the ridge of exact regression, `known`.
    """

    def __init__(self, targets: Targets, kernel: str, steps: int, known: dict[str, float]):
        self.targets, self.kernel, self.steps, self.known = targets, kernel, steps, known
        self.searched: dict[str, tuple[np.ndarray, ...]] = {}

    def steps_of(self, name: str) -> int:
        return VALUES if name in NULLS else self.steps

    def count(self, name: str) -> int:
        """Points of each half; a null's values are many, and its curves have few minima."""
        return POINTS // 8 if name in NULLS else POINTS

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
        """The parameters and steps with the curve that is nearest to that of a model.

        The steps of a null are always monotone: it has no first step. `also` has log parameters
        that are refined, too.
        """
        cube, logs, curves = self.points(name)
        place, half = [*MEASURES].index(measure), self.count(name)
        fixed = how == "1:1" and name not in NULLS
        costs = [cost(curve[place], own) for curve in curves]
        steps = [np.arange(1, len(own) + 1) if fixed else align(each) for each in costs]
        total = [each[range(len(own)), at].sum() for each, at in zip(costs, steps, strict=True)]
        best = (*half + spread(cube[half:], total[half:]), *spread(cube[:half], total[:half]))
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


def spread(cube: np.ndarray, total: list[float]) -> np.ndarray:
    """Places of the best points, each at some distance from those before it."""
    chosen: list[int] = []
    for i in np.argsort(total):
        if all(np.abs(cube[i] - cube[j]).max() >= APART for j in chosen):
            chosen.append(int(i))
        if len(chosen) == STARTS:
            break
    return np.array(chosen)


def cost(curve: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Squared differences [L, T + 1] of layers and steps; what diverged is far."""
    return np.nan_to_num((curve[None] - own[:, None]) ** 2, nan=1e4, posinf=1e4)


@jax.jit
def exact_of(kernel: Kernel, ridge: Any, tasks: Task) -> jax.Array:
    """Predictions of exact kernel ridge regression [b, q]."""
    return map_tasks(lambda task: solvers.exact(kernel, task, ridge=ridge).prediction, tasks)
