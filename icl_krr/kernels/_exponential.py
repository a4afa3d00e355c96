"""The exponential kernel, whose normalised values are the weights of one softmax head."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .._core import checks
from .._core.constants import xp
from .._core.pytree import jit_if_concrete, pytree_dataclass
from ._algebra import check_projection, inner, mean_of_pairs, project
from ._log_bilinear import LogBilinear


@pytree_dataclass
class Exponential(LogBilinear):
    r"""The exponential kernel $k(x, z) = \exp(\langle Ux, Uz \rangle / \tau)$ of one softmax head.

    The values overflow if the logarithm exceeds 88.7 (float32) or 709.7 (float64). JAX traces
    `temperature` and `projection`, so a new value causes no recompilation.

    Args:
        temperature: scalar $\tau$ > 0, in units of $\langle Ux, Uz \rangle$.
        projection: matrix $U$ [d, p] that maps inputs to the head's queries and keys; None for the
            identity.

    >>> Exponential(temperature=0.5).log(jnp.ones((1, 2)), jnp.ones((1, 2))).tolist()
    [[4.0]]
    """

    bandwidth: ClassVar[str | None] = "temperature"

    temperature: Any = 1.0
    projection: Any = None

    def __post_init__(self):
        checks.positive("temperature", self.temperature)
        check_projection(self.projection)

    def coefficients(self, dtype: DTypeLike) -> tuple[Any, None]:
        checks.scalar("temperature", self.temperature)
        return 1 / xp.asarray(self.temperature, dtype), None

    def log(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        checks.scalar("temperature", self.temperature)
        checks.matrices(x, z)
        return self._log(x, z)

    @jit_if_concrete
    def _log(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        x, z = (project(self.projection, points) for points in (x, z))
        # x is divided before the product: XLA would fuse a division after the product into each
        # of its uses, and round differently in each
        return inner(x / jnp.asarray(self.temperature, x.dtype), z)

    @classmethod
    def typical_bandwidth(cls, x: Float[Array, "n p"], mask: Any = None) -> Float[Array, ""]:
        r"""The root mean square of all $\langle x_i, x_j \rangle$."""
        checks.matrices(x, x)
        return jnp.sqrt(mean_of_pairs(inner(x, x) ** 2, mask))

    def derivative_in_bandwidth(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Array:
        r"""$\partial k / \partial \tau = -k \log k / \tau$."""
        return -self(x, z) * self.log(x, z) / jnp.asarray(self.temperature, x.dtype)
