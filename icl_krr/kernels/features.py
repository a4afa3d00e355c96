"""The kernel of a feature map."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction
from typing import Any, ClassVar

from jax.tree_util import Partial
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..pytree import checked
from .algebra import inner
from .forms import FeatureLayer
from .kernel import Kernel


@checked
class Features(Kernel):
    r"""The kernel $k(x, z) = \phi(x)^T \phi(z)$ of a feature map $\phi$ with m features.

    The rank of its kernel matrices is at most m. `icl_krr.sketches` makes random features and
    Nystrom features. You can also write your own feature map. A transformer can compute the map if
    the map has an attribute `width` (the number m) and a method `layer(dtype)`. The method returns
    a `FeatureLayer`.

    Args:
        map: feature map $\phi$, a callable from points [n, p] to features [n, m]. The arrays of a
            map that is a pytree are leaves of the kernel. A plain function is wrapped in
            `jax.tree_util.Partial`.

    Raises:
        TypeError: `map` is not callable.

    >>> import jax
    >>> import numpy as np
    >>> from icl_krr import Exponential
    >>> from icl_krr.sketches import positive_features
    >>> phi = positive_features(jax.random.key(0), Exponential(2.0), num_features=3, width=64)
    >>> Features(phi)(np.ones((2, 3)), np.ones((1, 3))).shape
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
        r"""The feature map $\phi$ that the kernel was made from."""
        return self.map

    def feature_layer(self, dtype: DTypeLike) -> FeatureLayer:
        r"""The result of the map's method `layer`.

        Raises:
            ValueError: the map has no method `layer`.
        """
        if not hasattr(self.map, "layer"):
            raise ValueError(
                "map must have a method layer, as RandomFeatures and NystromFeatures have, "
                f"so that an MLP can compute it, got {self.map!r}"
            )
        return self.map.layer(dtype)
