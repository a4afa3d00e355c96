"""The kernels: linear, exponential (the softmax kernel) and Gaussian."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import checks
from .numerics import matmul
from .pytree import checked


class Kernel(ABC):
    """A positive semi-definite function k(x, z); calling it gives the Gram matrix."""

    @abstractmethod
    def __call__(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]: ...

    def diagonal(self, x: Float[Array, "n p"]) -> Float[Array, " n"]:
        """k(x_i, x_i) for every row."""
        return jax.vmap(lambda point: self(point[None], point[None])[0, 0])(x)


class PositiveKernel(Kernel):
    """A kernel k > 0, known by its logarithm: what one softmax head can weigh values by."""

    @abstractmethod
    def log(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]: ...

    def __call__(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        return jnp.exp(self.log(x, z))


@checked
class Linear(Kernel):
    """The linear kernel k(x, z) = <x, z>.

    Calling it maps `x` [n, p] and `z` [m, p] to [n, m] in their dtype.

    >>> import jax.numpy as jnp
    >>> Linear()(jnp.ones((2, 3)), jnp.ones((1, 3))).tolist()
    [[3.0], [3.0]]
    """

    def __call__(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        return inner(x, z)


@checked
class Exponential(PositiveKernel):
    """The exponential kernel k(x, z) = exp(<U x, U z> / temperature) of one softmax head.

    `temperature` is a scalar > 0 in units of <U x, U z>, and `projection` U [d, p] the head's
    queries and keys, by default the identity; both are traced: a new value does not recompile.
    Calling it maps `x` [n, p] and `z` [m, p] to [n, m] in their dtype; it overflows where
    <U x, U z> / temperature passes 88.7 (float32) or 709.7 (float64).

    Raises ValueError for a temperature that is not > 0 and a projection that is not [d, p].

    >>> import jax.numpy as jnp
    >>> Exponential(temperature=0.5).log(jnp.ones((1, 2)), jnp.ones((1, 2))).tolist()
    [[4.0]]
    """

    temperature: Any = 1.0
    projection: Any = None

    def __post_init__(self):
        checks.positive("temperature", self.temperature)
        if self.projection is not None:
            checks.floating("projection", self.projection)
            checks.finite("projection", self.projection)

    def log(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        checks.scalar("temperature", self.temperature)
        checks.matrices(x, z)
        x, z = (self.project(jnp.asarray(points)) for points in (x, z))
        # the quotient of the products would be fused, and rounded anew, wherever it is used
        return inner(x / jnp.asarray(self.temperature, x.dtype), z)

    def project(self, x: Float[Array, "n p"]) -> Float[Array, "n d"]:
        """U x for every row."""
        if self.projection is None:
            return x
        if jnp.ndim(self.projection) != 2 or jnp.shape(self.projection)[1] != x.shape[1]:
            raise ValueError(
                f"projection must be [d, p] with p = {x.shape[1]} features as x, "
                f"got shape {list(jnp.shape(self.projection))}"
            )
        return matmul(x, jnp.asarray(self.projection, x.dtype).T)


@checked
class Gaussian(PositiveKernel):
    """The Gaussian kernel k(x, z) = exp(-|x - z|^2 / (2 lengthscale^2)).

    `lengthscale` is a scalar > 0 in units of x, traced: a new value does not recompile.
    Calling it maps `x` [n, p] and `z` [m, p] to [n, m] in their dtype.

    Raises ValueError for a lengthscale that is not > 0.

    >>> import jax.numpy as jnp
    >>> Gaussian(lengthscale=2.0).log(jnp.zeros((1, 1)), jnp.full((1, 1), 4.0)).tolist()
    [[-2.0]]
    """

    lengthscale: Any = 1.0

    def __post_init__(self):
        checks.positive("lengthscale", self.lengthscale)

    def log(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        checks.scalar("lengthscale", self.lengthscale)
        checks.matrices(x, z)
        x, z = jnp.asarray(x), jnp.asarray(z)
        squares = jnp.sum(x * x, -1)[:, None] + jnp.sum(z * z, -1)[None, :]
        distances = jnp.maximum(squares - 2 * inner(x, z), 0)
        lengthscale = jnp.asarray(self.lengthscale, distances.dtype)
        return -distances / (2 * lengthscale**2)


def inner(x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
    """Inner products of rows."""
    checks.matrices(x, z)
    return matmul(x, z.T)


def check_kernel(kernel: Kernel) -> None:
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel must be a kernel such as icl_krr.Linear(), got {kernel!r}")
