"""Kernels that are positive everywhere: what a smoother can weigh values by."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .kernel import Kernel, not_positive


class PositiveKernel(Kernel):
    r"""A kernel $k > 0$, known by its logarithm: smoothing takes no more.

    What one softmax head can weigh values by is a `LogBilinear` one.

    >>> from icl_krr import Exponential, Linear
    >>> isinstance(Exponential(), PositiveKernel), isinstance(Linear(), PositiveKernel)
    (True, False)
    """

    @abstractmethod
    def log(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        r"""$\log k(x, z)$, for every row of `x` [n, p] and of `z` [m, p]: [n, m]."""

    def __call__(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        return jnp.exp(self.log(x, z))

    @property
    def parts(self) -> tuple[tuple[Any, PositiveKernel], ...]:
        """The kernel itself, with weight 1."""
        return ((1.0, self),)


def check_positive(kernel: Kernel, purpose: str = "to weigh values by") -> None:
    if not isinstance(kernel, PositiveKernel):
        raise not_positive(kernel, purpose)
