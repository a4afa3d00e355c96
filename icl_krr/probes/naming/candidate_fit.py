"""Fit the parameters of a candidate solver to the predictions of a model after every layer."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float
from scipy.stats import qmc

from ... import Task, checks, map_tasks
from ...catalogue import candidate as find_candidate, spelled, taken
from ...readable import readable
from ...tasks.task import check_axes, outputs_of
from ..reading.hyperparameters import minimise
from .candidates import absolute, limits, parameters, solve


def align(cost: npt.ArrayLike) -> np.ndarray:
    r"""Align L layers with solver steps in order, at the least total cost.

    The steps $t_1 \leq t_2 \leq ...$ minimise $\sum_l c_{l, t_l}$. Several layers may share a step.
    If several alignments have the same cost, the earliest steps are chosen.

    Args:
        cost: cost $c$ of every layer at every step [L, T + 1], finite.

    >>> align(np.array([[1.0, 0.0, 2.0], [3.0, 3.0, 1.0]])).tolist()
    [1, 2]
    """
    cost = np.asarray(cost)
    checks.numeric("cost", cost)
    checks.finite("cost", cost)
    if cost.ndim != 2 or 0 in cost.shape:
        raise ValueError(
            f"cost must be [L, T + 1] for L layers and T steps, got shape {list(cost.shape)}"
        )
    layers, steps = cost.shape
    total = np.zeros((layers, steps))
    total[0] = cost[0]
    for layer in range(1, layers):
        total[layer] = cost[layer] + np.minimum.accumulate(total[layer - 1])
    path = np.zeros(layers, int)
    end = steps
    for layer in reversed(range(layers)):
        path[layer] = np.argmin(total[layer, :end])
        end = path[layer] + 1
    return path


def squares(answers: Float[Array, "b L m"], path: Float[Array, "b T m"]) -> Float[Array, "L T"]:
    """Squared distances of layers to steps over all tasks, relative to the layer's squared norm."""
    distances = jnp.sum((answers[:, :, None] - path[:, None]) ** 2, axis=(0, 3))
    return distances / sizes(answers)[:, None]


def sizes(answers: Float[Array, "b L m"]) -> Float[Array, " L"]:
    size = jnp.sum(answers**2, axis=(0, 2))
    return jnp.where(size > 0, size, 1)


def bounded(distances: jax.Array) -> np.ndarray:
    """Distances below 1e6; values that diverged, NaN included, become 1e6."""
    return np.minimum(np.nan_to_num(np.asarray(distances, float), nan=1e6), 1e6)


def regular(distances: np.ndarray) -> list[list[np.ndarray]]:
    """Initial alignments for every point: the best one, one step per layer, two steps per layer.

    The best alignment of a point far from the optimum often leads to a poor local minimum.
    """
    _, layers, count = distances.shape
    each = np.arange(1, layers + 1)
    kinds = [[align(d) for d in distances]]
    kinds += [[k * each] * len(distances) for k in (1, 2) if k * layers < count]
    return kinds


ROUNDS = 4
"""Number of times that the steps are aligned again after a fit of the parameters."""


@readable
class CandidateFit(NamedTuple):
    """A candidate with its kernel, its fitted parameters and the alignment of layers with steps.

    Attributes:
        candidate: name of the solver.
        values: fitted parameters by name, shared by all layers.
        alignment: step with which each layer is aligned [L].
        error: root mean square over layers of the relative distances.
    """

    candidate: str
    kernel: str
    values: dict[str, float]
    alignment: tuple[int, ...]
    error: float

    @property
    def logs(self) -> np.ndarray:
        """The logarithms of `values`, in the same order."""
        return np.log([*self.values.values()])


def paths(candidate: str, kernel: str, logs: Float[Array, " k"], tasks: Task, steps: int):
    """The candidate's predictions for every task of a batch, [b, steps + 1, m]."""
    return map_tasks(
        lambda task: solve(find_candidate(candidate), kernel, logs, task, steps), tasks
    )


