"""What a kernel is, and all that it may be asked."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .forms import Diagonal, FeatureLayer, Pattern


class Kernel(ABC):
    r"""A positive semi-definite function $k(x, z)$; calling it gives the Gram matrix.

    A subclass says what it can: every other question is refused in a sentence. `bandwidth` is the
    name of the field that scales distances or logits, None for a kernel without one; `featured`
    says whether its features are known, so that linear attention applies it.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Gaussian
    >>> Gaussian.bandwidth, Gaussian(2.0).stretched(3.0).lengthscale
    ('lengthscale', 6.0)
    """

    bandwidth: ClassVar[str | None] = None
    featured: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]: ...

    def diagonal(self, x: Float[Array, "n p"]) -> Float[Array, " n"]:
        """$k(x_i, x_i)$ for every row."""
        return jax.vmap(lambda point: self(point[None], point[None])[0, 0])(x)

    @classmethod
    def of_bandwidth(cls, value: Any) -> Any:
        """The kernel of this bandwidth, a scalar > 0; all else as its class has it."""
        return cls() if cls.bandwidth is None else cls(**{cls.bandwidth: value})

    @classmethod
    def typical_bandwidth(cls, products: Float[Array, "n n"]) -> Float[Array, ""]:
        r"""The bandwidth at which logarithms are of unit size, from all $\langle x_i, x_j \rangle$.

        Raises TypeError for a kernel without a bandwidth.
        """
        raise TypeError(f"kernel must have a bandwidth, got {cls.__name__}, which has none")

    @classmethod
    def bandwidths(cls, products: Float[Array, "n n"]) -> Float[Array, " 17"]:
        """17 values, from 1/16 to 16 times the typical one: the grid of leave-one-out."""
        typical = cls.typical_bandwidth(products)
        typical = jnp.where(typical > 0, typical, 1)
        return typical * jnp.logspace(-4, 4, 17, base=2, dtype=typical.dtype)

    def stretched(self, factor: Any) -> Any:
        """The kernel with `factor` times the bandwidth; the kernel itself if it has none."""
        if self.bandwidth is None:
            return self
        scaled = {self.bandwidth: getattr(self, self.bandwidth) * factor}
        return dataclasses.replace(self, **scaled)  # pyright: ignore[reportArgumentType]

    def sketched(self, sketch: Float[Array, "p m"]) -> Kernel:
        r"""$k(P^T x, P^T z)$ for a matrix $P$; ValueError where a matrix cannot precede."""
        raise ValueError(
            "kernel must be Linear, Exponential, Gaussian, a Mixture or another LogBilinear to be "
            f"sketched by a matrix, got {self!r}"
        )

    @property
    def parts(self) -> tuple[tuple[Any, Any], ...]:
        """Weights and the positive kernels whose sum this is; TypeError where it is none."""
        raise not_positive(self, "to weigh values by")

    def patterns(
        self, dtype: DTypeLike, epsilon: Any = None, symmetric: bool = True
    ) -> tuple[Pattern, ...]:
        r"""The softmax patterns whose sum this is, or emulates by a small `epsilon` $\epsilon$.

        Raises ValueError for a kernel that softmax attention cannot apply.
        """
        raise ValueError(
            "kernel must be Exponential, Gaussian, Linear, a Mixture or another LogBilinear to be "
            f"applied by softmax attention, got {self!r}"
        )

    def diagonal_terms(self, dtype: DTypeLike) -> tuple[Diagonal, ...]:
        """$k(x, x)$ as a sum; ValueError where a transformer cannot make it."""
        raise ValueError(f"kernel must have a known diagonal, got {self!r}")

    @property
    def feature_map(self) -> Callable[[Float[Array, "n p"]], Float[Array, "n m"]]:
        r"""$\phi$ with $k(x, z) = \phi(x)^T \phi(z)$; TypeError where it is not known."""
        raise TypeError(
            f"kernel must be Linear() or Features(...), whose features are known, got {self!r}"
        )

    def feature_layer(self, dtype: DTypeLike) -> FeatureLayer:
        r"""The same $\phi$ as one layer of a network; ValueError for a kernel without features."""
        raise ValueError(
            "kernel must be Linear() or Features(...) to be applied by linear attention, "
            f"got {self!r}; other kernels need softmax attention, or features as a sketch"
        )

    def seen_from(self, landmarks: Float[Array, "l p"]) -> FeatureLayer:
        """The layer that makes $k(x, Z)$ [n, l]; ValueError where a single layer cannot."""
        raise ValueError(
            "kernel must be Linear, Exponential, Gaussian or another LogBilinear to be seen from "
            f"landmarks, got {self!r}"
        )

    def derivative_in_x(
        self, x: Float[Array, "n p"], z: Float[Array, "m p"]
    ) -> Float[Array, "n m p"]:
        """$d k(x, z) / dx$, by hand; TypeError where nobody has worked it out."""
        raise TypeError("kernel must be Linear, Exponential or Gaussian, got {self!r}")

    def derivative_in_projection(
        self, x: Float[Array, "n p"], z: Float[Array, "m p"]
    ) -> Float[Array, "n m d p"]:
        """$d k(x, z) / dU$, by hand, at the identity where there is no projection; TypeError."""
        raise TypeError("kernel must be Linear, Exponential or Gaussian, got {self!r}")

    def derivative_in_bandwidth(
        self, x: Float[Array, "n p"], z: Float[Array, "m p"]
    ) -> Float[Array, "n m"]:
        """$d k(x, z)$ by the bandwidth, by hand; TypeError for a kernel without one."""
        raise TypeError(f"kernel must be Exponential or Gaussian to have a bandwidth, got {self!r}")


def not_positive(kernel: Kernel, purpose: str) -> TypeError:
    return TypeError(
        f"kernel must be positive {purpose}, got {kernel!r}; "
        "use icl_krr.Exponential or icl_krr.Gaussian"
    )


def check_kernel(kernel: Kernel) -> None:
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel must be a kernel such as icl_krr.Linear(), got {kernel!r}")
