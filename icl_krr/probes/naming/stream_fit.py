"""Fit a candidate to what linear maps decode from a model's streams, by variable projection."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import qmc

from ...catalogue import Solver, candidate as find_candidate
from ...tasks import Task, map_tasks
from ..reading.derivatives import jacobian
from ..reading.hyperparameters import minimise
from .candidate_fit import CandidateFit
from .candidates import absolute, limits, parameters, run, solve
from .decoding import Decoder, Decoders, as_rows
from .ruling import DIVERGED

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
MOVES = 0.01
"""Least size of an innovation over the size of the state. After convergence, innovations are
rounding errors, and the innovation of the layer does not count."""
DECODED = 1e-4
"""With an error below this, no other start is tried."""


class Bases(NamedTuple):
    """Orthonormal bases of streams and of what blocks wrote [2, L, m, k], and of the start."""

    layers: np.ndarray
    start: np.ndarray


def bases_of(model: Decoders, start: Decoder, rows: np.ndarray) -> Bases:
    """The bases of some rows, which are whole tasks."""
    found = [[one.basis(rows) for one in part] for part in model.spaces.values()]
    most = max(basis.shape[1] for part in found for basis in part)
    layers = np.array([[padded(basis, most) for basis in part] for part in found])
    known = start.basis(rows)
    return Bases(layers, padded(known, known.shape[1]))


def padded(basis: np.ndarray, most: int) -> np.ndarray:
    """The basis with columns of 0, as many as a power of 2, so that models share programs."""
    width = max(16, 1 << (most - 1).bit_length())
    return np.pad(basis, ((0, 0), (0, width - basis.shape[1])))


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
    row = find_candidate(candidate)

    def of_task(task: Task) -> tuple[jax.Array, jax.Array]:
        def path(y: jax.Array) -> jax.Array:
            one = task.replace(y=y)
            if state == "prediction":
                return solve(row, kernel, logs, one, steps).T
            return getattr(run(row, kernel, logs, one, steps), state).T

        return path(task.y), jacobian(path, task.y)

    values, slopes = map_tasks(of_task, tasks)
    return as_rows(values, slopes, size)


def targets(rows: Any, at: Any, xp: Any = np) -> Any:
    """The states of aligned layers and their differences [2, L, m], from rows [m, T + 1]."""
    at = xp.asarray(at)
    states = rows.T[at]
    before = rows.T[xp.concatenate([0 * at[:1], at[:-1]])]
    return xp.stack([states, states - before])


def residuals(rows: jax.Array, bases: Bases, tasks: int, at: Any) -> jax.Array:
    """What the best maps do not decode of targets [2, L, m], over what the start does not."""
    sizes = jnp.mean(rows[:, at[-1]].reshape(tasks, -1) ** 2, axis=1)
    diverge = jnp.median(sizes) > DIVERGED**2
    wanted = targets(rows, at, jnp)
    inside = jnp.einsum("slmk,slm->slk", bases.layers, wanted)
    left = wanted - jnp.einsum("slmk,slk->slm", bases.layers, inside)
    known = jnp.einsum("mk,slm->slk", bases.start, wanted)
    more = wanted - jnp.einsum("mk,slk->slm", bases.start, known)
    square = jnp.sum(more**2, axis=-1, keepdims=True)
    moves = square[0] > 0
    weight = jnp.where(moves, square[1] / jnp.where(moves, MOVES**2 * square[0], 1), 0)
    weight = jnp.minimum(weight, 1)  # of an innovation; they are as much in all as states are
    square = jnp.stack([square[0], jnp.maximum(square[1], MOVES**2 * square[0])])
    found = jnp.where(square > 0, left / jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
    share = jnp.sum(weight) / jnp.maximum(jnp.sum(moves.astype(weight.dtype)), 1)
    found = found.at[1].divide(jnp.sqrt(jnp.where(share > 0, share, 1)))
    return jnp.where(diverge, 1.0, found)


@partial(jax.jit, static_argnames=("candidate", "kernel", "steps"))
def search(candidate, kernel, points, tasks, size, bases, steps):
    """Log parameters at s points of the unit cube, and the errors of all alignments [s, a]."""
    make = partial(absolute, find_candidate(candidate), kernel, tasks=tasks)
    tried = alignments(bases.layers.shape[1], steps)

    def at(point: jax.Array) -> tuple[jax.Array, jax.Array]:
        logs = make(point)
        rows = step_rows(candidate, kernel, logs, tasks, size, steps)
        return logs, jnp.stack(
            [jnp.sum(residuals(rows, bases, len(tasks.x), at) ** 2) for at in tried]
        )

    return jax.lax.map(at, points)


@partial(jax.jit, static_argnames=("candidate", "kernel", "steps"))
def look(candidate, kernel, steps, logs, tasks, size, bases, at):
    """The residuals r and derivatives J in the logarithms as few rows, R of [J r] = Q R."""

    def gap(logs: jax.Array) -> tuple[jax.Array, jax.Array]:
        rows = step_rows(candidate, kernel, logs, tasks, size, steps)
        found = residuals(rows, bases, len(tasks.x), at).reshape(-1)
        return found, found

    slope, found = jax.jacfwd(gap, has_aux=True)(logs)
    both = jnp.linalg.qr(jnp.concatenate([slope, found[:, None]], axis=1), mode="r")
    return both[:, -1], both[:, :-1]


def fit_to_streams(
    row: Solver, kernels: Sequence[str], tasks: Task, size: float, bases: Bases, steps: int
) -> CandidateFit:
    r"""Fit kernel, parameters and steps per layer of a candidate to what the streams hold.

    Each layer has the best linear map for its target at every point of the search, so that it has
    no parameters: the residuals are $(I - Q Q^T) f$ for an orthonormal basis Q of the channels, and
    their derivatives are those of the steps f. The search has the points of a Halton sequence, then
    more around the best. The best point of each kernel and alignment starts least squares.
    """
    tried = alignments(bases.layers.shape[1], steps)
    counted = np.array([2 * np.count_nonzero(at) for at in tried])
    starts, found = [], []
    for kernel in kernels:
        logs, errors = searched(row, kernel, tasks, size, bases, steps)
        errors = errors / counted
        best = np.argmin(errors, axis=0)
        starts += [(errors[i, k], kernel, logs[i], k) for k, i in enumerate(best)]
    for _, kernel, logs, k in sorted(starts, key=lambda one: one[0])[:STARTS]:
        look_at = partial(look, row.name, kernel, steps)
        rest = tasks, size, bases, np.array(tried[k])
        far, at_best = minimise(
            lambda x, look_at=look_at, rest=rest: look_at(x, *rest), logs, limits(row, kernel)
        )
        found.append((far / counted[k] ** 0.5, kernel, at_best, tried[k]))
        if found[-1][0] < DECODED:
            break
    error, kernel, logs, at = min(found, key=lambda one: one[0])
    values = dict(zip(parameters(row, kernel), np.exp(logs).tolist(), strict=True))
    return CandidateFit(row.name, kernel, values, at, error)


def searched(
    row: Solver, kernel: str, tasks: Task, size: float, bases: Bases, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Log parameters at points of the search ranges [s, k], and errors of all alignments [s, a]."""
    count = len(parameters(row, kernel))
    cube = qmc.Halton(count, scramble=False).random(POINTS)
    places, logs, errors = np.zeros((0, count)), np.zeros((0, count)), []
    for i, width in enumerate((1.0, *(ZOOMS if count else ()))):
        if i:
            best = places[np.argsort(np.concatenate(errors).min(axis=1))[(i - 1) % 2]]
            at = best + width * (cube[: POINTS // 2] - 0.5)
        else:
            at = cube
        found = search(row.name, kernel, at, tasks, size, bases, steps)
        places, logs = np.concatenate([places, at]), np.concatenate([logs, np.asarray(found[0])])
        errors.append(np.nan_to_num(np.asarray(found[1]), nan=1e6))
    return logs, np.concatenate(errors)
