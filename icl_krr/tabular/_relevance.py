"""A bandwidth for each feature, and the ridge, of greatest marginal likelihood of the supports.

A feature that does not help gets a wide bandwidth, so that the kernel ignores it (automatic
relevance determination). A gradient method climbs from several starts, in float64. The first start
is what leave-one-out chose on a grid, with one bandwidth for all features.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # imports `optimize` when it is used, which takes 0.25 s

from .._core import linalg
from .._core.constants import xp
from .._core.numerics import matmul
from ..kernels import Kernel, Weighted
from ..tasks import Task, system
from ._model_selection import LARGEST, RIDGES, Progress, silent, sizes, subsample

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


class MarginalLikelihoodFit(NamedTuple):
    """The kernel and the ridge of greatest marginal likelihood."""

    kernel: Kernel  # of bandwidth 1, with one factor for each feature in its projection
    ridge: float
    evidence: float  # log marginal likelihood of one y, at the best amplitude


class Each(NamedTuple):
    """The bandwidths of all features, which maximise the marginal likelihood."""

    bandwidths: np.ndarray  # of each feature, [p]
    most: float  # the widest bandwidth of a feature of deviation 1
    evidence: float  # log marginal likelihood of one y at a support, at the best amplitude
    importance: np.ndarray  # of each feature; see `importance`, [p]
    errors: dict[str, float]  # root mean squared leave-one-out errors with "one" and with "each"


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
    base = plain(kernel)
    bandwidth = float(getattr(base, base.bandwidth)) ** (1 if base.stationary else 0.5)
    factors = np.ones(num_features) if base.projection is None else np.diagonal(base.projection)
    return factors / bandwidth


def bandwidths_of(kernel: Any, num_features: int) -> np.ndarray:
    r"""The bandwidth [p] of each feature: a lengthscale $1 / w$ or a temperature $1 / w^2$."""
    return factors_of(kernel, num_features) ** (-1.0 if plain(kernel).stationary else -2.0)


@partial(jax.jit, static_argnames="fixed_ridge")
def negative_log_marginal_likelihood(
    free: jax.Array, kernel: Kernel, task: Task, fixed_ridge: bool = False
) -> tuple[jax.Array, jax.Array]:
    r"""The negative log marginal likelihood, over the number of y, and its gradient.

    What is `free` are the logarithms of the factors [p] and of $\lambda / u$ with
    $u = \mathrm{tr} K / n$, or of the ridge $\lambda$ if it is `fixed_ridge`. The amplitude
    $s = y^T A^{-1} y / n$ of each output is the one with the largest likelihood. With
    $A = (K + \lambda I) / u$ and $\alpha = A^{-1} y$, a change $dA$ changes
    $n \log s + \log \det A$ by $\mathrm{tr}((A^{-1} - \alpha \alpha^T / s) dA)$.

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, eq. 5.9, maximised over
    the amplitude.
    """
    y = jnp.asarray(task.y)
    n, outputs = y.shape

    def covariance(free: jax.Array) -> tuple[jax.Array, jax.Array]:
        gram = with_factors(kernel, jnp.exp(free[:-1]))(task.x, task.x)
        unit = jnp.trace(gram) / n
        ridge = jnp.exp(free[-1]) / (unit if fixed_ridge else 1)
        return gram / unit + ridge * jnp.eye(n, dtype=gram.dtype), jnp.max(jnp.diagonal(gram))

    A, pull, largest = jax.vjp(covariance, free, has_aux=True)
    lower = linalg.factor(A)
    inverse = linalg.substitute(lower, jnp.eye(n, dtype=A.dtype))
    alpha = matmul(inverse, y)
    amplitude = jnp.sum(y * alpha, axis=0) / n
    log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(lower)))
    fit = n * jnp.sum(jnp.log(2 * jnp.pi * amplitude) + 1)
    (slope,) = pull((outputs * inverse - matmul(alpha / amplitude[None], alpha.T)) / (2 * y.size))
    value = (fit + outputs * log_determinant) / (2 * y.size)
    return jnp.where(largest <= LARGEST, value, jnp.inf), slope


def maximise_marginal_likelihood(
    kernel: Any, task: Task, ridge: float, *, fixed_ridge: bool = False, progress: Progress = silent
) -> MarginalLikelihoodFit:
    """The kernel and ridge with the largest marginal likelihood, from several starts.

    A `fixed_ridge` stays as it is. The starts, this kernel and others, are first optimised on few
    supports; the best one is then optimised on those on which leave-one-out chooses.
    """
    with jax.enable_x64(True):
        task = subsample(task, "regression")
        y = np.reshape(task.y, (task.num_supports, -1))
        features = np.asarray(task.x)[:, : getattr(kernel, "num_features", None)]
        deviation = np.std(features, axis=0)
        even = -np.log(np.where(deviation > 0, deviation, 1))
        first = factors_of(kernel, len(even))
        if not np.any(y):  # every kernel explains it
            return MarginalLikelihoodFit(with_factors(kernel, first), ridge, np.inf)
        task = task.replace(y=y[:, np.any(y != 0, axis=0)])
        unit = 1.0 if fixed_ridge else float(sizes(with_factors(kernel, first), task)[0])
        random = np.random.default_rng(0).normal(even, 1.0, (RANDOM, len(even)))
        logs = [np.append(np.log(first), np.log(ridge / unit))]
        logs += [np.append(factors, np.log(0.1)) for factors in (even, *random)]
        low, high = (ridge, ridge) if fixed_ridge else RIDGES["float64"].values(1.0)[[0, -1]]
        reach = np.full_like(even, np.log(REACH))
        box = np.append(even - reach, np.log(low)), np.append(even + reach, np.log(high))
        rows = np.random.default_rng(0).permutation(task.num_supports)[:FEW]
        loss, rough = (
            partial(_finite_loss, kernel=kernel, task=part, fixed_ridge=fixed_ridge)
            for part in (task, task.replace(x=task.x[rows], y=task.y[rows]))
        )
        ends = [np.clip(logs[0], *box)]
        for number, start in enumerate(logs, 1):
            progress(f"marginal likelihood: start {number} of {len(logs)}")
            ends.append(minimise(rough, start, box, ROUGH).x)
        progress("marginal likelihood: all supports")
        best = minimise(loss, min(ends, key=lambda end: loss(end)[0]), box, FINE)
        fitted_kernel = with_factors(kernel, np.exp(best.x[:-1]))
        if not fixed_ridge:
            ridge = float(np.exp(best.x[-1]) * sizes(fitted_kernel, task)[0])
    return MarginalLikelihoodFit(fitted_kernel, ridge, -float(best.fun))


def _finite_loss(free: Any, kernel: Kernel, task: Task, fixed_ridge: bool) -> tuple[float, Any]:
    """The loss and its gradient; `UNKNOWN` and 0 where they are not finite."""
    loss, slope = map(np.asarray, negative_log_marginal_likelihood(free, kernel, task, fixed_ridge))
    finite = np.isfinite(loss) and np.all(np.isfinite(slope))
    return (float(loss), slope) if finite else (UNKNOWN, np.zeros_like(slope))


def minimise(loss: Any, start: np.ndarray, box: Any, slope: float) -> Any:
    """Minimise a loss in a box, until no derivative is larger than `slope`."""
    options = {"maxiter": ITERATIONS, "gtol": slope, "ftol": 1e-10}
    method = {"method": "L-BFGS-B", "bounds": scipy.optimize.Bounds(*box), "options": options}
    return scipy.optimize.minimize(loss, start, jac=True, **method)


def importance(kernel: Any, task: Task, ridge: float) -> np.ndarray:
    r"""The share [p] of each feature in the slopes of the regression at the supports.

    $$v_j = \sigma_j^2 \sum_i (\partial f(x_i) / \partial x_{ij})^2, \quad v_j / \sum_l v_l$$

    Here $\sigma_j$ is the standard deviation of the feature, and several outputs are added. If the
    regression is constant, the shares are 0.
    """
    with jax.enable_x64(True):
        task = subsample(task, "regression")
        squares = np.asarray(slopes(kernel, task, ridge))[: getattr(kernel, "num_features", None)]
        variances = squares * np.var(np.asarray(task.x), axis=0)[: len(squares)]
    return variances / (np.sum(variances) or 1)


@jax.jit
def slopes(kernel: Kernel, task: Task, ridge: float) -> jax.Array:
    """The sums [p] of the squares of all slopes."""
    gram, _, y = system(kernel, task)
    alpha = linalg.solve(gram + ridge * jnp.eye(len(y), dtype=y.dtype), y)
    slope = jax.jacobian(lambda x: matmul(kernel(x[None], task.x), alpha)[0])
    return jnp.sum(jax.lax.map(slope, task.x, batch_size=64) ** 2, axis=(0, 1))
