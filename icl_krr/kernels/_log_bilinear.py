"""The common form of the exponential and the Gaussian kernel."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .._core import checks
from .._core.constants import xp
from .._core.numerics import matmul
from .._core.pytree import jit_if_concrete
from ._algebra import identity_or, inner, outer, precede, project, stationary
from ._forms import Diagonal, FeatureLayer, Pattern, Patterns
from ._kernel import Kernel, not_positive


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
        r"""$\log k(x_i, z_j)$ for every row of `x` and every row of `z`."""

    def __call__(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        checks.matrices(x, z)
        return exponential(self, x, z)

    def rounding(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        """The exponential turns an absolute error of the logarithm into a relative error."""
        log = self.log(x, z)
        log_diagonal = jax.vmap(lambda point: self.log(point[None], point[None])[0, 0])
        sizes = [jnp.sqrt(jnp.abs(log_diagonal(points))) for points in (x, z)]
        return jnp.exp(log) * (1 + jnp.abs(log) + sizes[0][:, None] * sizes[1][None])

    @property
    def parts(self) -> tuple[tuple[Any, PositiveKernel], ...]:
        return ((1.0, self),)


@jit_if_concrete
def exponential(kernel: PositiveKernel, x: Any, z: Any) -> Float[Array, "n m"]:
    return jnp.exp(kernel.log(x, z))


def check_positive(kernel: Kernel, purpose: str = "to give smoothing weights") -> None:
    if not isinstance(kernel, PositiveKernel):
        raise not_positive(kernel, purpose)


class LogBilinear(PositiveKernel):
    r"""A kernel with $\log k(x, z) = c \langle Ux, Uz \rangle - d (|Ux|^2 + |Uz|^2) / 2$.

    One softmax head applies this kernel. The exponential kernel has $(c, d) = (1 / \tau, 0)$, and
    the Gaussian kernel has $(c, d) = (1 / \ell^2, 1 / \ell^2)$.

    To add a kernel, subclass `LogBilinear`, give it a field `projection`, $U$ [d, p] or None, and
    implement `coefficients`. Samplers, sketches, random features and all solvers that do not need
    known features then accept the kernel. To let the library fit the kernel's bandwidth, also set
    the class variable `bandwidth` to the name of a field and implement the class method
    `typical_bandwidth`, as `Gaussian` does.

    >>> from typing import Any
    >>> from icl_krr.kernels import pytree_dataclass
    >>> @pytree_dataclass
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
        """The scalars $c$ and $d$.

        Return None for $d$ if the kernel has no norm term. If $c = d$, return the same Python
        object twice. The terms in $c - d$ are then left out, and $k(x, x)$ is the constant 1.
        """

    def scalars(self, dtype: DTypeLike) -> tuple[Any, Any]:
        """The result of `coefficients`, which a subclass may have written wrongly."""
        with np.errstate(all="ignore"):  # an overflow is infinite, as in a trace
            pair = self.coefficients(dtype)
        if not isinstance(pair, tuple) or len(pair) != 2:
            name = type(self).__name__
            rule = f"coefficients of {name} must be a pair (c, d), got {checks.short_repr(pair)}"
            raise TypeError(rule)
        for name, value in zip("cd", pair, strict=True):
            if name == "c" or value is not None:
                checks.scalar(f"coefficient {name} of {type(self).__name__}", value)
        return pair

    @classmethod
    def of_temperature(cls, temperature: Any) -> Any:
        r"""The kernel with $c = 1 / \tau$: by default the one with the bandwidth $\tau$.

        Args:
            temperature: temperature $\tau$, a scalar > 0.
        """
        return cls.of_bandwidth(temperature)

    def log(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        r"""$\log k(x, z) = -d |Ux - Uz|^2 / 2 + (c - d) \langle Ux, Uz \rangle$."""
        checks.matrices(x, z)
        c, d = self.scalars(x.dtype)

        def products(factor: Any) -> Float[Array, "n m"]:
            return inner(factor * project(self.projection, x), project(self.projection, z))

        if d is None:
            return products(c)
        log_gaussian = stationary(lambda squares: -d / 2 * squares, self.projection, x, z)
        return log_gaussian if c is d else log_gaussian + products(c - d)

    @property
    def stationary(self) -> bool:
        c, d = self.scalars(float)
        return c is d

    def sketched(self, sketch: Float[Array, "p m"]) -> LogBilinear:
        return dataclasses.replace(self, projection=precede(self.projection, sketch))  # pyright: ignore[reportArgumentType]

    def patterns(self, dtype: DTypeLike, epsilon: Any = None, symmetric: bool = True) -> Patterns:
        return (Pattern(1.0, *self.scalars(dtype), self.projection),)

    def diagonal_terms(self, dtype: DTypeLike) -> tuple[Diagonal, ...]:
        c, d = self.scalars(dtype)
        if c is d:
            return (Diagonal(1.0, "one", None, None),)
        return (Diagonal(1.0, "exp", c if d is None else c - d, self.projection),)

    def nystrom_features(self, landmarks: Float[Array, "l p"]) -> FeatureLayer:
        c, d = self.scalars(landmarks.dtype)
        at = precede(self.projection, landmarks).T
        layer = FeatureLayer(self.projection, "exp", c * at)
        if d is None:
            return layer
        return layer._replace(offsets=-d / 2 * xp.sum(at * at, axis=1), damping=d / 2)

    def derivative_in_x(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Array:
        r"""$\partial k / \partial x = k(x, z) \, U^T U (d (z - x) + (c - d) z)$."""
        c, d = self.scalars(x.dtype)
        d = 0 if d is None else d
        U = identity_or(self.projection, x)
        slope = d * (z[None] - x[:, None]) + (c - d) * z[None]
        return matmul(matmul(self(x, z)[:, :, None] * slope, U.T), U)

    def derivative_in_projection(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Array:
        r"""$\partial k / \partial U = k U ((c - d) (x z^T + z x^T) - d (x - z) (x - z)^T)$."""
        c, d = self.scalars(x.dtype)
        d = 0 if d is None else d
        U = identity_or(self.projection, x)
        shape = (len(x), len(z), x.shape[1])
        values = self(x, z)[:, :, None, None]
        x, z = jnp.broadcast_to(x[:, None], shape), jnp.broadcast_to(z[None], shape)
        Ux, Uz, U_apart = (matmul(points, U.T) for points in (x, z, x - z))
        slope = (c - d) * (outer(Ux, z) + outer(Uz, x)) - d * outer(U_apart, x - z)
        return values * slope
