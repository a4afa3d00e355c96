"""Predictions of a Gaussian process for a new y, computed by a transformer where it can."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from .. import Kernel, Predictive, Task, predictive, solvers
from ..constructions import prefix_posterior
from ..sketches._landmarks import featured
from ..solvers._algebra import check_system

MOST_LANDMARKS = 512
"""The most supports for which a transformer computes a kernel whose features are not known."""

STEPS = 64
"""The most steps of the transformer."""

TOLERANCE = 0.01
"""Largest error of a mean or a standard deviation, over the deviation, that is good enough."""


class Process(NamedTuple):
    """The Gaussian process at the queries of a task, for a new y, in float64."""

    mean: np.ndarray  # mean, [q], or [q, r] for y [n, r]
    std: np.ndarray  # standard deviation of a new y, noise included, in the shape of the mean
    variance: np.ndarray  # variance of the function without noise, over the amplitude, [q]
    # factor $s$ of the covariance for each output, in units of y squared, [] or [r]
    amplitude: np.ndarray
    noise: np.ndarray  # variance $s \lambda$ of the noise, in the shape of the amplitude
    # largest error of mean, deviation and variance, as a fraction of the deviation; infinite
    # if they cannot be trusted, and then they are NaN
    error: float
    source: str  # what computed them, in words

    @property
    def ok(self) -> bool:
        """Whether the numbers can be trusted."""
        return self.error <= TOLERANCE

    def times(self, unit: Any) -> Process:
        """The process of y times a unit > 0, or times a unit of its own for each output."""
        return self._replace(
            mean=self.mean * unit,
            std=self.std * unit,
            amplitude=self.amplitude * unit * unit,
            noise=self.noise * unit * unit,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """The amplitude, and how the numbers were made."""
        numbers = {name: getattr(self, name).tolist() for name in ("amplitude", "noise")}
        return {**numbers, "error": self.error, "source": self.source}


def gaussian(mean: np.ndarray, std: np.ndarray) -> Predictive:
    """Gaussians with these means and standard deviations, in float64 arrays of NumPy."""
    parts: Any = np.ones_like(mean), mean, std**2
    return Predictive(*(part[..., None] for part in parts))


def process(kernel: Kernel, task: Task, ridge: float, amplitude: float | None = None) -> Process:
    r"""Mean and standard deviation of a new y at the queries.

    The process has the covariance $s k$ and the noise variance $s \lambda$, so that its mean is
    kernel ridge regression for every amplitude $s$. If the amplitude is not given, it maximises the
    marginal likelihood of the supports, for each output:

    $$s = \frac{1}{n} y^T A^{-1} y = \frac{1}{n} \sum_i \frac{(y_i - f_i)^2}{v_i + \lambda}$$

    One run of `prefix_posterior` computes mean $f_i$ and variance $v_i + \lambda$ at every support
    from the supports before it, and at the queries. The features are Nystrom features with all
    supports as landmarks, so that the run is exact up to rounding. It has the dtype of the task, or
    float64 if the features need more digits, or if its result is not near to exact regression in
    float64. Exact regression replaces a result that the run cannot compute. y is first divided by a
    power of two, so that its size does not matter.

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, eq. 2.30, maximised over
    the factor of the covariance.
    """
    keep = slice(None) if task.mask is None else np.asarray(task.mask)
    x, y, x_query = (np.asarray(part, np.float64) for part in (task.x, task.y, task.x_query))
    x, y = x[keep], y[keep]
    unit = np.ldexp(1.0, np.frexp(np.max(np.abs(y), axis=0))[1])
    within = None if amplitude is None else np.broadcast_to(amplitude / unit / unit, y.shape[1:])
    return computed(kernel, (x, y / unit, x_query), ridge, within, task.x.dtype).times(unit)


Parts = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Inputs and outputs of the supports, and inputs of the queries, in float64."""


def computed(kernel: Kernel, parts: Parts, ridge: float, amplitude: Any, dtype: Any) -> Process:
    """The process for y of order 1, by the first way that is near enough to exact regression."""
    exact = exactly(kernel, parts, ridge, amplitude)
    if not exact.ok or not (kernel.featured or len(parts[0]) <= MOST_LANDMARKS):
        return exact
    dropped = 0.0 if kernel.featured else dropped_eigenvalue(kernel, parts[0])
    for digits in dict.fromkeys((np.dtype(dtype), np.dtype(np.float64))):
        if dropped * float(np.finfo(digits).eps) > TOLERANCE * ridge:
            continue  # the features have too few digits
        with jax.enable_x64(digits == np.float64):
            try:
                candidate = transformed(kernel, Task(*parts), ridge, amplitude, exact)
            except (ValueError, MemoryError):  # no layer computes the kernel, or it is too large
                continue
        if candidate.ok:
            return candidate
    return exact


