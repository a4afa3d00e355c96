"""The monotone alignment of layers with solver steps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .. import checks


def align(cost: npt.ArrayLike) -> np.ndarray:
    r"""Align layers with solver steps in order, at the least total cost.

    The steps $t_1 \leq t_2 \leq ...$ minimise $\sum_l c_{l, t_l}$. Several layers may share a step.
    If several alignments have the same cost, the earliest steps are chosen.

    Args:
        cost: cost $c$ of every layer at every step [L, T + 1].

    Returns:
        The step of every layer [L].

    Raises:
        ValueError: `cost` is not a matrix, or an entry is not finite.

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
