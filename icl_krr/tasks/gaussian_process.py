"""Tasks whose function is drawn from a Gaussian process."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from .. import capacity, checks
from ..kernels import Kernel, check_kernel
from ..linalg import eigh
from ..numerics import matmul
from ..pytree import checked, static
from .samplers import (
    INPUTS,
    InOneProgram,
    check_noise,
    check_points,
    check_sizes,
    draw_inputs,
    observe,
)
from .task import Task


@checked
class GaussianProcess(InOneProgram):
    r"""Tasks whose function $f$ is drawn from a Gaussian process, $f \sim GP(0, k)$.

    The outputs at the supports are $y = f(x) + e$ with noise $e \sim N(0, s)$. The outputs y_query
    at the queries are $f$ without noise.

    Args:
        num_supports, num_queries, inputs: as in `icl_krr.tasks`, which also says what is raised.
        kernel: kernel $k$, the covariance of $f$; may be traced.
        noise: variance $s$ >= 0 of the noise, a scalar; may be traced; default 0.1.
        num_features: number p of features; default 2.
        num_outputs: number r of independent draws of $f$, so that y is [n, r]; default None, one
            draw with y [n].
        spread: number >= 1. For each task, the sampler multiplies the temperature or lengthscale of
            `kernel` by a random factor, which is log-uniform between 1 / `spread` and `spread`.
            Default 1: all tasks have the same kernel.
        noise_spread: number >= 1. For each task, the sampler multiplies `noise` by a random factor,
            which is log-uniform between 1 / `noise_spread` and `noise_spread`. Default 1: all tasks
            have the same noise variance.

    Raises:
        TypeError: `kernel` is not a kernel, `kernel` has no bandwidth although `spread` > 1, or an
            argument is not a number.

    >>> import jax
    >>> from icl_krr.kernels import Exponential
    >>> config = GaussianProcess(Exponential(temperature=0.5), inputs="sphere")
    >>> config.sample(jax.random.key(0)).x.shape
    (64, 2)
    """

    kernel: Kernel
    noise: Any = 0.1
    num_features: int = static(default=2)
    num_supports: int = static(default=64)
    num_queries: int = static(default=1)
    num_outputs: int | None = static(default=None)
    inputs: str = static(default="normal")
    spread: Any = 1.0
    noise_spread: Any = 1.0

    def __post_init__(self):
        check_kernel(self.kernel)
        check_sizes(self)
        check_noise(self.noise)
        checks.choice("inputs", self.inputs, INPUTS)
        for name in ("spread", "noise_spread"):
            checks.at_least(name, getattr(self, name), 1)
        spread = checks.concrete(self.spread)
        if spread not in (None, 1) and self.kernel.bandwidth is None:
            raise TypeError(
                "kernel must have a bandwidth if spread > 1, such as Exponential or Gaussian, "
                f"got {self.kernel!r}"
            )

    def check_memory(self, key: jax.Array) -> None:
        check_points(key, self)
        entries = (self.num_supports + self.num_queries) ** 2
        capacity.check("kernel matrix", 2 * entries, key)
        capacity.check("eigendecomposition", 4 * entries, key)

    def draw(self, key: jax.Array, active: Any) -> Task:
        at, function, error = jax.random.split(key, 3)
        n, r = self.num_supports, self.num_outputs or 1
        x = draw_inputs(at, self, active)
        own = self.hyperparameters(key)
        # The kernel matrix may be singular, as for the linear kernel. A root from its eigenvalues
        # needs no jitter; eigenvalues below the rounding error are set to 0.
        sigma, vectors = eigh(own.kernel(x, x))
        rounding = len(x) * jnp.finfo(x.dtype).eps * sigma[-1]
        root = vectors * jnp.sqrt(jnp.where(sigma > rounding, sigma, 0))[None]
        f = matmul(root, jax.random.normal(function, (n + self.num_queries, r)))
        return observe(error, x, f, own)

    def optimal(self) -> tuple[Kernel, Any] | None:
        """Return the kernel and the ridge of the posterior mean, the predictor with the least MSE.

        Returns None if tasks differ in bandwidth or noise (a spread > 1), or if `noise` is 0.
        """
        fixed = self.spread == 1 and self.noise_spread == 1 and self.noise > 0
        return (self.kernel, self.noise) if fixed else None

    def hyperparameters(self, key: jax.Array) -> GaussianProcess:
        """Return the process with the bandwidth and noise that `sample` uses for this key.

        Args:
            key: key of `jax.random`, the same as for `sample`.

        Returns:
            A `GaussianProcess` whose spreads are 1.
        """
        kernel = self.kernel.stretched(log_uniform(jax.random.fold_in(key, 0), self.spread))
        noise = self.noise * log_uniform(jax.random.fold_in(key, 1), self.noise_spread)
        return dataclasses.replace(self, kernel=kernel, noise=noise, spread=1.0, noise_spread=1.0)


def log_uniform(key: jax.Array, spread: Any) -> jax.Array:
    """A random factor between 1 / spread and spread, uniform in its logarithm."""
    return jnp.exp(jnp.log(spread) * jax.random.uniform(key, minval=-1))
