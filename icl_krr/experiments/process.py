"""Standard deviations of a Gaussian process, computed by a transformer."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from .. import solvers
from ..constructions import prefix_posterior
from ..kernels import Kernel
from ..sketches import featured
from ..tasks import Task, system
from ..transformer import Transformer, predictive
from ..uncertainty import Predictive

MOST_LANDMARKS = 512
STEPS = 64, 256
"""Steps of the transformer, and those with which it tries again."""

TOLERANCE = 0.01
"""Largest error of a mean or a standard deviation, over the deviation, that is good enough."""


class Process(NamedTuple):
    """The Gaussian process at the queries of a task, for a new y.

    Attributes:
        mean: mean, [q].
        std: standard deviation of a new y, [q].
        scale: factor $s$ of the covariance.
        error: largest difference of `mean` or `std` from exact regression, as a fraction of the
            exact standard deviation.
        blocks: number of blocks of the transformer.
        width: number of features of the transformer.
    """

    mean: np.ndarray
    std: np.ndarray
    scale: float
    error: float
    blocks: int
    width: int

    @property
    def predictive(self) -> Predictive:
        """The distributions of a new y at the queries."""
        return gaussian(self.mean, self.std)

    @property
    def facts(self) -> dict[str, float]:
        """The numbers of the process and of its transformer."""
        return {name: getattr(self, name) for name in ("scale", "error", "blocks", "width")}


def gaussian(mean: np.ndarray, std: np.ndarray) -> Predictive:
    """Gaussians with these means and standard deviations, in float64 arrays of NumPy."""
    parts: Any = np.ones_like(mean), mean, std**2
    return Predictive(*(part[:, None] for part in parts))


def process(kernel: Kernel, task: Task, ridge: float) -> Process:
    r"""Mean and standard deviation at the queries, from one run of `prefix_posterior`.

    The process has the covariance $s k$ and the noise variance $s \lambda$, so that its mean is
    kernel ridge regression for every $s$. The transformer computes mean $f_i$ and variance
    $v_i + \lambda$ at every support from the supports before it, and at the queries. The scale

    $$s = \frac{1}{n} \sum_i \frac{(y_i - f_i)^2}{v_i + \lambda} = y^T A^{-1} y / n$$

    maximises the marginal likelihood. The features are Nystrom features with the supports as
    landmarks, at most 512 of them, so that the posterior is exact for up to 512 supports.

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, eq. 2.30, maximised over
    the factor of the covariance.
    """
    features, approximates = featured(kernel, task.x[:MOST_LANDMARKS])
    width = features.feature_map(task.x[:1]).shape[1]
    exact = exactly(kernel, task, ridge)
    model = prefix_posterior(
        features,
        num_features=task.num_features,
        ridge=ridge,
        steps=min(3 * width, STEPS[0]),
        form="fused",
        approximates=approximates,
        dtype=task.x.dtype,
    )
    found = measured(model, task, exact)
    if not found.error <= TOLERANCE and width > STEPS[0] // 3:
        found = measured(model.replace(steps=STEPS[1]), task, exact)
    return found


def exactly(kernel: Kernel, task: Task, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a new y by exact regression in float64."""
    with jax.enable_x64(True):
        wide = Task(*(np.asarray(part, np.float64) for part in (task.x, task.y, task.x_query)))
        gram = np.asarray(system(kernel, wide).gram)
        mean, variance = (np.asarray(part) for part in solvers.posterior(kernel, wide, ridge=ridge))
    y = np.asarray(wide.y)
    scale = np.mean(y * np.linalg.solve(gram + ridge * np.eye(len(y)), y))
    return mean, np.sqrt(scale * (variance + ridge))


def measured(model: Transformer, task: Task, exact: tuple[np.ndarray, np.ndarray]) -> Process:
    """The process of a model, compared with the exact mean and standard deviation."""
    found = predictive(model, task, along=True)
    mean, variance = (np.asarray(part, np.float64) for part in (found.mean, found.variance))
    n, (best, deviation) = task.num_supports, exact
    with np.errstate(invalid="ignore", divide="ignore"):  # nothing is known if products overflow
        scale = float(np.mean((np.asarray(task.y) - mean[:n]) ** 2 / variance[:n]))
        std = np.sqrt(scale * variance[n:])
        gaps = np.abs(np.stack([mean[n:] - best, std - deviation]))
        error = float(np.max(np.where(gaps == 0, 0, gaps / deviation)))
    return Process(mean[n:], std, scale, error, model.depth, model.layout["h"].width)
