"""Kernels that are positive everywhere, so that their values can be the weights of a smoother."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from .kernel import Kernel, not_positive


class PositiveKernel(Kernel):
    r"""A kernel with $k(x, z) > 0$ everywhere, which a subclass defines by its logarithm.

    Kernel smoothing works with every positive kernel. One softmax head can apply the kernel only
    if it is a `LogBilinear` kernel.

    >>> from icl_krr import Exponential, Linear
    >>> isinstance(Exponential(), PositiveKernel), isinstance(Linear(), PositiveKernel)
    (True, False)
    """

    @abstractmethod
    def log(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        r"""$\log k(x_i, z_j)$ for every row of `x` and every row of `z`.

        Args:
            x: points [n, p].
            z: points [m, p].

        Returns:
            Logarithms [n, m].
        """

    def __call__(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        checks.matrices(x, z)
        return exponential(self, x, z)

    def rounding(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        """The exponential turns an absolute error of the logarithm into a relative error."""
        log = self.log(x, z)
        own = jax.vmap(lambda point: self.log(point[None], point[None])[0, 0])
        sizes = [jnp.sqrt(jnp.abs(own(points))) for points in (x, z)]
        return jnp.exp(log) * (1 + jnp.abs(log) + sizes[0][:, None] * sizes[1][None])

    @property
    def parts(self) -> tuple[tuple[Any, PositiveKernel], ...]:
        """One pair: the weight 1 and the kernel itself."""
        return ((1.0, self),)


@jax.jit
def exponential(kernel: PositiveKernel, x: Any, z: Any) -> Float[Array, "n m"]:
    return jnp.exp(kernel.log(x, z))


def check_positive(kernel: Kernel, purpose: str = "to give smoothing weights") -> None:
    if not isinstance(kernel, PositiveKernel):
        raise not_positive(kernel, purpose)
