"""The Gaussian kernel."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .. import checks
from ..constants import xp
from ..numerics import power_below
from ..pytree import checked, compiled
from .algebra import check_projection, mean_of_pairs, squared_distances, stationary
from .log_bilinear import LogBilinear


@checked
class Gaussian(LogBilinear):
    r"""The Gaussian kernel $k(x, z) = \exp(-|Ux - Uz|^2 / 2\ell^2)$.

    JAX traces `lengthscale` and `projection`, so a new value causes no recompilation.

    Args:
        projection: as in `Exponential`, which also says what is raised.
        lengthscale: scalar $\ell$ > 0, in units of $Ux$; default 1.

    >>> import jax.numpy as jnp
    >>> Gaussian(lengthscale=2.0).log(jnp.zeros((1, 1)), jnp.full((1, 1), 4.0)).tolist()
    [[-2.0]]
    """

    bandwidth: ClassVar[str | None] = "lengthscale"
    largest: ClassVar[float | None] = 1.0

    lengthscale: Any = 1.0
    projection: Any = None

    def __post_init__(self):
        checks.positive("lengthscale", self.lengthscale)
        check_projection(self.projection)

    def coefficients(self, dtype: DTypeLike) -> tuple[Any, Any]:
        r"""$c = d = 1 / \ell^2$."""
        checks.scalar("lengthscale", self.lengthscale)
        inverse = 1 / xp.asarray(self.lengthscale, dtype) ** 2
        return inverse, inverse

    def log(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        r"""$\log k(x, z) = -|Ux - Uz|^2 / 2\ell^2$."""
        checks.scalar("lengthscale", self.lengthscale)
        checks.matrices(x, z)
        return self._log(x, z)

    @compiled
    def _log(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        # points are divided by a power of two first: 1 / l^3, a factor of the derivative, overflows
        lengthscale = jnp.asarray(self.lengthscale, x.dtype)
        scale = power_below(lengthscale)
        divisor = 2 * (lengthscale / scale) ** 2
        return stationary(lambda squares: -squares / divisor, self.projection, x, z, scale)

    @classmethod
    def of_temperature(cls, temperature: Any) -> Gaussian:
        r"""The kernel with lengthscale $\ell = \sqrt{\tau}$."""
        return cls(temperature**0.5)

    @classmethod
    def typical_bandwidth(cls, x: Float[Array, "n p"], mask: Any = None) -> Float[Array, ""]:
        r"""The root mean square of all $|x_i - x_j| / \sqrt{2}$."""
        checks.matrices(x, x)
        return jnp.sqrt(mean_of_pairs(squared_distances(x, x), mask) / 2)

    def derivative_in_bandwidth(
        self, x: Float[Array, "n p"], z: Float[Array, "m p"]
    ) -> Float[Array, "n m"]:
        r"""$\partial k / \partial \ell = -2 k \log k / \ell$."""
        return -2 * self(x, z) * self.log(x, z) / jnp.asarray(self.lengthscale, x.dtype)
