"""Tasks whose posterior mean is known: of a Gaussian process, and of linear regression."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .._core import checks
from .._core.linalg import eigh
from .._core.numerics import matmul
from .._core.pytree import pytree_dataclass, static
from .._core.xla_workarounds import sequential_on_cpu
from ..kernels import Kernel, Linear
from ..kernels._kernel import check_kernel
from . import _samplers
from ._task import Task


@pytree_dataclass
class GaussianProcess(_samplers.InOneProgram):
    r"""Tasks whose function $f$ is drawn from a Gaussian process, $f \sim GP(0, k)$.

    The outputs at the supports are $y = f(x) + e$ with noise $e \sim N(0, s)$.

    Args:
        kernel: kernel $k$, the covariance of $f$; may be traced.
        noise: variance $s$ >= 0 of the noise, a scalar; may be traced; default 0.1.
        num_outputs: number r of independent draws of $f$, so that y is [n, r]; default None, one
            draw with y [n].
        spread: number >= 1. For each task, the sampler multiplies the temperature or lengthscale of
            `kernel` by a random factor, which is log-uniform between 1 / `spread` and `spread`.
            Default 1: all tasks have the same kernel.
        noise_spread: number >= 1. For each task, the sampler multiplies `noise` by a random factor,
            which is log-uniform between 1 / `noise_spread` and `noise_spread`. Default 1: all tasks
            have the same noise variance.

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
        _samplers.check_sizes(self)
        _samplers.check_noise(self.noise)
        checks.choice("inputs", self.inputs, _samplers.INPUTS)
        for name in ("spread", "noise_spread"):
            checks.at_least(name, getattr(self, name), 1)
        spread = checks.concrete(self.spread)
        if spread not in (None, 1) and self.kernel.bandwidth is None:
            raise TypeError(
                "kernel must have a bandwidth if spread > 1, such as Exponential or Gaussian, "
                f"got {self.kernel!r}"
            )

    def draw(self, key: jax.Array, active: Any) -> Task:
        at, function, error = jax.random.split(key, 3)
        n, r = self.num_supports, self.num_outputs or 1
        x = _samplers.draw_inputs(at, self, active)
        process = self.hyperparameters(key)
        # The kernel matrix may be singular, as for the linear kernel. A root from its eigenvalues
        # needs no jitter; eigenvalues below the rounding error are set to 0.
        sigma, vectors = eigh(process.kernel(x, x))
        rounding = len(x) * jnp.finfo(x.dtype).eps * sigma[-1]
        root = vectors * jnp.sqrt(jnp.where(sigma > rounding, sigma, 0))[None]
        f = matmul(root, jax.random.normal(function, (n + self.num_queries, r)))
        return _samplers.observe(error, x, f, process)

    def optimal(self) -> tuple[Kernel, Any] | None:
        """Return the kernel and the ridge of the posterior mean, the predictor with the least MSE.

        Returns None if tasks differ in bandwidth or noise (a spread > 1), or if `noise` is 0.
        """
        fixed = self.spread == 1 and self.noise_spread == 1 and self.noise > 0
        return (self.kernel, self.noise) if fixed else None

    def hyperparameters(self, key: jax.Array) -> GaussianProcess:
        """Return the process with the bandwidth and noise that `sample` uses for this key."""
        kernel = self.kernel.stretched(log_uniform(jax.random.fold_in(key, 0), self.spread))
        noise = self.noise * log_uniform(jax.random.fold_in(key, 1), self.noise_spread)
        return dataclasses.replace(self, kernel=kernel, noise=noise, spread=1.0, noise_spread=1.0)


def log_uniform(key: jax.Array, spread: Any) -> jax.Array:
    """A random factor between 1 / spread and spread, uniform in its logarithm."""
    return jnp.exp(jnp.log(spread) * jax.random.uniform(key, minval=-1))


