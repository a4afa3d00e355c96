"""Projections, inner products and squared distances of points."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core import checks
from .._core.constants import as_constant, xp
from .._core.numerics import matmul


def project(projection: Any, x: Float[Array, "n p"]) -> Float[Array, "n d"]:
    """U x for every row of x; without a projection, x is returned unchanged."""
    if projection is None:
        return jnp.asarray(x)
    if jnp.ndim(projection) != 2 or jnp.shape(projection)[1] != x.shape[1]:
        raise ValueError(
            f"projection must be [d, p] with p = {x.shape[1]} features to match x, "
            f"got shape {list(jnp.shape(projection))}"
        )
    x = jnp.asarray(x)
    return matmul(x, jnp.asarray(projection, x.dtype).T)


def check_projection(projection: Any) -> None:
    if projection is not None:
        checks.shapes(projection=(projection, "d p"))


def precede(projection: Any, sketch: Any) -> Any:
    """The matrix U P^T, which applies the sketch to x and then the projection U [d, m]."""
    if projection is None:
        return as_constant(sketch).T
    return xp.matmul(xp.asarray(projection, sketch.dtype), as_constant(sketch).T)


def identity_or(projection: Any, x: Float[Array, "n p"]) -> Float[Array, "d p"]:
    """The projection U, or the identity if it is None."""
    if projection is None:
        return jnp.eye(x.shape[1], dtype=x.dtype)
    return jnp.asarray(projection, x.dtype)


def inner(x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
    """Inner products of every row of x with every row of z."""
    checks.matrices(x, z)
    return matmul(x, z.T)


def project_near(
    projection: Any, x: Float[Array, "n p"], z: Float[Array, "m p"]
) -> tuple[Float[Array, "n d"], Float[Array, "m d"]]:
    """U (x - c) and U (z - c) for the mean c of z, whose differences are those of U x and U z.

    The differences have less rounding error, because |x - c| is smaller than |x| far from 0.
    """
    if projection is None:
        return x, z
    centre = jnp.mean(z, axis=0, keepdims=True)
    return project(projection, x - centre), project(projection, z - centre)


@jax.custom_jvp
@jax.jit
def squared_distances(x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
    """|x_i - z_j|^2 by differences: |x|^2 + |z|^2 - 2 <x, z> loses all digits far from 0.

    XLA fuses the differences into the sum. With the features in the middle axis, it also uses
    vector instructions. The derivative is a product of matrices, because XLA would store all
    differences for it.
    """
    return jnp.sum((x[:, :, None] - z.T[None]) ** 2, axis=1)


@squared_distances.defjvp
def _squared_distances_jvp(primals, tangents):
    (x, z), (dx, dz) = primals, tangents
    centre = jnp.mean(z, axis=0, keepdims=True)
    x_centred, z_centred = x - centre, z - centre
    x_terms, z_terms = jnp.sum(x_centred * dx, axis=1), jnp.sum(z_centred * dz, axis=1)
    diagonal_terms = x_terms[:, None] + z_terms[None]
    change = diagonal_terms - matmul(x_centred, dz.T) - matmul(dx, z_centred.T)
    return squared_distances(x, z), 2 * change


def stationary(
    function: Callable[[Array], Array],
    projection: Any,
    x: Float[Array, "n p"],
    z: Float[Array, "m p"],
    scale: Any = 1,
) -> Float[Array, "n m"]:
    """The logarithm of a kernel, a function of |U x - U z|^2 / scale^2; -inf if that is infinite.

    There the kernel is 0 and so is its derivative, which would be 0 times infinity.
    """
    squares = squared_distances(*(part / scale for part in project_near(projection, x, z)))
    infinite = jnp.isinf(squares)
    return jnp.where(infinite, -jnp.inf, function(jnp.where(infinite, 0, squares)))


@jax.jit
def mean_of_pairs(values: Float[Array, "n n"], mask: Any) -> Float[Array, ""]:
    """The mean of the entries (i, j) with mask[i] and mask[j], or 0 if there are none."""
    keep = jnp.ones(len(values), bool) if mask is None else mask
    pairs = keep[:, None] & keep[None]
    return jnp.sum(jnp.where(pairs, values, 0)) / jnp.maximum(jnp.sum(pairs, dtype=values.dtype), 1)


def outer(a: Float[Array, "n m d"], b: Float[Array, "n m p"]) -> Float[Array, "n m d p"]:
    return a[..., :, None] * b[..., None, :]
