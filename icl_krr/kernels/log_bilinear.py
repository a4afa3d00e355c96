"""The form that the softmax kernel and the Gaussian one share."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .. import checks
from ..numerics import matmul
from .algebra import identity_or, inner, outer, precede, project, squared_distances
from .forms import Diagonal, FeatureLayer, Pattern
from .positive import PositiveKernel


class LogBilinear(PositiveKernel):
    r"""$\log k(x, z) = c \langle Ux, Uz \rangle - d (|Ux|^2 + |Uz|^2) / 2$: one softmax head.

    The exponential kernel has $(c, d) = (1 / \tau, 0)$, the Gaussian $(1 / \ell^2, 1 / \ell^2)$. A
    kernel of one's own has a field `projection` $U$ [d, p], or None, and the method
    `coefficients`; samplers, sketches, random features and every solver that does not ask for
    features then take it. With the name of a field as `bandwidth`, a `ClassVar`, and the
    classmethod `typical_bandwidth` it can be fitted as well, as the Gaussian is.

    >>> import jax.numpy as jnp
    >>> from typing import Any
    >>> from icl_krr.pytree import checked
    >>> @checked
    ... class Tilted(LogBilinear):
    ...     inner: Any = 1.0
    ...     norm: Any = 0.5
    ...     projection: Any = None
    ...
    ...     def coefficients(self, dtype):
    ...         return jnp.asarray(self.inner, dtype), jnp.asarray(self.norm, dtype)
    >>> Tilted().log(jnp.ones((1, 2)), jnp.ones((1, 2))).tolist()
    [[1.0]]
    """

    projection: Any

    @abstractmethod
    def coefficients(self, dtype: DTypeLike) -> tuple[Any, Any]:
        """$c$ and $d$, scalars of this dtype.

        $d$ is None for a kernel without norms, and the very object $c$ for one of $Ux - Uz$ alone.
        """

    @classmethod
    def of_temperature(cls, temperature: Any) -> Any:
        r"""The kernel of bandwidth $\tau$; a class whose bandwidth is not $1 / c$ says which."""
        return cls.of_bandwidth(temperature)

    def log(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        r"""$-d |Ux - Uz|^2 / 2 + (c - d) \langle Ux, Uz \rangle$."""
        checks.matrices(x, z)
        c, d = self.coefficients(x.dtype)
        x, z = (project(self.projection, points) for points in (x, z))
        if d is None:
            return inner(c * x, z)
        stationary = -d / 2 * squared_distances(x, z)
        return stationary if c is d else stationary + (c - d) * inner(x, z)

    def sketched(self, sketch: Float[Array, "p m"]) -> LogBilinear:
        r"""The same kernel with the projection $U P^T$."""
        return dataclasses.replace(self, projection=precede(self.projection, sketch))  # pyright: ignore[reportArgumentType]

    def patterns(
        self, dtype: DTypeLike, epsilon: Any = None, symmetric: bool = True
    ) -> tuple[Pattern, ...]:
        """One pattern, of weight 1; nothing is emulated."""
        return (Pattern(1.0, *self.coefficients(dtype), self.projection),)

    def diagonal_terms(self, dtype: DTypeLike) -> tuple[Diagonal, ...]:
        r"""$k(x, x) = \exp((c - d) |Ux|^2)$."""
        c, d = self.coefficients(dtype)
        if c is d:
            return (Diagonal(1.0, "one", None, None),)
        return (Diagonal(1.0, "exp", c if d is None else c - d, self.projection),)

    def seen_from(self, landmarks: Float[Array, "l p"]) -> FeatureLayer:
        """An exponential for each landmark."""
        c, d = self.coefficients(landmarks.dtype)
        at = project(self.projection, landmarks)
        layer = FeatureLayer(self.projection, "exp", c * at)
        if d is None:
            return layer
        return layer._replace(offsets=-d / 2 * jnp.sum(at * at, axis=1), damping=d / 2)

    def derivative_in_x(
        self, x: Float[Array, "n p"], z: Float[Array, "m p"]
    ) -> Float[Array, "n m p"]:
        r"""$k(x, z) \, U^T U (c z - d x)$."""
        c, d = self.coefficients(x.dtype)
        U = identity_or(self.projection, x)
        slope = c * z[None] - (0 if d is None else d) * x[:, None]
        return matmul(matmul(self(x, z)[:, :, None] * slope, U.T), U)

    def derivative_in_projection(
        self, x: Float[Array, "n p"], z: Float[Array, "m p"]
    ) -> Float[Array, "n m d p"]:
        r"""$k(x, z) \, U (c (x z^T + z x^T) - d (x x^T + z z^T))$."""
        c, d = self.coefficients(x.dtype)
        U = identity_or(self.projection, x)
        shape = (len(x), len(z), x.shape[1])
        x, z = jnp.broadcast_to(x[:, None], shape), jnp.broadcast_to(z[None], shape)
        Ux, Uz = (matmul(points, U.T) for points in (x, z))
        slope = c * (outer(Ux, z) + outer(Uz, x))
        if d is not None:
            slope = slope - d * (outer(Ux, x) + outer(Uz, z))
        return self(x[:, 0], z[0])[:, :, None, None] * slope
