"""Fit a candidate to what linear maps decode from a model's streams, by variable projection."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...catalogue import candidate as find_candidate
from ...tasks import Task, map_tasks
from .._reading.derivatives import jacobian
from .candidate_fit import CandidateFit, FitProblem, Space, best_fit, clip_distances
from .candidates import run_oracle, solve
from .decoding import Decoder, Decoders, as_rows
from .elimination import DIVERGED

STRIDES, DELAYS = (1, 2, 4), (0, 1)
"""Numbers of steps per layer, and of layers before the first step, that are tried."""
POINTS, STARTS = 128, 6
"""Number of points of a search, and number of points that are refined, each with an alignment."""
ROWS = 2048
"""Number of rows that the fit needs, or 4 times the number of channels, if that is more."""
ZOOMS = (0.15, 0.15, 0.03)
"""Widths of the searches around the best points of the first one, as parts of the ranges. Errors of
conjugate gradient have minima that are a few percent wide.
"""
MIN_INNOVATION = 0.01
"""Least size of an innovation over the size of the state. After convergence, innovations are
rounding errors, and the innovation of the layer does not count."""


class StreamBases(NamedTuple):
    """Tasks with the root mean square of y, and what a model's streams hold on them.

    That is orthonormal bases of streams and of what blocks wrote [2, L, m, k], and of the start.
    """

    tasks: Task
    size: float
    layers: np.ndarray
    start: np.ndarray


def stream_bases(tasks: Task, size: float, model: Decoders, start: Decoder) -> StreamBases:
    """The streams on as many tasks as the fit needs, with the smallest slopes (CG's explode)."""
    count, (all_rows, channels) = len(tasks.x), start.channels.fitted.shape
    each = all_rows // count
    layers = [one.channels.fitted.reshape(count, -1) for one in model.states]
    sizes = np.max([np.linalg.norm(layer, axis=1) for layer in layers], axis=0)
    few = min(-(-3 * count // 4), -(-max(ROWS, 4 * channels) // each))
    chosen = np.sort(np.argsort(sizes)[:few])
    rows = (chosen[:, None] * each + np.arange(each)).ravel()
    bases = _pad_bases([one.basis(rows) for part in model.spaces.values() for one in part])
    layers = bases.reshape(2, -1, *bases.shape[1:])
    tasks = jax.tree.map(lambda leaf: jnp.asarray(leaf)[chosen], tasks)
    return StreamBases(tasks, size, layers, _pad_bases([start.basis(rows)])[0])


def _pad_bases(bases: list[np.ndarray]) -> np.ndarray:
    """Bases with columns of 0, as many as a power of 2, so that models share programs."""
    width = max(16, 1 << (max(basis.shape[1] for basis in bases) - 1).bit_length())
    return np.array([np.pad(basis, ((0, 0), (0, width - basis.shape[1]))) for basis in bases])


def alignments(layers: int, steps: int) -> tuple[tuple[int, ...], ...]:
    """The steps of the layers [L] that are tried: at equal intervals, from layer 1 or 2 on.

    >>> alignments(2, 4)
    ((1, 2), (2, 4), (0, 1), (0, 2), (0, 4))
    """
    each = np.arange(1, layers + 1)
    tried = [stride * np.maximum(each - delay, 0) for delay in DELAYS for stride in STRIDES]
    return tuple(tuple(at.tolist()) for at in tried if 0 < at[-1] <= steps)


@partial(jax.jit, static_argnames=("candidate", "kernel", "steps", "state"))
def step_rows(candidate, kernel, logs, tasks, size, steps, state="prediction"):
    """A state of a candidate after every step as rows of values and slopes [m, steps + 1]."""
    entry = find_candidate(candidate)

    def of_task(task: Task) -> tuple[jax.Array, jax.Array]:
        def path(y: jax.Array) -> jax.Array:
            one = task.replace(y=y)
            if state == "prediction":
                return solve(entry, kernel, logs, one, steps).T
            return getattr(run_oracle(entry, kernel, logs, one, steps), state).T

        return path(task.y), jacobian(path, task.y)

    values, slopes = map_tasks(of_task, tasks)
    return as_rows(values, slopes, size)


def targets(rows: Any, at: Any, xp: Any = np) -> Any:
    """The states of aligned layers and their differences [2, L, m], from rows [m, T + 1]."""
    at = xp.asarray(at)
    states = rows.T[at]
    return xp.stack([states, states - rows.T[xp.concatenate([0 * at[:1], at[:-1]])]])


def residuals(rows: jax.Array, data: StreamBases, at: Any) -> jax.Array:
    """What the best maps do not decode of targets [2, L, m], over what the start does not."""
    sizes = jnp.mean(rows[:, at[-1]].reshape(len(data.tasks.x), -1) ** 2, axis=1)
    diverge = jnp.median(sizes) > DIVERGED**2
    goals = targets(rows, at, jnp)
    inside = jnp.einsum("slmk,slm->slk", data.layers, goals)
    left = goals - jnp.einsum("slmk,slk->slm", data.layers, inside)
    from_start = jnp.einsum("mk,slm->slk", data.start, goals)
    more = goals - jnp.einsum("mk,slk->slm", data.start, from_start)
    square = jnp.sum(more**2, axis=-1, keepdims=True)
    moves = square[0] > 0
    weight = jnp.where(moves, square[1] / jnp.where(moves, MIN_INNOVATION**2 * square[0], 1), 0)
    weight = jnp.minimum(weight, 1)  # of an innovation; they are as much in all as states are
    square = jnp.stack([square[0], jnp.maximum(square[1], MIN_INNOVATION**2 * square[0])])
    ratios = jnp.where(square > 0, left / jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
    share = jnp.sum(weight) / jnp.maximum(jnp.sum(moves.astype(weight.dtype)), 1)
    ratios = ratios.at[1].divide(jnp.sqrt(jnp.where(share > 0, share, 1)))
    return jnp.where(diverge, 1.0, ratios)


def path(name: str, kernel: str, logs: Any, data: StreamBases, steps: int) -> jax.Array:
    return step_rows(name, kernel, logs, data.tasks, data.size, steps)


def cost(rows: jax.Array, data: StreamBases) -> jax.Array:
    """The errors of all alignments that are tried [a]."""
    tried = alignments(data.layers.shape[1], rows.shape[1] - 1)
    return jnp.stack([jnp.sum(residuals(rows, data, at) ** 2) for at in tried])


STREAMS = Space(path, cost, residuals, rounds=1, enough=1e-4)


def fit_streams(name: str, kernels: Sequence[str], data: StreamBases, steps: int) -> CandidateFit:
    r"""Fit kernel, parameters and steps per layer of a candidate to what the streams hold.

    Each layer has the best linear map for its target at every point of the search, so that it has
    no parameters: the residuals are $(I - Q Q^T) f$ for an orthonormal basis Q of the channels, and
    their derivatives are those of the steps f. The search has the points of a Halton sequence, then
    more around the best. The best point of each kernel and alignment starts least squares.
    """
    tried = np.array(alignments(data.layers.shape[1], steps))
    starts = []
    for kernel in kernels:
        problem = FitProblem(STREAMS, name, kernel, steps, data, np.asarray, relative_distances)
        logs, errors = _search_parameters(problem)
        errors = errors / [relative_distances(at) for at in tried]
        for i, at, error in zip(np.argmin(errors, axis=0), tried, errors.min(axis=0), strict=True):
            starts.append((error, (problem, logs[i], at)))
    starts.sort(key=lambda one: one[0])
    return best_fit([start for _, start in starts[:STARTS]])


def relative_distances(at: np.ndarray) -> int:
    return 2 * int(np.count_nonzero(at))


def _search_parameters(problem: FitProblem) -> tuple[np.ndarray, np.ndarray]:
    """Log parameters at points of the search ranges [s, k], and errors of all alignments [s, a]."""
    cube = problem.halton(POINTS)
    places, (logs, errors) = cube, problem.search(cube)
    for i, width in enumerate(ZOOMS if cube.size else ()):
        best = places[np.argsort(clip_distances(errors).min(axis=1))[i % 2]]
        points = best + width * (cube[: POINTS // 2] - 0.5)
        searches = (places, logs, errors), (points, *problem.search(points))
        places, logs, errors = map(np.concatenate, zip(*searches, strict=True))
    return logs, clip_distances(errors)
