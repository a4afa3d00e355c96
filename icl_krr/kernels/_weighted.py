"""Kernels of weighted points: the last feature of a point is the logarithm of a factor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .._core.constants import xp
from .._core.pytree import jit_if_concrete, pytree_dataclass, static
from ._algebra import precede
from ._forms import Diagonal, FeatureLayer, Patterns
from ._kernel import Kernel
from ._log_bilinear import PositiveKernel


@pytree_dataclass
class Weighted(Kernel):
    r"""The kernel $k'((x, u), (z, v)) = e^{u + v} k(x, z)$ of points with one more feature.

    A regression with sample weights $w_i$ has the ridge $\lambda / w_i$ at support i. It is the
    regression of this kernel with the ridge $\lambda$, supports $(x_i, \log(w_i) / 2)$, outputs
    $\sqrt{w_i} y_i$ and queries $(x, 0)$:

    $$k(x)^T (K + \lambda W^{-1})^{-1} y
    = k(x)^T W^{1/2} (W^{1/2} K W^{1/2} + \lambda I)^{-1} W^{1/2} y$$

    `weighted` makes it. All solvers and constructions that take $k$ take it.

    >>> from icl_krr import Linear
    >>> x = np.array([[3.0, np.log(2.0)]])
    >>> weighted(Linear(), num_features=1)(x, x).round(4).tolist()
    [[36.0]]
    """

    kernel: Any
    num_features: int = static()

    def __call__(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        return values(self.kernel, x, z)

    def constant(self, x: Float[Array, "n p"]) -> Float[Array, " n"]:
        return factors(x)

    @property
    def featured(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the features of the kernel $k$ are known."""
        return self.kernel.featured

    @property
    def parts(self) -> tuple[tuple[Any, PositiveKernel], ...]:
        parts = self.kernel.parts
        return tuple((share, weighted(part, self.num_features)) for share, part in parts)

    def patterns(self, dtype: DTypeLike, epsilon: Any = None, symmetric: bool = True) -> Patterns:
        return tuple(map(self._with_factors, self.kernel.patterns(dtype, epsilon, symmetric)))

    def diagonal_terms(self, dtype: DTypeLike) -> tuple[Diagonal, ...]:
        terms = [self._with_factors(term, 2) for term in self.kernel.diagonal_terms(dtype)]
        if any(term.function == "identity" for term in terms):
            return super().diagonal_terms(dtype)
        return tuple(term._replace(function="exp") for term in terms)

    @property
    def feature_map(self) -> Callable[[Float[Array, "n p"]], Float[Array, "n m"]]:
        phi = self.kernel.feature_map
        return lambda x: self.constant(x)[:, None] * phi(x[:, :-1])

    def feature_layer(self, dtype: DTypeLike) -> FeatureLayer:
        layer = self._with_factors(self.kernel.feature_layer(dtype))
        if layer.frequencies is not None:
            return layer
        return layer._replace(frequencies=np.eye(len(layer.projection), dtype=dtype))

    def nystrom_features(self, landmarks: Float[Array, "l p"]) -> FeatureLayer:
        layer = self._with_factors(self.kernel.nystrom_features(landmarks[:, :-1]))
        if layer.function == "identity":
            return layer.times(xp.diag(xp.exp(landmarks[:, -1])))
        offsets = 0 if layer.offsets is None else layer.offsets
        return layer._replace(offsets=offsets + landmarks[:, -1])

    def _with_factors(self, form: Any, power: int = 1) -> Any:
        """A form that reads x from (x, u), with the tilt `power` times u."""
        both = np.eye(self.num_features + 1, dtype=jnp.result_type(float))
        projection = precede(form.projection, both[:, :-1])
        return form._replace(projection=projection, tilt=power * both[-1])


@pytree_dataclass
class WeightedPositive(Weighted, PositiveKernel):  # pyright: ignore[reportIncompatibleVariableOverride]
    """A `Weighted` kernel that is positive."""

    def log(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        return self.kernel.log(x[:, :-1], z[:, :-1]) + x[:, -1:] + z[:, -1][None]


@jax.jit
def factors(x: Float[Array, "n p"]) -> Float[Array, " n"]:
    return jnp.exp(x[:, -1])


@jit_if_concrete
def values(kernel: Kernel, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
    return factors(x)[:, None] * kernel(x[:, :-1], z[:, :-1]) * factors(z)[None]


def weighted(kernel: Kernel, num_features: int) -> Any:
    """The `Weighted` kernel of a kernel of p = `num_features` features, positive if that one is."""
    kind = WeightedPositive if isinstance(kernel, PositiveKernel) else Weighted
    return kind(kernel, num_features)


def weighted_family(family: type[Kernel], num_features: int) -> Any:
    """A class that makes the `Weighted` kernels of the kernels that `family` makes."""

    class Family(family):
        @classmethod
        def of_bandwidth(cls, value: Any) -> Any:
            return weighted(family.of_bandwidth(value), num_features)

        @classmethod
        def typical_bandwidth(cls, x: Float[Array, "n p"], mask: Any = None) -> Float[Array, ""]:
            return family.typical_bandwidth(x[:, :-1], mask)

    return Family
