"""Predictors that are functions of the kernel matrix: f(x) = k(x)^T q(K) y for a function q."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...catalogue import kernel_class, make_kernel
from ...linalg import eigh
from ...numerics import matmul
from ...tasks import Task, map_tasks, system
from ..reading.hyperparameters import typical_bandwidth
from .candidates import BANDWIDTH


class Spectra(NamedTuple):
    r"""Eigensystems of the kernel matrices $K = \sum_i \sigma_i u_i u_i^T$ of a batch of tasks.

    Attributes:
        sigma: eigenvalues [b, n].
        vectors: eigenvectors in columns [b, n, n].
        asked: coefficients $k(x)^T u_i$ of the queries [b, q, n].
        told: coefficients $u_i^T y$ of the outputs [b, n, r].
    """

    sigma: np.ndarray
    vectors: np.ndarray
    asked: np.ndarray
    told: np.ndarray

    @property
    def scale(self) -> float:
        """The largest eigenvalue of all tasks."""
        return float(self.sigma.max())

    def predictions(self, q: np.ndarray) -> np.ndarray:
        """Predictions [b, L, m] of filters with values [L, b, n] at the eigenvalues."""
        found = np.einsum("bqi,lbi,bir->blqr", self.asked, q, self.told, optimize=True)
        return found.reshape(*found.shape[:2], -1)

    def hats(self, q: np.ndarray) -> np.ndarray:
        """Hat matrices [b, L, m, k] of the same filters."""
        rows = np.einsum("bqi,lbi,bji->blqj", self.asked, q, self.vectors, optimize=True)
        outputs = np.eye(self.told.shape[-1])
        found = np.einsum("blqj,rs->blqrjs", rows, outputs)
        return found.reshape(*rows.shape[:2], rows.shape[2] * len(outputs), -1)


@partial(jax.jit, static_argnums=0)
def eigensystems(kernel: str, bandwidth: jax.Array, tasks: Task):
    made = make_kernel(kernel, {kernel_class(kernel).bandwidth or "": bandwidth})

    def of_task(task: Task):
        gram, cross, y = system(made, task)
        sigma, vectors = eigh(gram)
        return sigma, vectors, matmul(cross, vectors), matmul(vectors.T, y)

    return map_tasks(of_task, tasks)


class Spectrum:
    """The `Spectra` of one batch of tasks for any kernel and bandwidth, in float64."""

    def __init__(self, tasks: Task):
        self.tasks = tasks
        self.at = lru_cache(maxsize=64)(self.compute)

    def compute(self, kernel: str, log_bandwidth: float) -> Spectra:
        bandwidth = jnp.asarray(np.exp(log_bandwidth), self.tasks.x.dtype)
        found = eigensystems(kernel, bandwidth, self.tasks)
        sigma, *rest = (np.asarray(part, float) for part in found)
        return Spectra(np.maximum(sigma, 0), *rest)


def bandwidths(kernel: str, tasks: Task, count: int) -> np.ndarray:
    """Logarithms of bandwidths over the search range of candidates; [0] without a bandwidth."""
    if kernel_class(kernel).bandwidth is None:
        return np.zeros(1)
    centre = float(np.log(typical_bandwidth(kernel, tasks)))
    return centre + np.log(10) * np.linspace(BANDWIDTH.low, BANDWIDTH.high, count)
