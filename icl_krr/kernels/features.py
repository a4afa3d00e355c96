"""The kernel of a feature map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..pytree import checked
from .algebra import inner
from .forms import FeatureLayer
from .kernel import Kernel


@checked
class Features(Kernel):
    r"""The kernel of a feature map, $k(x, z) = \phi(x)^T \phi(z)$: of rank m at most.

    `map` $\phi$ takes points [n, p] to features [n, m]; `icl_krr.sketches` has random features and
    those of landmarks. It is a pytree, and what it holds is traced. A map of one's own whose
    `width` is m and whose `layer(dtype)` is a `FeatureLayer` runs as a transformer, too.

    >>> import jax, jax.numpy as jnp
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
            raise TypeError(f"map must be a feature map of icl_krr.sketches, got {self.map!r}")

    def __call__(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        return inner(self.map(x), self.map(z))

    @property
    def feature_map(self) -> Callable[[Float[Array, "n p"]], Float[Array, "n m"]]:
        r"""$\phi$ itself."""
        return self.map

    def feature_layer(self, dtype: DTypeLike) -> FeatureLayer:
        r"""That of the map; ValueError for a map that has none."""
        if not hasattr(self.map, "layer"):
            raise ValueError(
                "map must be RandomFeatures or NystromFeatures to be made by an MLP, "
                f"got {self.map!r}"
            )
        return self.map.layer(dtype)
