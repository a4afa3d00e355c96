"""The Matern kernels of order 1/2, 3/2 and 5/2."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .._core.numerics import matmul
from .._core.pytree import pytree_dataclass
from ._algebra import identity_or, outer, project_near, squared_distances
from ._forms import Patterns
from ._gaussian import Gaussian, Stationary
from ._mixture import Mixture


@pytree_dataclass
class Matern(Stationary):
    r"""A Matern kernel, a function of $d = |Ux - Uz| / \ell$: the base of the three orders $\nu$.

    $$k(x, z) = q(a) e^{-a}, \quad a = \sqrt{2 \nu} \, d, \quad
    q(a) = 1, \quad 1 + a, \quad 1 + a + a^2 / 3$$

    for $\nu = 1/2$, $3/2$ and $5/2$: `Matern12`, `Matern32` and `Matern52`. Samplers and solvers
    compute this kernel, and so does the exact regression behind the deviations of the estimator.

    One softmax head cannot apply it. A construction computes `mixture`, a sum of H Gaussian
    kernels, with one head for each. `icl_krr.check` compares the model with the exact kernel. The
    errors of the sum are the largest $|k - \sum_h w_h k_h|$ at any distance, and the same for the
    derivative in $\log \ell$:

    | kernel | H | error | of the derivative |
    |---|---|---|---|
    | `Matern12` | 8 | 6.4e-4 | 4.9e-3 |
    | `Matern12` in float64 | 12 | 9.3e-5 | 7.0e-4 |
    | `Matern32` | 8 | 1.2e-5 | 1.3e-4 |
    | `Matern52` | 6 | 1.2e-5 | 1.3e-4 |

    Nadaraya-Watson divides by a sum of values, so its errors are larger where all values are small.
    In float32 more heads do not help `Matern12`: heads with smaller lengthscales round more.

    Args:
        projection: as in `Exponential`.
        lengthscale: as in `Gaussian`.

    Source: Rasmussen, Williams, Gaussian Processes for Machine Learning, eq. 4.14 to 4.17.

    >>> Matern12(lengthscale=2.0).log(jnp.zeros((1, 1)), jnp.full((1, 1), 4.0)).tolist()
    [[-2.0]]
    """

    approximated: ClassVar[bool] = True
    order: ClassVar[float]
    nodes: ClassVar[tuple[tuple[float, ...], tuple[float, ...]]]  # s_h and w_h of `mixture`
    fine: ClassVar[tuple[tuple[float, ...], tuple[float, ...]] | None] = None  # those for float64

    def _of_squares(self, lengthscale: jax.Array, squares: jax.Array) -> jax.Array:
        most = jnp.finfo(squares.dtype).max  # the logarithm of an infinite a would be NaN
        return logarithm(self.order, jnp.minimum(2 * self.order / lengthscale**2 * squares, most))

    def mixture(self, dtype: DTypeLike) -> Mixture:
        r"""The sum $\sum_h w_h k_h$ that a construction computes, with $\sum_h w_h = 1$.

        $k_h$ is the `Gaussian` kernel of lengthscale $s_h \ell$. $s_h$ and $w_h$ minimise the
        largest error. They exist because $k$ is an average of Gaussian kernels of lengthscales
        $\sqrt{g} \, \ell$, where $g$ has the gamma distribution of shape and rate $\nu$.
        """
        nodes = self.fine if np.dtype(dtype) == np.float64 else None
        scales, weights = nodes or self.nodes
        kernels = [Gaussian(scale * self.lengthscale, self.projection) for scale in scales]
        return Mixture(tuple(kernels), np.asarray(weights, dtype) / sum(weights))

    def patterns(self, dtype: DTypeLike, epsilon: Any = None, symmetric: bool = True) -> Patterns:
        return self.mixture(dtype).patterns(dtype)

    def derivative_in_x(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Array:
        r"""$\partial k / \partial x = g \, U^T U (z - x)$, 0 for `Matern12` where $Ux = Uz$.

        $g = 2 \nu b(a) e^{-a} / \ell^2$ with $b = 1 / a$, $1$ and $(1 + a) / 3$ for the orders.
        """
        U = identity_or(self.projection, x)
        differences = z[None] - x[:, None]
        return matmul(matmul(self._pull(x, z)[:, :, None] * differences, U.T), U)

    def derivative_in_projection(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Array:
        r"""$\partial k / \partial U = -g \, U (x - z) (x - z)^T$."""
        U = identity_or(self.projection, x)
        differences = x[:, None] - z[None]
        return -self._pull(x, z)[:, :, None, None] * outer(matmul(differences, U.T), differences)

    def derivative_in_bandwidth(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Array:
        r"""$\partial k / \partial \ell = g |Ux - Uz|^2 / \ell$."""
        squares = squared_distances(*project_near(self.projection, x, z))
        return self._pull(x, z) * squares / jnp.asarray(self.lengthscale, x.dtype)

    def _pull(self, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
        """The factor g."""
        factor = 2 * self.order / jnp.asarray(self.lengthscale, x.dtype) ** 2
        squares = factor * squared_distances(*project_near(self.projection, x, z))
        return -2 * factor * self(x, z) * slope(self.order, root(squares))


@pytree_dataclass
class Matern12(Matern):
    r"""The Matern kernel of order 1/2, $k(x, z) = e^{-d}$ with $d = |Ux - Uz| / \ell$.

    Its functions are continuous and not differentiable.

    >>> round(float(Matern12()(jnp.zeros((1, 1)), jnp.ones((1, 1)))[0, 0]), 4)
    0.3679
    """

    order: ClassVar[float] = 0.5
    spectral_freedom: ClassVar[int | None] = 1
    nodes: ClassVar = (
        (0.00200256, 0.0136525, 0.047755, 0.128818, 0.300409, 0.634056, 1.23345, 2.24346),
        (0.00433314, 0.0159431, 0.0415963, 0.0926013, 0.181482, 0.291569, 0.288735, 0.0837401),
    )
    fine: ClassVar = (
        (
            *(0.000394495, 0.00226967, 0.00739959, 0.0192037, 0.0436535, 0.0907221),
            *(0.176457, 0.325788, 0.575939, 0.980188, 1.61269, 2.59668),
        ),
        (
            *(0.000783251, 0.00246544, 0.0061632, 0.0134463, 0.0268425, 0.0501324),
            *(0.0883557, 0.145525, 0.214132, 0.24867, 0.169385, 0.0341001),
        ),
    )


@pytree_dataclass
class Matern32(Matern):
    r"""The Matern kernel of order 3/2, $k(x, z) = (1 + \sqrt{3} d) e^{-\sqrt{3} d}$.

    Here $d = |Ux - Uz| / \ell$. Its functions are differentiable once.

    >>> round(float(Matern32()(jnp.zeros((1, 1)), jnp.ones((1, 1)))[0, 0]), 4)
    0.4834
    """

    order: ClassVar[float] = 1.5
    spectral_freedom: ClassVar[int | None] = 3
    nodes: ClassVar = (
        (0.0527526, 0.129012, 0.243917, 0.41066, 0.644339, 0.963045, 1.39173, 1.98456),
        (0.000705101, 0.00629078, 0.0312466, 0.107221, 0.251936, 0.352514, 0.218148, 0.0319392),
    )


@pytree_dataclass
class Matern52(Matern):
    r"""The Matern kernel of order 5/2, $k(x, z) = (1 + a + a^2 / 3) e^{-a}$ with $a = \sqrt{5} d$.

    Here $d = |Ux - Uz| / \ell$. Its functions are differentiable twice.

    >>> round(float(Matern52()(jnp.zeros((1, 1)), jnp.ones((1, 1)))[0, 0]), 4)
    0.524
    """

    order: ClassVar[float] = 2.5
    spectral_freedom: ClassVar[int | None] = 5
    nodes: ClassVar = (
        (0.18725, 0.361671, 0.584054, 0.867015, 1.22668, 1.70267),
        (0.00261071, 0.0359779, 0.184778, 0.407703, 0.318384, 0.0505461),
    )


def root(squares: Array) -> Array:
    """The square root, whose derivative at 0 is 0."""
    positive = squares > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squares, 1)), 0)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def logarithm(order: float, squares: Array) -> Array:
    """log q(a) - a as a function of a^2.

    Its derivative is finite at a = 0 for the orders 3/2 and 5/2, which that of the root is not.
    """
    a = root(squares)
    above = {0.5: 0.0, 1.5: a, 2.5: a + squares / 3}[order]
    return jnp.log1p(above) - a


@logarithm.defjvp
def _logarithm_jvp(order: float, primals: Any, tangents: Any) -> tuple[Array, Array]:
    (squares,), (change,) = primals, tangents
    return logarithm(order, squares), slope(order, root(squares)) * change


def slope(order: float, a: Array) -> Array:
    """The derivative of log q(a) - a in a^2."""
    if order == 0.5:
        return jnp.where(a > 0, -0.5 / jnp.where(a > 0, a, 1), 0)
    if order == 1.5:
        return -0.5 / (1 + a)
    return -(1 + a) / (6 * (1 + a + a * a / 3))
