"""The monotone alignment of layers with solver steps, and the distances that it rests on."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float

from ... import checks


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
