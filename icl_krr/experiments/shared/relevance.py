"""A bandwidth for each feature, and the ridge, of greatest marginal likelihood of the supports.

A feature that does not help gets a wide bandwidth, so that the kernel ignores it (automatic
relevance determination). A gradient method climbs from several starts, in float64. The first start
is what leave-one-out chose on a grid, with one bandwidth for all features.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from ... import linalg
from ...constants import xp
from ...kernels import Kernel, Weighted
from ...numerics import matmul
from ...tasks import Task, system
from .model_selection import RIDGES, Progress, silent, sizes, subsample

FEW = 256
"""The number of supports on which the starts are compared."""

RANDOM = 2
"""The number of random starts."""

ITERATIONS = 200
"""The most iterations of each climb."""

ROUGH, FINE = 1e-4, 1e-6
"""The largest slope at the end of a climb on few supports, and at the end of the last one."""

REACH = 1e3
"""The largest factor of a feature of deviation 1, and the inverse of the smallest one."""

UNKNOWN = 1e10
"""The loss where there is none. The line search then tries a shorter step."""


class Likeliest(NamedTuple):
    """The kernel and the ridge of greatest marginal likelihood."""

    kernel: Kernel  # of bandwidth 1, with one factor for each feature in its projection
    ridge: float
    evidence: float  # log marginal likelihood of one y, at the likeliest amplitude


def plain(kernel: Any) -> Any:
    """The kernel itself, or that of which it is the `Weighted` one."""
    return kernel.kernel if isinstance(kernel, Weighted) else kernel


def with_factors(kernel: Any, factors: Any) -> Any:
    """The kernel of bandwidth 1 of features that are multiplied by factors [p]."""
    if isinstance(kernel, Weighted):
        return dataclasses.replace(kernel, kernel=with_factors(kernel.kernel, factors))
    return dataclasses.replace(kernel.of_bandwidth(1.0), projection=xp.diag(factors))


def factors_of(kernel: Any, num_features: int) -> np.ndarray:
    """The factors [p] that give this kernel."""
    own = plain(kernel)
    bandwidth = float(getattr(own, own.bandwidth)) ** (1 if own.stationary else 0.5)
    factors = np.ones(num_features) if own.projection is None else np.diagonal(own.projection)
    return factors / bandwidth


def bandwidths_of(kernel: Any, num_features: int) -> np.ndarray:
    r"""The bandwidth [p] of each feature: a lengthscale $1 / w$ or a temperature $1 / w^2$."""
    return factors_of(kernel, num_features) ** (-1.0 if plain(kernel).stationary else -2.0)


@jax.jit
def surprise(free: jax.Array, kernel: Kernel, task: Task) -> tuple[jax.Array, jax.Array]:
    r"""The negative log marginal likelihood, over the number of y, and its gradient.

    The amplitude $s = y^T A^{-1} y / n$ of each output is the likeliest one. What is `free` are the
    logarithms of the factors [p] and of the ridge. With $A = K + \lambda I$ and
    $\alpha = A^{-1} y$, a change $dA$ changes $n \log s + \log \det A$ by
    $\mathrm{tr}((A^{-1} - \alpha \alpha^T / s) dA)$.

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, eq. 5.9, maximised over
    the amplitude.
    """
    y = jnp.asarray(task.y)
    n, outputs = y.shape

    def covariance(free: jax.Array) -> jax.Array:
        gram = with_factors(kernel, jnp.exp(free[:-1]))(task.x, task.x)
        return gram + jnp.exp(free[-1]) * jnp.eye(n, dtype=gram.dtype)

    A, pull = jax.vjp(covariance, free)
    lower = linalg.factor(A)
    inverse = linalg.substitute(lower, jnp.eye(n, dtype=A.dtype))
    alpha = matmul(inverse, y)
    amplitude = jnp.sum(y * alpha, axis=0) / n
    log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(lower)))
    fit = n * jnp.sum(jnp.log(2 * jnp.pi * amplitude) + 1)
    (slope,) = pull((outputs * inverse - matmul(alpha / amplitude[None], alpha.T)) / (2 * y.size))
    return (fit + outputs * log_determinant) / (2 * y.size), slope


def likeliest(
    kernel: Any, task: Task, ridge: float, *, given: bool = False, progress: Progress = silent
) -> Likeliest:
    """The best kernel and ridge to which climbs from this kernel and ridge, and others, lead.

    The ridge stays if it is `given`. The climbs end on few supports, and the best one goes on with
    those on which leave-one-out chooses.
    """
    with jax.enable_x64(True):
        task = subsample(task, "regression")
        y = np.reshape(task.y, (task.num_supports, -1))
        features = np.asarray(task.x)[:, : getattr(kernel, "num_features", None)]
        deviation = np.std(features, axis=0)
        even = -np.log(np.where(deviation > 0, deviation, 1))
        logs = [np.append(np.log(factors_of(kernel, len(even))), np.log(ridge))]
        if not np.any(y):  # every kernel explains it
            return Likeliest(with_factors(kernel, np.exp(logs[0][:-1])), ridge, np.inf)
        task = task.replace(y=y[:, np.any(y != 0, axis=0)])
        unit = float(sizes(with_factors(kernel, np.exp(even)), task)[0])
        random = np.random.default_rng(0).normal(even, 1.0, (RANDOM, len(even)))
        logs += [np.append(factors, np.log(0.1 * unit)) for factors in (even, *random)]
        low, high = (ridge, ridge) if given else RIDGES["float64"].values(unit)[[0, -1]]
        reach = np.full_like(even, np.log(REACH))
        box = np.append(even - reach, np.log(low)), np.append(even + reach, np.log(high))
        rows = np.random.default_rng(0).permutation(task.num_supports)[:FEW]
        few, ends = task.replace(x=task.x[rows], y=task.y[rows]), []
        for number, start in enumerate(logs, 1):
            progress(f"marginal likelihood: start {number} of {len(logs)}")
            ends.append(climb(start, box, kernel, few))
        progress("marginal likelihood: all supports")
        best = climb(min(ends, key=lambda end: end.fun).x, box, kernel, task, FINE)
    *factors, found = np.exp(best.x)
    found = ridge if given else float(found)
    return Likeliest(with_factors(kernel, np.asarray(factors)), found, -float(best.fun))


def climb(start: np.ndarray, box: Any, kernel: Kernel, task: Task, slope: float = ROUGH) -> Any:
    """Climb until no slope is larger."""

    def loss(free: np.ndarray) -> tuple[float, np.ndarray]:
        value, change = map(np.asarray, surprise(free, kernel, task))
        known = np.isfinite(value) and np.all(np.isfinite(change))
        return (float(value), change) if known else (UNKNOWN, np.zeros_like(change))

    options = {"maxiter": ITERATIONS, "gtol": slope, "ftol": 1e-10}
    bounds = optimize.Bounds(*box)
    return optimize.minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )


def importance(kernel: Any, task: Task, ridge: float) -> np.ndarray:
    r"""The share [p] of each feature in the slopes of the regression at the supports.

    $$v_j = \sigma_j^2 \sum_i (\partial f(x_i) / \partial x_{ij})^2, \quad v_j / \sum_l v_l$$

    Here $\sigma_j$ is the standard deviation of the feature, and several outputs are added. If the
    regression is constant, the shares are 0.
    """
    with jax.enable_x64(True):
        task = subsample(task, "regression")
        squares = np.asarray(slopes(kernel, task, ridge))[: getattr(kernel, "num_features", None)]
        found = squares * np.var(np.asarray(task.x), axis=0)[: len(squares)]
    return found / (np.sum(found) or 1)


@jax.jit
def slopes(kernel: Kernel, task: Task, ridge: float) -> jax.Array:
    """The sums [p] of the squares of all slopes."""
    gram, _, y = system(kernel, task)
    alpha = linalg.solve(gram + ridge * jnp.eye(len(y), dtype=y.dtype), y)
    slope = jax.jacobian(lambda x: matmul(kernel(x[None], task.x), alpha)[0])
    at = jax.lax.map(slope, task.x, batch_size=64)
    return jnp.sum(at**2, axis=(0, 1))