@partial(jax.jit, static_argnames=("candidate", "kernel", "steps"))
def search(candidate, kernel, points, tasks, answers, steps):
    """Log parameters at s points of the unit cube, and their squared distances [s, L, T + 1]."""
    make = partial(absolute, find_candidate(candidate), kernel, tasks=tasks)

    def at(point: jax.Array) -> tuple[jax.Array, jax.Array]:
        logs = make(point)
        return logs, squares(answers, paths(candidate, kernel, logs, tasks, steps))

    return jax.lax.map(at, points)


@partial(jax.jit, static_argnames=("candidate", "kernel", "steps"))
def look(candidate, kernel, steps, logs, tasks, answers, at):
    """Residuals (step - layer) / |layer| with aligned steps, slopes, and all squared distances."""

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
    answers: Float[Array, "b L m"] | np.ndarray,
    steps: int,
    *,
    points: int = 128,
    starts: int = 2,
    near: CandidateFit | None = None,
) -> CandidateFit:
    """Fit the parameters and the alignment of a candidate to the layers of a model.

    The fit minimises the squared relative distance. From the best points of a Halton sequence in
    the search ranges, with several alignments, SciPy's `least_squares` refines the logarithms of
    the parameters with a fixed alignment. The layers are then aligned again.

    Args:
        candidate: name of a candidate solver in the catalogue.
        answers: predictions of the model after layers 1 to L, with m = q r.
        points: number of points of the Halton sequence.
        starts: number of points to refine for each initial alignment.
        near: fit with fewer steps, whose parameters are the only point to refine. Default: the
            points of the sequence.

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
    checks.instance("kernel", kernel, str, "the name of a kernel")
    candidate, kernel = row.name, spelled(kernel)
    checks.choice(f"kernel of {candidate}", kernel, taken(candidate))
    check_axes(tasks, 1)
    checks.shapes(x=(tasks.x, "b n p"), answers=(answers, "b L m"))
    wanted = tasks.num_queries * outputs_of(tasks)
    if answers.shape[2] != wanted:
        raise ValueError(
            f"answers must be [b, L, m] with m = {wanted}, the number of predictions of a task, "
            f"got shape {list(answers.shape)}"
        )
    for name, number in (("steps", steps), ("points", points), ("starts", starts)):
        checks.count(name, number)
    names = [*parameters(row, kernel)]
    if near is None:
        cube = qmc.Halton(len(names), scramble=False).random(points)
        logs, distances = search(candidate, kernel, cube, tasks, answers, steps)
    else:
        logs, at = near.logs[None], np.asarray(near.alignment)
        distances = look(candidate, kernel, steps, near.logs, tasks, answers, at)[2][None]
    logs, found = np.asarray(logs, float), []
    for alignments in regular(bounded(distances)):
        each = zip(bounded(distances), alignments, strict=True)
        totals = [d[range(len(d)), at].sum() for d, at in each]
        for i in np.argsort(totals)[:starts]:
            if np.all(np.isfinite(logs[i])):
                found.append(
                    refine(candidate, kernel, logs[i], tasks, answers, steps, alignments[i])
                )
    if not found:
        raise ValueError(
            f"x of tasks must give the kernel {kernel!r} a bandwidth and a matrix that are neither "
            "0 nor infinite, got none; rescale x, use supports that differ, or other kernels"
        )
    error, best, alignment = min(found, key=lambda one: one[0])
    values = dict(zip(names, np.exp(best).tolist(), strict=True))
    return CandidateFit(candidate, kernel, values, tuple(alignment.tolist()), error)


def refine(
    candidate: str,
    kernel: str,
    logs: np.ndarray,
    tasks: Task,
    answers: jax.Array | np.ndarray,
    steps: int,
    alignment: np.ndarray,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Fit parameters and align layers in turn; return error, logarithms and alignment."""
    error, look_at = np.inf, partial(look, candidate, kernel, steps)
    most = limits(find_candidate(candidate), kernel)
    for _ in range(ROUNDS):
        rest = tasks, answers, alignment
        found, logs = minimise(lambda x: look_at(x, *rest)[:2], logs, most)  # noqa: B023
        error = found / answers.shape[1] ** 0.5
        aligned = align(bounded(look_at(logs, *rest)[2]))
        if np.array_equal(aligned, alignment):
            break
        alignment = aligned
    return error, logs, alignment
