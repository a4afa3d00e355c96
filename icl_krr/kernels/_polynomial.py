"""The polynomial kernel of power attention, whose features are all products of some channels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .._core import checks
from .._core.constants import as_constant
from .._core.pytree import pytree_dataclass, static
from ._algebra import check_projection, precede, project
from ._forms import FeatureLayer
from ._kernel import Kernel
from ._linear import Linear
from ._monomials import monomials

LARGEST = 32
"""The largest degree; in float32, the 32nd power of a number above 16 is infinite."""


@pytree_dataclass
class Polynomial(Kernel):
    r"""The polynomial kernel $k(x, z) = \langle Ux, Uz \rangle^g$ of degree $g$.

    Its features are the $\binom{d + g - 1}{g}$ monomials of degree $g$ of $Ux$, each times the root
    of its multinomial coefficient. In a transformer, $\lceil \log_2 g \rceil$ MLPs of gated units
    compute them, and linear attention applies the kernel: power attention. For the kernel
    $(c + \langle x, z \rangle)^g$, add a feature of the constant value $\sqrt{c}$ to x.

    Args:
        degree: degree $g$ from 1 to 32; it is not traced.
        projection: as in `Exponential`.

    The sums of power attention with gates are one step of a causal machine:

    >>> import numpy as np
    >>> import icl_krr as ik
    >>> x, v = np.random.default_rng(0).normal(size=(2, 6, 2)).astype(np.float32)
    >>> task = ik.Task(x=x, y=v[:, 0], x_query=x[:1])
    >>> m = ik.constructions.prefix_sums(
    ...     Polynomial(2), num_features=2, ridge=1.0, prefix="inclusive", log_gate=-0.1
    ... )
    >>> output = m.state("output", ("support", "query"), "sum_j e^(G_i - G_j) <x_i, x_j>^2 v_j")
    >>> sums = m.vector("sums", "sum_j e^(G_i - G_j) phi_j v_j", starts_as=m.right)
    >>> model = m.transformer(lambda: m.add_fit(sums, None, to=output), steps=1, readout=output)
    >>> order = np.arange(6)[:, None] - np.arange(6)
    >>> decay = np.where(order >= 0, np.exp(-0.1 * order), 0)
    >>> expected = (decay * (x @ x.T) ** 2) @ v[:, 0]
    >>> bool(np.allclose(ik.predict_along(model, task)[:6], expected, 1e-4))
    True

    Source: Buckman, Gelada, Zhang, Symmetric power transformers, 2024.
    """

    featured: ClassVar[bool] = True

    degree: int = static(default=2)
    projection: Any = None

    def __post_init__(self):
        checks.count("degree", self.degree)
        if self.degree > LARGEST:
            raise ValueError(f"degree must be an integer from 1 to {LARGEST}, got {self.degree}")
        check_projection(self.projection)

    @property
    def base(self) -> Linear:
        r"""The linear kernel $\langle Ux, Uz \rangle$."""
        return Linear(self.projection)

    def __call__(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        return self.base(x, z) ** self.degree

    def sketched(self, sketch: Float[Array, "p m"]) -> Polynomial:
        return dataclasses.replace(self, projection=precede(self.projection, sketch))

    @property
    def feature_map(self) -> Callable[[Float[Array, "n p"]], Float[Array, "n m"]]:
        return partial(symmetric_power, self.degree, self.projection)

    def feature_layer(self, dtype: DTypeLike) -> FeatureLayer:
        return FeatureLayer(self.projection, degree=self.degree)

    def nystrom_features(self, landmarks: Float[Array, "l p"]) -> FeatureLayer:
        features = as_constant(self.feature_map(landmarks))
        return self.feature_layer(landmarks.dtype).times(features.T)

    def derivative_in_x(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Array:
        r"""$\partial k / \partial x = g \langle Ux, Uz \rangle^{g - 1} U^T U z$."""
        return self._slope(x, z)[:, :, None] * self.base.derivative_in_x(x, z)

    def derivative_in_projection(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Array:
        r"""$\partial k / \partial U = g \langle Ux, Uz \rangle^{g - 1} U (x z^T + z x^T)$."""
        return self._slope(x, z)[:, :, None, None] * self.base.derivative_in_projection(x, z)

    def _slope(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        return self.degree * self.base(x, z) ** (self.degree - 1)


def symmetric_power(degree: int, projection: Any, x: Float[Array, "n p"]) -> Float[Array, "n m"]:
    x = project(projection, x)
    channels, roots = monomials(x.shape[1], degree)
    product = x[:, channels[0]] * jnp.asarray(roots, x.dtype)[None]
    for channel in channels[1:]:
        product = product * x[:, channel]
    return product
