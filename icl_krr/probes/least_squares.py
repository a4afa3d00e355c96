"""Nonlinear least squares over the logarithms of positive parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

DIVERGED = 1e3
"""Bound on residuals and slopes, and the value that replaces NaN. With this bound, the
search can continue when a solver diverges.
"""


def minimise(
    function: Callable[[jax.Array], tuple[jax.Array, jax.Array]],
    start: np.ndarray,
    limits: np.ndarray | float = np.inf,
) -> tuple[float, np.ndarray]:
    """Find a local minimum of the norm of the residuals; return the norm and the position.

    In every coordinate, the position differs from `start` by at most 12 and is at most `limits`.
    `function` returns the residuals [m] and their derivative [m, k] together.
    """

    @lru_cache(maxsize=1)
    def at(x: bytes) -> list[np.ndarray]:
        values = function(jnp.asarray(np.frombuffer(x)))
        return [
            np.clip(np.nan_to_num(np.asarray(v, float), nan=DIVERGED), -DIVERGED, DIVERGED)
            for v in values
        ]

    if not start.size:  # SciPy would take the maximum of no slopes
        return float(np.linalg.norm(at(start.tobytes())[0])), start
    slope: Any = lambda x: at(x.tobytes())[1]  # noqa: E731
    solved = least_squares(
        lambda x: at(x.tobytes())[0],
        np.minimum(start, np.asarray(limits) - 1e-3),
        slope,
        bounds=(start - 12, np.minimum(start + 12, limits)),
        ftol=1e-5,  # stops where the loss is flat, as at a ridge that is too small to matter
        max_nfev=40,
    )
    return float(np.sqrt(2 * solved.cost)), solved.x
