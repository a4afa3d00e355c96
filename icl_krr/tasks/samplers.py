"""Random tasks: a frozen config and a key give a `Task`, inside or outside of jit."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from .. import checks
from ..kernels import Kernel, Linear, check_kernel
from ..linalg import eigh, one_by_one
from ..numerics import matmul
from ..pytree import checked, static
from .task import Task


class Sampler(Protocol):
    """What tasks can be drawn from: anything that has `sample`."""

    def sample(self, key: jax.Array, active: Any = None) -> Task:
        """The task of this key, of `active` features if it is given; see `icl_krr.tasks.sample`."""
        ...


def sample(key: jax.Array, config: Sampler, active: int | jax.Array | None = None) -> Task:
    """Draw the task that `config` describes.

    `key` is a `jax.random` key; the fields of the `Task` have the default floating dtype.
    `active` is a number of features, traced: the inputs' others are 0, before outputs are drawn.
    `jax.vmap(sample, in_axes=(0, None))` draws a batch.

    >>> import jax
    >>> task = sample(jax.random.key(0), LinearRegression(num_features=3, num_supports=8), 2)
    >>> task.x.shape, task.y.shape, task.x_query.shape, task.x[0, 2].item()
    ((8, 3), (8,), (1, 3), 0.0)
    """
    return config.sample(key, active)


INPUTS = ("normal", "sphere", "uniform")


def draw_inputs(key: jax.Array, shape: tuple[int, int], kind: str, active: Any) -> jax.Array:
    """Points [rows, p]: standard normal, uniform on the unit sphere, or uniform in (-1, 1)."""
    if kind == "uniform":
        return restrict(jax.random.uniform(key, shape, minval=-1), active)
    x = restrict(jax.random.normal(key, shape), active)
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True) if kind == "sphere" else x


def restrict(x: jax.Array, active: Any) -> jax.Array:
    """The first `active` features, the others 0."""
    return x if active is None else jnp.where(jnp.arange(x.shape[1])[None] < active, x, 0)


@checked
class GaussianProcess:
    r"""Supports $y = f(x) + e$ with $f \sim GP(0, k)$, $e \sim N(0, s)$; y_query is $f$ itself.

    $k$ is the `kernel`, $s$ the `noise`, a variance >= 0; both are traced. Inputs in `num_features`
    dimensions are "normal", "uniform" in (-1, 1) or on the unit "sphere". With `num_outputs` unset
    y is [n], else [n, num_outputs] with independent draws of $f$. `spread` >= 1 draws the kernel's
    temperature or lengthscale for each task, up to that factor smaller or larger, and
    `noise_spread` the noise, uniformly in the logarithm.

    Raises ValueError for a negative noise, a count < 1, a spread < 1 or an unknown kind of
    inputs, TypeError for a spread of a kernel that has neither.

    >>> import jax
    >>> from icl_krr.kernels import Exponential
    >>> config = GaussianProcess(Exponential(temperature=0.5), inputs="sphere")
    >>> sample(jax.random.key(0), config).x.shape
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
                "kernel must have a bandwidth to spread, as Exponential and Gaussian have, "
                f"got {self.kernel!r}"
            )

    def sample(self, key: jax.Array, active: Any = None) -> Task:
        """The task of this key; `icl_krr.tasks.sample` calls it."""
        at, function, error = jax.random.split(key, 3)
        n, r = self.num_supports, self.num_outputs or 1
        x = draw_inputs(at, (n + self.num_queries, self.num_features), self.inputs, active)
        own = self.hyperparameters(key)
        # A Gram matrix may be singular (the linear kernel's is): its root is taken by
        # eigenvalues, so that no jitter is needed, and those that are only rounding are 0.
        sigma, vectors = eigh(own.kernel(x, x))
        rounding = len(x) * jnp.finfo(x.dtype).eps * sigma[-1]
        root = vectors * jnp.sqrt(jnp.where(sigma > rounding, sigma, 0))[None]
        f = matmul(root, jax.random.normal(function, (n + self.num_queries, r)))
        return observe(error, x, f, own)

    def optimal(self) -> tuple[Kernel, Any] | None:
        """Kernel and ridge of the posterior mean, where all tasks share them."""
        fixed = self.spread == 1 and self.noise_spread == 1 and self.noise > 0
        return (self.kernel, self.noise) if fixed else None

    def hyperparameters(self, key: jax.Array) -> GaussianProcess:
        """The process that the task of this key is drawn from, with nothing left to spread."""
        kernel = self.kernel.stretched(log_uniform(jax.random.fold_in(key, 0), self.spread))
        noise = self.noise * log_uniform(jax.random.fold_in(key, 1), self.noise_spread)
        return dataclasses.replace(self, kernel=kernel, noise=noise, spread=1.0, noise_spread=1.0)