def dropped_eigenvalue(kernel: Kernel, x: Any) -> float:
    """A bound on the eigenvalues of K that `nystrom_features` drops, over the machine epsilon."""
    with jax.enable_x64(True):
        return len(x) * float(np.linalg.norm(kernel(x, x), 1))


def exactly(kernel: Kernel, parts: Parts, ridge: float, amplitude: Any = None) -> Process:
    """The process by exact regression in float64; NaN if its rounding errors are too large."""
    y = parts[1]
    with jax.enable_x64(True):
        task = Task(*parts)
        check_system(kernel, task, ridge, matrices=3)  # inside of a program, nothing is checked
        results = regression(kernel, task, ridge)
    mean, alpha, variance, on, prior, *errors = map(np.asarray, results)
    fit, rounded = np.sum(y * alpha, axis=0), 0.0
    if amplitude is None:
        amplitude = fit / len(y)
        rounded = np.finfo(float).eps * np.einsum("n...,n->...", alpha**2, on + ridge)
    exact = make_process(mean, variance, amplitude, ridge, "exact regression in float64")
    size = np.maximum(np.max(np.abs(y), axis=0), np.max(np.abs(mean), axis=0))
    variances = errors[1] * prior, 2 * (exact.variance + ridge)
    error = largest((errors[0] * size, exact.std), variances, (rounded, 2 * fit))
    if error <= TOLERANCE:
        return exact._replace(error=error)
    lost: Any = {name: np.full_like(getattr(exact, name), np.nan) for name in Process._fields[:5]}
    return exact._replace(**lost, source="nothing, because float64 has too few digits")


@jax.jit
def regression(kernel: Kernel, task: Task, ridge: float) -> tuple:
    """Exact regression, its variance, k(x, x), and the errors of both, which factorise A once."""
    best = solvers.exact(kernel, task, ridge=ridge)
    # for y = 0, the status is that of the variance alone
    process = solvers.posterior(
        kernel, task.replace(y=np.zeros(task.y.shape, task.y.dtype)), ridge=ridge
    )
    diagonals = kernel.diagonal(task.x), kernel.diagonal(task.x_query)
    errors = best.status.error, process.status.error
    return best.prediction, best.alpha, process.variance, *diagonals, *errors


def transformed(kernel: Kernel, task: Task, ridge: float, amplitude, exact: Process) -> Process:
    """The process of a transformer, compared with the exact one."""
    features, approximates = featured(kernel, task.x)
    width = jax.eval_shape(features.feature_map, task.x).shape[1]
    numbers = {"num_features": task.num_features, "ridge": ridge, "steps": min(3 * width, STEPS)}
    options = {"form": "fused", "approximates": approximates, "dtype": task.x.dtype}
    model = prefix_posterior(features, **numbers, **options)
    along = predictive(model, task, along=True)
    # one normal distribution for each token
    mean, total = (np.asarray(part, np.float64)[..., 0] for part in (along.means, along.variances))
    n, y = task.num_supports, np.asarray(task.y, np.float64)
    source = f"a transformer of {model.depth} blocks (prefix_posterior) in {task.x.dtype}"
    with np.errstate(all="ignore"):  # nothing is known if products overflow
        if amplitude is None:
            amplitude = np.mean((y - mean[:n]) ** 2 / total[:n], axis=0)
        variance = total[n:].reshape(task.num_queries, -1)[:, 0] - ridge
        approximation = make_process(mean[n:], variance, amplitude, ridge, source)
        error = largest(
            (approximation.mean - exact.mean, exact.std),
            (approximation.std - exact.std, exact.std),
            (approximation.variance - exact.variance, 2 * (exact.variance + TOLERANCE * ridge)),
        )
    return approximation._replace(error=error)


def make_process(mean: np.ndarray, variance, amplitude, ridge: float, source: str) -> Process:
    variance, amplitude = np.maximum(variance, 0), np.maximum(amplitude, 0)
    std = np.sqrt(np.multiply.outer(variance + ridge, amplitude))
    return Process(mean, std, variance, amplitude, amplitude * ridge, np.inf, source)


def largest(*errors: tuple[Any, Any]) -> float:
    """The largest |error| / size of pairs; 0 / 0 is 0, and a NaN counts as infinite."""
    with np.errstate(all="ignore"):
        each = [np.max(np.where(gap == 0, 0, np.abs(gap) / size)) for gap, size in errors]
    return float(np.max(np.where(np.isnan(each), np.inf, each)))
