"""Random tasks: a frozen config and a key give a `Task`, inside or outside of jit."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from .. import checks
from ..kernels import Kernel
from ..linalg import eigh, one_by_one
from ..numerics import matmul
from ..pytree import checked, static
from .task import Task


class Sampler(Protocol):
    def sample(self, key: jax.Array) -> Task: ...


def sample(key: jax.Array, config: Sampler) -> Task:
    """Draw the task that `config` describes.

    `key` is a `jax.random` key; the fields of the `Task` have the default floating dtype.
    `jax.vmap(sample, in_axes=(0, None))` draws a batch.

    >>> import jax
    >>> task = sample(jax.random.key(0), LinearRegression(num_features=3, num_supports=8))
    >>> task.x.shape, task.y.shape, task.x_query.shape
    ((8, 3), (8,), (1, 3))
    """
    return config.sample(key)


@checked
class GaussianProcess:
    """Supports y = f(x) + e with f ~ GP(0, kernel), e ~ N(0, noise); y_query is f itself.

    `noise` is a variance >= 0, traced as is the kernel. Inputs are standard normal in
    `num_features` dimensions, or uniform on the unit sphere for `inputs="sphere"`. With
    `num_outputs` unset y is [n], else [n, num_outputs] with independent draws of f.

    Raises ValueError for a negative noise, a count < 1 or an unknown kind of inputs.

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

    def __post_init__(self):
        check_sizes(self)
        check_noise(self.noise)
        checks.choice("inputs", self.inputs, ("normal", "sphere"))

    def sample(self, key: jax.Array) -> Task:
        at, function, error = jax.random.split(key, 3)
        n, r = self.num_supports, self.num_outputs or 1
        x = jax.random.normal(at, (n + self.num_queries, self.num_features))
        if self.inputs == "sphere":
            x = x / jnp.linalg.norm(x, axis=-1, keepdims=True)
        # A Gram matrix may be singular (the linear kernel's is): its root is taken by
        # eigenvalues, so that no jitter is needed, and those that are only rounding are 0.
        sigma, vectors = eigh(self.kernel(x, x))
        rounding = len(x) * jnp.finfo(x.dtype).eps * sigma[-1]
        root = vectors * jnp.sqrt(jnp.where(sigma > rounding, sigma, 0))
        f = matmul(root, jax.random.normal(function, (n + self.num_queries, r)))
        return observe(error, x, f, self)


@checked
class LinearRegression:
    """Supports y = x w + e with x ~ N(0, Q diag(spectrum) Q^T), w ~ N(0, I / p).

    Q is a random rotation. The `spectrum` of the features' covariance (p values > 0) falls
    geometrically from 1 to 1 / `condition` if it is not given, so `condition` >= 1 is the
    condition number of the covariance. `noise` is the variance of e, and y_query is x w
    itself. With `num_outputs` unset y is [n], else [n, num_outputs].

    Raises ValueError for a negative noise, a count < 1, a condition < 1 or a spectrum that is
    not p positive values.

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

    def __post_init__(self):
        check_sizes(self)
        check_noise(self.noise)
        checks.scalar("condition", self.condition)
        condition = checks.concrete(self.condition)
        if condition is not None and not condition >= 1:
            raise ValueError(f"condition must be >= 1, got {self.condition}")
        if self.spectrum is not None:
            if jnp.shape(self.spectrum) != (self.num_features,):
                raise ValueError(
                    f"spectrum must hold num_features = {self.num_features} values, "
                    f"got shape {list(jnp.shape(self.spectrum))}"
                )
            checks.positive("spectrum", self.spectrum)

    def sample(self, key: jax.Array) -> Task:
        at, rotation, weights, error = jax.random.split(key, 4)
        p, r = self.num_features, self.num_outputs or 1
        spectrum = self.spectrum
        if spectrum is None:
            spectrum = jnp.asarray(self.condition, float) ** -jnp.linspace(0, 1, p)
        white = jax.random.normal(at, (self.num_supports + self.num_queries, p))
        scaled = white * jnp.sqrt(jnp.asarray(spectrum))
        x = matmul(scaled, one_by_one(partial(jax.random.orthogonal, n=p))(rotation).T)
        f = matmul(x, jax.random.normal(weights, (p, r))) / jnp.sqrt(p)
        return observe(error, x, f, self)


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
