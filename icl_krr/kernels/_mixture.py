"""Several kernels: the sum of positive ones, and the pairs of kernel and ridge of an average."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .._core import checks
from .._core.constants import xp
from .._core.pytree import jit_if_concrete, pytree_dataclass
from ._forms import Diagonal, Patterns
from ._kernel import Kernel, check_kernel
from ._log_bilinear import PositiveKernel


@pytree_dataclass
class Mixture(Kernel):
    r"""The weighted sum $k = \sum_h w_h k_h$ of positive kernels; each kernel uses one head.

    Args:
        kernels: positive kernels $k_h$, which may differ in bandwidth and projection.
        weights: weights $w_h$ > 0, [h], traced.

    >>> from icl_krr import Exponential, Gaussian
    >>> mixture = Mixture((Exponential(1.0), Gaussian(1.0)), weights=jnp.array([1.0, 0.5]))
    >>> mixture(jnp.zeros((1, 2)), jnp.zeros((1, 2))).tolist()
    [[1.5]]
    """

    kernels: tuple
    weights: Any

    def __post_init__(self):
        if not isinstance(self.kernels, tuple) or not self.kernels:
            raise TypeError(f"kernels must be a tuple of at least one kernel, got {self.kernels!r}")
        for kernel in self.kernels:
            if not isinstance(kernel, PositiveKernel):
                raise TypeError(
                    "kernels must be positive, such as Exponential or Gaussian, to be mixed, "
                    f"got {kernel!r}"
                )
        checks.positive("weights", self.weights)
        if jnp.shape(self.weights) != (len(self.kernels),):
            raise ValueError(
                f"weights must have one entry for each of the {len(self.kernels)} kernels, "
                f"got shape {list(jnp.shape(self.weights))}"
            )

    def __call__(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        checks.matrices(x, z)
        return self._values(x, z)

    @jit_if_concrete
    def _values(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        grams = jnp.stack([kernel(x, z) for kernel in self.kernels])
        return jnp.sum(jnp.asarray(self.weights, grams.dtype)[:, None, None] * grams, axis=0)

    def rounding(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        errors = jnp.stack([kernel.rounding(x, z) for kernel in self.kernels])
        return jnp.sum(jnp.asarray(self.weights, errors.dtype)[:, None, None] * errors, axis=0)

    @property
    def parts(self) -> tuple[tuple[Any, PositiveKernel], ...]:
        return tuple(zip(xp.asarray(self.weights), self.kernels, strict=True))

    @property
    def stationary(self) -> bool:
        return all(kernel.stationary for kernel in self.kernels)

    def sketched(self, sketch: Float[Array, "p m"]) -> Mixture:
        return dataclasses.replace(self, kernels=tuple(k.sketched(sketch) for k in self.kernels))

    def patterns(self, dtype: DTypeLike, epsilon: Any = None, symmetric: bool = True) -> Patterns:
        return self._scaled([kernel.patterns(dtype) for kernel in self.kernels], dtype)

    def diagonal_terms(self, dtype: DTypeLike) -> tuple[Diagonal, ...]:
        return self._scaled([kernel.diagonal_terms(dtype) for kernel in self.kernels], dtype)

    def _scaled(self, terms: list[tuple[Any, ...]], dtype: DTypeLike) -> tuple[Any, ...]:
        return tuple(
            term._replace(weight=weight * term.weight)
            for weight, kernel_terms in zip(xp.asarray(self.weights, dtype), terms, strict=True)
            for term in kernel_terms
        )


def check_pairs(
    kernel: Kernel | Sequence[Kernel], ridges: Any, name: str = "kernel"
) -> tuple[Kernel, ...]:
    """Check the kernels, named `name`, and the ridges of G models, and return the G kernels."""
    checks.floating("ridges", ridges)
    if jnp.ndim(ridges) != 1 or len(ridges) == 0:
        raise ValueError(
            f"ridges must be a vector [G] with the ridge of every model, got shape "
            f"{list(jnp.shape(ridges))}"
        )
    checks.positive("ridges", ridges)
    if isinstance(kernel, Kernel):
        return (kernel,) * len(ridges)
    if not isinstance(kernel, (tuple, list)):
        check_kernel(kernel)  # pyright: ignore[reportArgumentType]
    for one in kernel:
        check_kernel(one)
    if len(kernel) != len(ridges):
        rule = f"{name} must be one kernel or as many as ridges, {len(ridges)}, got {len(kernel)}"
        raise ValueError(rule)
    return tuple(kernel)
