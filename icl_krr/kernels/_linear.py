"""Kernels whose features are known: the linear kernel, and that of a feature map."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from inspect import isfunction
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .._core import checks
from .._core.constants import xp
from .._core.numerics import matmul
from .._core.pytree import pytree_dataclass
from ._algebra import check_projection, identity_or, inner, outer, precede, project
from ._forms import Diagonal, FeatureLayer, Pattern, Patterns
from ._kernel import Kernel


@pytree_dataclass
class Linear(Kernel):
    r"""The linear kernel $k(x, z) = \langle Ux, Uz \rangle$.

    Args:
        projection: as in `Exponential`.

    >>> Linear()(jnp.ones((2, 3)), jnp.ones((1, 3))).tolist()
    [[3.0], [3.0]]
    """

    featured: ClassVar[bool] = True

    projection: Any = None

    def __post_init__(self):
        check_projection(self.projection)

    def __call__(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        checks.matrices(x, z)
        return products(self.projection, x, z)

    def sketched(self, sketch: Float[Array, "p m"]) -> Linear:
        return dataclasses.replace(self, projection=precede(self.projection, sketch))

    def patterns(self, dtype: DTypeLike, epsilon: Any = None, symmetric: bool = True) -> Patterns:
        if epsilon is None:
            raise ValueError(
                "attention must be Softmax(epsilon=...) to emulate the linear kernel, got no "
                "epsilon; use epsilon=icl_krr.theory.best_epsilon(...)"
            )
        epsilon = xp.asarray(epsilon, dtype)
        weight, other = (1 / (2 * epsilon), -epsilon) if symmetric else (1 / epsilon, None)
        U = self.projection
        return Pattern(weight, epsilon, None, U), Pattern(-weight, other, None, U)

    def diagonal_terms(self, dtype: DTypeLike) -> tuple[Diagonal, ...]:
        return (Diagonal(1.0, "identity", 1.0, self.projection),)

    @property
    def feature_map(self) -> Callable[[Float[Array, "n p"]], Float[Array, "n m"]]:
        return partial(project, self.projection)

    def feature_layer(self, dtype: DTypeLike) -> FeatureLayer:
        return FeatureLayer(self.projection)

    def nystrom_features(self, landmarks: Float[Array, "l p"]) -> FeatureLayer:
        return FeatureLayer(self.projection, "identity", precede(self.projection, landmarks).T)

    def derivative_in_x(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Array:
        r"""$\partial k / \partial x = U^T U z$."""
        U = identity_or(self.projection, x)
        return matmul(matmul(jnp.broadcast_to(z[None], (len(x), *z.shape)), U.T), U)

    def derivative_in_projection(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Array:
        r"""$\partial k / \partial U = U (x z^T + z x^T)$."""
        U = identity_or(self.projection, x)
        shape = (len(x), len(z), x.shape[1])
        x, z = jnp.broadcast_to(x[:, None], shape), jnp.broadcast_to(z[None], shape)
        return outer(matmul(x, U.T), z) + outer(matmul(z, U.T), x)


@jax.jit
def products(projection: Any, x: Any, z: Any) -> Float[Array, "n m"]:
    return inner(project(projection, x), project(projection, z))


@pytree_dataclass
class Features(Kernel):
    r"""The kernel $k(x, z) = \phi(x)^T \phi(z)$ of a feature map $\phi$ with m features.

    The rank of its kernel matrices is at most m. `icl_krr.sketches` makes random features and
    Nystrom features. A transformer can compute a map of your own if it has an attribute `width`,
    the number m, and a method `layer(dtype)` that returns a `FeatureLayer`.

    Args:
        map: feature map $\phi$, a callable from points [n, p] to features [n, m]. The arrays of a
            map that is a pytree are leaves of the kernel. A plain function is wrapped in
            `jax.tree_util.Partial`.

    >>> from icl_krr import Exponential
    >>> from icl_krr.sketches import positive_features
    >>> phi = positive_features(jax.random.key(0), Exponential(2.0), num_features=3, width=64)
    >>> Features(phi)(jnp.ones((2, 3)), jnp.ones((1, 3))).shape
    (2, 1)
    """

    featured: ClassVar[bool] = True

    map: Any

    def __post_init__(self):
        if not callable(self.map):
            raise TypeError(
                "map must be callable, such as a feature map from icl_krr.sketches, "
                f"got {self.map!r}"
            )
        if isfunction(self.map):
            object.__setattr__(self, "map", Partial(self.map))

    def __call__(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        return inner(self.map(x), self.map(z))

    @property
    def feature_map(self) -> Callable[[Float[Array, "n p"]], Float[Array, "n m"]]:
        return self.map

    def feature_layer(self, dtype: DTypeLike) -> FeatureLayer:
        if not hasattr(self.map, "layer"):
            raise ValueError(
                "map must have a method layer, as RandomFeatures and NystromFeatures have, "
                f"so that an MLP can compute it, got {self.map!r}"
            )
        return self.map.layer(dtype)