@pytree_dataclass
class LinearRegression(_samplers.InOneProgram):
    r"""Tasks of linear regression with random weights $w \sim N(0, I / p)$.

    The outputs at the supports are $y = w^T x + e$ with noise $e$. Normal inputs are
    $x \sim N(0, Q S Q^T)$ with a random rotation $Q$ for each task and the diagonal matrix $S$ of
    the `spectrum`. Uniform inputs are $x = S^{1/2} u$ with $u$ uniform in $(-1, 1)^p$, without a
    rotation.

    Args:
        noise: variance >= 0 of $e$, a scalar; may be traced; default 0.1.
        condition: condition number >= 1 of the features' covariance, a scalar; may be traced;
            default 1. If `conditions` or `spectrum` is given, `condition` has no effect.
        spectrum: diagonal of $S$, p values > 0; may be traced; by default, the values decrease
            geometrically from 1 to 1 / `condition`.
        inputs: distribution of x, "normal" (default) or "uniform".
        sparsity: number s of nonzero weights, from 0 to p. These weights are $N(0, 1 / s)$, and
            their positions are random and the same for all outputs. Default None, all weights are
            nonzero.
        conditions: tuple of condition numbers >= 1, one of which every task draws; default None. If
            `spectrum` is given, `conditions` has no effect.

    >>> import jax
    >>> config = LinearRegression(num_features=4, condition=100.0, num_outputs=2)
    >>> config.sample(jax.random.key(1)).y.shape
    (64, 2)
    """

    noise: Any = 0.1
    condition: Any = 1.0
    spectrum: Any = None
    num_features: int = static(default=8)
    num_supports: int = static(default=64)
    num_queries: int = static(default=1)
    num_outputs: int | None = static(default=None)
    inputs: str = static(default="normal")
    sparsity: int | None = static(default=None)
    conditions: Any = None

    def __post_init__(self):
        _samplers.check_sizes(self)
        _samplers.check_noise(self.noise)
        checks.at_least("condition", self.condition, 1)
        if self.conditions is not None:
            checks.instance("conditions", self.conditions, tuple, "a tuple of numbers")
            checks.count("the number of conditions", len(self.conditions))
            for value in self.conditions:
                checks.at_least("conditions", value, 1)
        checks.choice("inputs", self.inputs, ("normal", "uniform"))
        if self.sparsity is not None:
            checks.count("sparsity", self.sparsity)
            if self.sparsity > self.num_features:
                raise ValueError(
                    f"sparsity must be <= num_features = {self.num_features}, got {self.sparsity}"
                )
        if self.spectrum is not None:
            checks.positive("spectrum", self.spectrum)
            if jnp.shape(self.spectrum) != (self.num_features,):
                raise ValueError(
                    f"spectrum must hold num_features = {self.num_features} values, "
                    f"got shape {list(jnp.shape(self.spectrum))}"
                )

    def draw(self, key: jax.Array, active: Any) -> Task:
        at, rotation, weights, error = jax.random.split(key, 4)
        p, r = self.num_features, self.num_outputs or 1
        white = _samplers.draw_inputs(at, self, None)
        spectrum = self.spectrum
        if spectrum is None:
            condition = jnp.asarray(self.condition, float)
            if self.conditions is not None:
                several = jnp.stack([jnp.asarray(value, float) for value in self.conditions])
                condition = jax.random.choice(jax.random.fold_in(rotation, 0), several)
            spectrum = condition ** -jnp.linspace(0, 1, p)
        x = white * jnp.sqrt(jnp.asarray(spectrum)).astype(white.dtype)[None]
        if self.inputs == "normal":
            x = matmul(x, sequential_on_cpu(partial(jax.random.orthogonal, n=p))(rotation).T)
        x, w = _samplers.restrict(x, active), jax.random.normal(weights, (p, r))
        if self.sparsity is not None:
            places = jax.random.permutation(jax.random.fold_in(weights, 0), p) < self.sparsity
            w = jnp.where(places[:, None], w, 0)
        return _samplers.observe(error, x, matmul(x, w) / jnp.sqrt(self.sparsity or p), self)

    def optimal(self) -> tuple[Kernel, Any] | None:
        """Return the kernel and the ridge of the posterior mean, the predictor with the least MSE.

        Returns None if `noise` is 0, or if $w$ is sparse and therefore not Gaussian.
        """
        dense = self.sparsity is None and self.noise > 0
        return (Linear(), self.noise * self.num_features) if dense else None
