"""The Gaussian kernel, and what kernels of a distance over a lengthscale have in common."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .._core import checks
from .._core.constants import xp
from .._core.numerics import power_of_two_below
from .._core.pytree import jit_if_concrete, pytree_dataclass
from ._algebra import check_projection, mean_of_pairs, precede, squared_distances, stationary
from ._forms import Diagonal
from ._log_bilinear import LogBilinear, PositiveKernel


@pytree_dataclass
class Stationary(PositiveKernel):
    r"""A positive kernel of $|Ux - Uz| / \ell$, with $k(x, x) = 1$.

    Args:
        lengthscale: scalar $\ell$ > 0, in units of $Ux$.
        projection: matrix $U$ [d, p], or None for the identity.
    """

    bandwidth: ClassVar[str | None] = "lengthscale"
    largest: ClassVar[float | None] = 1.0

    lengthscale: Any = 1.0
    projection: Any = None

    def __post_init__(self):
        checks.positive("lengthscale", self.lengthscale)
        check_projection(self.projection)

    @abstractmethod
    def _of_squares(self, lengthscale: jax.Array, squares: jax.Array) -> jax.Array:
        """The logarithm as a function of the squared distances."""

    def log(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        checks.scalar("lengthscale", self.lengthscale)
        checks.matrices(x, z)
        return self._log(x, z)

    @jit_if_concrete
    def _log(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        # points are divided by a power of two first: 1 / l^3, a factor of the derivative, overflows
        lengthscale = jnp.asarray(self.lengthscale, x.dtype)
        scale = power_of_two_below(lengthscale)
        function = partial(self._of_squares, lengthscale / scale)
        return stationary(function, self.projection, x, z, scale)

    @property
    def stationary(self) -> bool:
        return True

    @classmethod
    def of_temperature(cls, temperature: Any) -> Any:
        r"""The kernel with lengthscale $\ell = \sqrt{\tau}$.

        Args:
            temperature: temperature $\tau$, a scalar > 0.
        """
        return cls(temperature**0.5)

    @classmethod
    def typical_bandwidth(cls, x: Float[Array, "n p"], mask: Any = None) -> Float[Array, ""]:
        r"""The root mean square of all $|x_i - x_j| / \sqrt{2}$."""
        checks.matrices(x, x)
        return jnp.sqrt(mean_of_pairs(squared_distances(x, x), mask) / 2)

    def sketched(self, sketch: Float[Array, "p m"]) -> Any:
        return dataclasses.replace(self, projection=precede(self.projection, sketch))

    def diagonal_terms(self, dtype: DTypeLike) -> tuple[Diagonal, ...]:
        return (Diagonal(1.0, "one", None, None),)


@pytree_dataclass
class Gaussian(Stationary, LogBilinear):
    r"""The Gaussian kernel $k(x, z) = \exp(-|Ux - Uz|^2 / 2\ell^2)$.

    Args:
        projection: as in `Exponential`.
        lengthscale: scalar $\ell$ > 0, in units of $Ux$; traced.

    >>> Gaussian(lengthscale=2.0).log(jnp.zeros((1, 1)), jnp.full((1, 1), 4.0)).tolist()
    [[-2.0]]
    """

    def coefficients(self, dtype: DTypeLike) -> tuple[Any, Any]:
        r"""$c = d = 1 / \ell^2$."""
        checks.scalar("lengthscale", self.lengthscale)
        inverse = 1 / xp.asarray(self.lengthscale, dtype) ** 2
        return inverse, inverse

    def _of_squares(self, lengthscale: jax.Array, squares: jax.Array) -> jax.Array:
        return -squares / (2 * lengthscale**2)

    def derivative_in_bandwidth(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Array:
        r"""$\partial k / \partial \ell = -2 k \log k / \ell$."""
        return -2 * self(x, z) * self.log(x, z) / jnp.asarray(self.lengthscale, x.dtype)
