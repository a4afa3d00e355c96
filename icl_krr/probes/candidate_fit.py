"""A candidate's parameters, fitted to what a model answers after every layer."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import qmc

from .. import checks
from ..catalogue import candidate as find_candidate, spelled, taken
from ..tasks import Task, map_tasks
from .candidates import absolute, limits, parameters, solve
from .least_squares import minimise
from .monotone_alignment import align

ROUNDS = 4
"""Times that steps are aligned anew after the parameters have moved."""


class CandidateFit(NamedTuple):
    """A candidate with a kernel, its parameters, and the step that each layer is aligned with.

    `values` are those of all layers, `per_layer` [L] those of each where they were refined one
    by one. `error` is the root mean square over layers of the relative distances.
    """

    candidate: str
    kernel: str
    values: dict[str, float]
    alignment: tuple[int, ...]
    error: float
    per_layer: tuple[dict[str, float], ...] = ()

    @property
    def logs(self) -> jax.Array:
        """The logarithms of `values`, in their order."""
        return jnp.log(jnp.asarray([*self.values.values()], float))


def paths(candidate: str, kernel: str, logs: Float[Array, " k"], tasks: Task, steps: int):
    """Predictions of every task of a batch, [b, steps + 1, q]."""
    return map_tasks(
        lambda task: solve(find_candidate(candidate), kernel, logs, task, steps), tasks
    )


@partial(jax.jit, static_argnames=("candidate", "kernel", "steps"))
def search(candidate, kernel, points, tasks, answers, steps):
    """Logarithms of the parameters at points of the cube, and squared distances [s, L, T + 1]."""
    make = partial(absolute, find_candidate(candidate), kernel, tasks=tasks)

    def at(point: jax.Array) -> tuple[jax.Array, jax.Array]:
        logs = make(point)
        return logs, squares(answers, paths(candidate, kernel, logs, tasks, steps))

    return jax.lax.map(at, points)


def squares(answers: Float[Array, "b L q"], path: Float[Array, "b T q"]) -> Float[Array, "L T"]:
    """|layer - step|^2, relative to |layer|^2, over all tasks."""
    distances = jnp.sum((answers[:, :, None] - path[:, None]) ** 2, axis=(0, 3))
    return distances / sizes(answers)[:, None]


def sizes(answers: Float[Array, "b L q"]) -> Float[Array, " L"]:
    size = jnp.sum(answers**2, axis=(0, 2))
    return jnp.where(size > 0, size, 1)


@partial(jax.jit, static_argnames=("candidate", "kernel", "steps"))
def look(candidate, kernel, steps, logs, tasks, answers, at):
    """(step - layer) / |layer|, flat, for every layer and the step `at` it is aligned with.

    Its derivative in the logarithms, and the squared distances of all layers to all steps: one
    program does for a whole fit.
    """

    def of(logs: jax.Array) -> tuple[jax.Array, jax.Array]:
        path = paths(candidate, kernel, logs, tasks, steps)
        return gap(path), path

    def gap(path: jax.Array) -> jax.Array:
        return ((path[:, at] - answers) / jnp.sqrt(sizes(answers))[None, :, None]).reshape(-1)

    slope, path = jax.jacfwd(of, has_aux=True)(logs)
    return gap(path), slope, squares(answers, path)


def fit_candidate(
    candidate: str,
    kernel: str,
    tasks: Task,
    answers: Float[Array, "b L q"],
    steps: int,
    *,
    points: int = 128,
    starts: int = 2,
) -> CandidateFit:
    """Parameters and alignment of least squared relative distance to a model's layers.

    `points` of a Halton sequence cover each parameter's box; from the best `starts` of them, for
    each of several alignments, a trust-region method (SciPy's least_squares) goes on, in
    logarithms, with the alignment fixed, which is then made anew. `tasks` is a batch, `answers`
    are those of the layers after the start.

    Raises ValueError for unknown candidates and for a kernel that the candidate does not take.

    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), 4)
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> head = ik.constructions.nadaraya_watson(ik.Exponential(0.7), num_features=2)
    >>> answers = ik.predict_batch(head, tasks)[:, None]
    >>> found = fit_candidate("nadaraya_watson", "exponential", tasks, answers, steps=1)
    >>> round(found.values["temperature"], 3), found.alignment
    (0.7, (1,))
    """
    row = find_candidate(candidate)
    candidate, kernel = row.name, spelled(kernel)
    checks.choice(f"kernel of {candidate}", kernel, taken(candidate))
    names = [*parameters(row, kernel)]
    cube = qmc.Halton(len(names), scramble=False).random(points)
    logs, distances = search(candidate, kernel, jnp.asarray(cube), tasks, answers, steps)
    found = []
    for alignments in regular(bounded(distances)):
        each = zip(bounded(distances), alignments, strict=True)
        totals = [d[range(len(d)), at].sum() for d, at in each]
        for i in np.argsort(totals)[:starts]:
            point = np.asarray(logs[i], float)
            found.append(refine(candidate, kernel, point, tasks, answers, steps, alignments[i]))
    error, best, alignment = min(found, key=lambda one: one[0])
    values = dict(zip(names, np.exp(best).tolist(), strict=True))
    return CandidateFit(candidate, kernel, values, tuple(alignment.tolist()), error)


def bounded(distances: jax.Array) -> np.ndarray:
    """What diverged is far, and still a number."""
    return np.minimum(np.nan_to_num(np.asarray(distances, float), nan=1e6), 1e6)


def regular(distances: np.ndarray) -> list[list[np.ndarray]]:
    """Alignments to start from, for every point: the best, a step a layer, two steps a layer.

    The best of a point that is far from the optimum often is a trap for what follows.
    """
    _, layers, count = distances.shape
    each = np.arange(1, layers + 1)
    kinds = [[align(d) for d in distances]]
    kinds += [[k * each] * len(distances) for k in (1, 2) if k * layers < count]
    return kinds


def refine(
    candidate: str,
    kernel: str,
    logs: np.ndarray,
    tasks: Task,
    answers: jax.Array,
    steps: int,
    alignment: np.ndarray,
    rounds: int = ROUNDS,
) -> tuple[float, np.ndarray, np.ndarray]:
    """The error, the logarithms and the alignment, made anew after every round but the last."""
    error, seen = np.inf, partial(look, candidate, kernel, steps)
    most = limits(find_candidate(candidate), kernel)
    for _ in range(rounds):
        rest = tasks, answers, jnp.asarray(alignment)
        found, logs = minimise(lambda x: seen(x, *rest)[:2], logs, most)  # noqa: B023
        error = found / answers.shape[1] ** 0.5
        aligned = align(bounded(seen(jnp.asarray(logs), *rest)[2]))
        if rounds == 1 or np.array_equal(aligned, alignment):
            break
        alignment = aligned
    return error, logs, alignment


def layer_by_layer(
    shared: CandidateFit, tasks: Task, answers: Float[Array, "b L q"], steps: int
) -> CandidateFit:
    """The fit with parameters, and a step, of its own for every layer.

    A layer is tried at the step that the shared fit has it at, at that of the layer before, and
    one step after that.
    """
    own, alignment, before = [], [], 0
    for layer, at in enumerate(shared.alignment):
        found = [
            refine(
                shared.candidate,
                shared.kernel,
                np.asarray(shared.logs, float),
                tasks,
                answers[:, layer : layer + 1],
                steps,
                np.asarray([step]),
                rounds=1,
            )
            for step in sorted({max(at, before), before, min(before + 1, steps)})
        ]
        _, logs, (before,) = min(found, key=lambda one: one[0])
        own.append(dict(zip(shared.values, np.exp(logs).tolist(), strict=True)))
        alignment.append(int(before))
    return shared._replace(per_layer=tuple(own), alignment=tuple(alignment))
