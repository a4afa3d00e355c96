"""The exponential kernel: the weights of one softmax head."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .. import checks
from ..pytree import checked
from .algebra import check_projection, inner, project
from .log_bilinear import LogBilinear


@checked
class Exponential(LogBilinear):
    r"""The exponential kernel $k(x, z) = \exp(\langle Ux, Uz \rangle / \tau)$ of one softmax head.

    `temperature` $\tau$ is a scalar > 0 in units of $\langle Ux, Uz \rangle$, and `projection` $U$
    [d, p] the head's queries and keys, by default the identity; both are traced: a new value does
    not recompile. Calling it maps `x` [n, p] and `z` [m, p] to [n, m] in their dtype; it overflows
    where the logarithm passes 88.7 (float32) or 709.7 (float64).

    Raises ValueError for a temperature that is not > 0 and a projection that is not [d, p].

    >>> import jax.numpy as jnp
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
        r"""$1 / \tau$, and no norms."""
        checks.scalar("temperature", self.temperature)
        return 1 / jnp.asarray(self.temperature, dtype), None

    def log(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        r"""$\langle Ux, Uz \rangle / \tau$."""
        checks.scalar("temperature", self.temperature)
        checks.matrices(x, z)
        x, z = (project(self.projection, points) for points in (x, z))
        # the quotient of the products would be fused, and rounded anew, wherever it is used
        return inner(x / jnp.asarray(self.temperature, x.dtype), z)

    @classmethod
    def typical_bandwidth(cls, products: Float[Array, "n n"]) -> Float[Array, ""]:
        r"""The root mean square of $\langle x_i, x_j \rangle$."""
        return jnp.sqrt(jnp.mean(products**2))

    def derivative_in_bandwidth(
        self, x: Float[Array, "n p"], z: Float[Array, "m p"]
    ) -> Float[Array, "n m"]:
        r"""$-k \log k / \tau$."""
        return -self(x, z) * self.log(x, z) / jnp.asarray(self.temperature, x.dtype)
