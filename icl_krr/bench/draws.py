"""The tasks of the benchmarks, drawn in chunks from a seed."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..kernels import Exponential, Gaussian, Kernel, Linear
from ..tasks import GaussianProcess, LinearRegression, Task, sample

TEMPERATURE = 0.5
EXPONENTIAL = Exponential(TEMPERATURE)
RIDGE = 0.1 * float(np.exp(2.0))
"""Ridge of the default task of softmax attention: inputs on the unit circle."""


def draw(config: Any, batch: int, seed: int) -> Task:
    keys = jax.random.split(jax.random.key(seed), batch)
    return jax.jit(lambda keys: jax.lax.map(lambda key: sample(key, config), keys))(keys)


def linear(n: int = 64, p: int = 8, q: int = 1) -> tuple[Kernel, Any, float]:
    """Kernel, task configuration and ridge of a task of linear attention: linear kernel."""
    return Linear(), LinearRegression(num_features=p, num_supports=n, num_queries=q), 0.1


def exponential(n: int = 64, p: int = 2, q: int = 1) -> tuple[Kernel, Any, float]:
    """Kernel, task configuration and ridge of a task of softmax attention: exponential kernel."""
    return EXPONENTIAL, circle(EXPONENTIAL, n, p, q), RIDGE


def gaussian(n: int = 64, p: int = 2, q: int = 1) -> tuple[Kernel, Any, float]:
    """Kernel, task configuration and ridge for softmax attention with the Gaussian kernel."""
    return Gaussian(0.7), circle(Gaussian(0.7), n, p, q), 1.0


def circle(kernel: Kernel, n: int, p: int, q: int) -> GaussianProcess:
    return GaussianProcess(kernel, num_features=p, num_supports=n, num_queries=q, inputs="sphere")
