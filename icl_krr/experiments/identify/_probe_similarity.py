r"""Linear probes of channels against the iterates of solvers, by their cosine.

After layer l, a ridge regression $W = (H^T H + 10^{-3} I)^{-1} H^T T$ from channels $H$ to the
iterates $T$ of a solver after l steps is fitted to some tasks. The similarity is the cosine between
$H W$ and $T$, all entries in one vector, on other tasks. So it is the same in every rotation of the
channels. Source: L. Cawley, MetaRepICL, 2026, `experiments/train_and_probe.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ... import Kernel, solvers
from ...probes._resampling import Differences, paired_differences, resamples
from ...tasks import Task, map_tasks, system

RIDGE, RESAMPLES = 1e-3, 500
KERNEL_SOLVERS = ("gradient_descent", "chebyshev", "conjugate_gradient")
NORMALISED_SOLVERS = ("richardson", "preconditioned_chebyshev")
"""Solvers whose iterates are probed for; the latter need a kernel with positive values."""


class Similarity(NamedTuple):
    """The cosines of a solver, or of another target, after the layers from the first on.

    Attributes:
        layers: the cosine after each layer [L].
        mean: their mean.
        resampled: the mean on bootstrap resamples of the tasks [m].
    """

    layers: np.ndarray
    mean: float
    resampled: np.ndarray


def iterates(
    kernel: Kernel, ridge: float, tasks: Task, steps: int
) -> dict[str, Float[Array, "b steps n"]]:
    """The coefficients alpha of solvers, before the first step and after each step.

    Gradient descent has the step size 2 / (smallest + largest eigenvalue of K + ridge I) of each
    task, as in the source, and Chebyshev iteration these two eigenvalues.
    """
    names = KERNEL_SOLVERS + (() if kernel.featured else NORMALISED_SOLVERS)

    def paths(task: Task) -> dict[str, jax.Array]:
        values = jnp.linalg.eigvalsh(system(kernel, task).gram)
        bound = {"num_supports": task.num_supports, "largest": jnp.max(kernel.diagonal(task.x))}
        keywords = {
            "gradient_descent": {"step_size": 2 / (values[0] + values[-1] + 2 * ridge)},
            "chebyshev": {"spectrum": (values[0] + ridge, values[-1] + ridge)},
            "preconditioned_chebyshev": bound,
        }
        return {
            name: getattr(solvers, name)(
                kernel, task, ridge=ridge, steps=steps, **keywords.get(name, {})
            ).alpha
            for name in names
        }

    return jax.jit(lambda tasks: map_tasks(paths, tasks))(tasks)


def similarities(
    channels: Float[np.ndarray, "b layers tokens d"], targets: Mapping[str, np.ndarray]
) -> dict[str, Similarity]:
    """The similarity of channels to each target; the last fifth of the tasks scores the probes.

    Args:
        channels: channels after every layer. Of one token a task, a probe decodes all numbers of a
            target; of n tokens, one number each.
        targets: numbers after every layer [b, layers, n].
    """
    count, layers, tokens, _ = channels.shape
    weights = resamples(count - count * 4 // 5, RESAMPLES, 0)
    weights = np.concatenate([np.ones((1, weights.shape[1])), weights])
    found = {}
    for name, numbers in targets.items():
        parts = []
        for layer in range(1, layers):
            target = np.asarray(numbers[:, layer]).reshape(count, tokens, -1)
            parts.append(weights @ products(channels[:, layer], target).T)
        inner, ours, theirs = np.moveaxis(np.array(parts), -1, 0)
        size = np.sqrt(ours * theirs)
        cosines = np.where(size > 0, inner / np.where(size > 0, size, 1), 0)
        means = cosines.mean(axis=0)
        found[name] = Similarity(cosines[:, 0], float(means[0]), means[1:])
    return found


def products(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Inner products and squared norms of a probe's predictions and targets, [3, scored tasks]."""
    inputs, targets = np.asarray(inputs, float), np.asarray(targets, float)
    cut, d = len(inputs) * 4 // 5, inputs.shape[-1]
    h, t = inputs[:cut].reshape(-1, d), targets[:cut].reshape(-1, targets.shape[-1])
    read = inputs[cut:] @ np.linalg.solve(h.T @ h + RIDGE * np.eye(d), h.T @ t)
    pairs = (read, targets[cut:]), (read, read), (targets[cut:], targets[cut:])
    return np.array([np.sum(one * other, axis=(1, 2)) for one, other in pairs])


def compared_by_cosine(found: Mapping[str, Similarity]) -> Differences:
    """How far each solver is behind the most similar one, 1 - cosine, with simultaneous bounds."""
    distances = np.array([[1 - one.mean] for one in found.values()])
    draws = np.array([[1 - one.resampled] for one in found.values()])
    return paired_differences(distances, draws, np.ones(len(distances), bool))


def inputs_of(task: Task, role: str, layers: int) -> Float[Array, "layers tokens d"]:
    """What a model gets, as channels: all x and y of a task at the query, x and y at a support."""
    inputs = jnp.concatenate([task.x, task.y[:, None]], axis=1)
    if role == "query":
        inputs = jnp.concatenate([inputs.ravel(), task.x_query[0]])[None]
    return jnp.broadcast_to(inputs, (layers + 1, *inputs.shape))


def channels_of(
    read: Callable[[Task, str], jax.Array], role: str, tasks: Task
) -> Float[Array, "b layers tokens d"]:
    """The channels that a function of a task reads, of one query if they are those of queries."""
    channels = jax.jit(partial(map_tasks, lambda task: read(task, role)))(tasks)
    return channels[:, :, :1] if role == "query" else channels