def log_uniform(key: jax.Array, spread: Any) -> jax.Array:
    """A factor between 1 / spread and spread."""
    return jnp.exp(jnp.log(spread) * jax.random.uniform(key, minval=-1))


@checked
class LinearRegression:
    r"""Supports $y = w^T x + e$ with $x \sim N(0, Q S Q^T)$, $w \sim N(0, I / p)$.

    $Q$ is a random rotation and $S$ the diagonal of the `spectrum`; for "uniform" `inputs` x is
    $S^{1/2} u$, $u$ uniform in $(-1, 1)^p$, and not turned. With `sparsity` s only s entries of
    $w$, at random places, are not 0, and they are $N(0, 1 / s)$. The `spectrum` of the features'
    covariance (p values > 0) falls geometrically from 1 to 1 / `condition` if it is not given, so
    `condition` >= 1 is the condition number of the covariance. `noise` is the variance of $e$, and
    y_query is $w^T x$ itself. With `num_outputs` unset y is [n], else [n, num_outputs].

    Raises ValueError for a negative noise, a count < 1, a condition < 1, a spectrum that is
    not p positive values, unknown inputs and a sparsity that is not in 1, ..., p.

    >>> import jax
    >>> config = LinearRegression(num_features=4, condition=100.0, num_outputs=2)
    >>> sample(jax.random.key(1), config).y.shape
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

    def __post_init__(self):
        check_sizes(self)
        check_noise(self.noise)
        checks.at_least("condition", self.condition, 1)
        checks.choice("inputs", self.inputs, ("normal", "uniform"))
        if self.sparsity is not None:
            checks.count("sparsity", self.sparsity)
            if self.sparsity > self.num_features:
                raise ValueError(
                    f"sparsity must be <= num_features = {self.num_features}, got {self.sparsity}"
                )
        if self.spectrum is not None:
            if jnp.shape(self.spectrum) != (self.num_features,):
                raise ValueError(
                    f"spectrum must hold num_features = {self.num_features} values, "
                    f"got shape {list(jnp.shape(self.spectrum))}"
                )
            checks.positive("spectrum", self.spectrum)

    def sample(self, key: jax.Array, active: Any = None) -> Task:
        """The task of this key; `icl_krr.tasks.sample` calls it."""
        at, rotation, weights, error = jax.random.split(key, 4)
        p, r = self.num_features, self.num_outputs or 1
        spectrum = self.spectrum
        if spectrum is None:
            spectrum = jnp.asarray(self.condition, float) ** -jnp.linspace(0, 1, p)
        white = draw_inputs(at, (self.num_supports + self.num_queries, p), self.inputs, None)
        x = white * jnp.sqrt(jnp.asarray(spectrum)).astype(white.dtype)[None]
        if self.inputs == "normal":
            x = matmul(x, one_by_one(partial(jax.random.orthogonal, n=p))(rotation).T)
        x, w = restrict(x, active), jax.random.normal(weights, (p, r))
        if self.sparsity is not None:
            places = jax.random.permutation(jax.random.fold_in(weights, 0), p) < self.sparsity
            w = jnp.where(places[:, None], w, 0)
        f = matmul(x, w) / jnp.sqrt(self.sparsity or p)
        return observe(error, x, f, self)

    def optimal(self) -> tuple[Kernel, Any] | None:
        """Kernel and ridge of the posterior mean, where it is one: w is Gaussian."""
        dense = self.sparsity is None and self.noise > 0
        return (Linear(), self.noise * self.num_features) if dense else None


def observe(key: jax.Array, x: jax.Array, f: jax.Array, config: Any) -> Task:
    """Noisy outputs at the supports, the function itself at the queries."""
    n = config.num_supports
    noise = jnp.sqrt(jnp.asarray(config.noise, f.dtype))
    y = f[:n] + noise * jax.random.normal(key, f[:n].shape)
    y_query = f[n:]
    if config.num_outputs is None:
        y, y_query = y[:, 0], y_query[:, 0]
    return Task(x=x[:n], y=y, x_query=x[n:], y_query=y_query)


def check_sizes(config: Any) -> None:
    for name in ("num_features", "num_supports", "num_queries"):
        checks.count(name, getattr(config, name))
    if config.num_outputs is not None:
        checks.count("num_outputs", config.num_outputs)


def check_noise(noise: Any) -> None:
    checks.scalar("noise", noise)
    known = checks.concrete(noise)
    if known is not None and not (known >= 0 and known < float("inf")):
        raise ValueError(f"noise must be a variance >= 0, got {noise}")
