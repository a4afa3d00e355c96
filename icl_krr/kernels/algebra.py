"""Projections and inner products of points."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks, shapes
from ..numerics import matmul


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
        shapes.check(projection=(projection, "d p"))


def precede(projection: Any, sketch: Float[Array, "p m"]) -> Float[Array, "d p"]:
    """The matrix U P^T, which applies the sketch to x and then the projection U [d, m]."""
    if projection is None:
        return sketch.T
    return matmul(jnp.asarray(projection, sketch.dtype), sketch.T)


def identity_or(projection: Any, x: Float[Array, "n p"]) -> Float[Array, "d p"]:
    """The projection U, or the identity if it is None."""
    if projection is None:
        return jnp.eye(x.shape[1], dtype=x.dtype)
    return jnp.asarray(projection, x.dtype)


def inner(x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
    """Inner products of every row of x with every row of z."""
    checks.matrices(x, z)
    return matmul(x, z.T)


def squared_distances(x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m"]:
    """|x_i - z_j|^2 by expanding the square; negative rounding errors are set to 0."""
    squares = jnp.sum(x * x, -1)[:, None] + jnp.sum(z * z, -1)[None, :]
    return jnp.maximum(squares - 2 * inner(x, z), 0)


def outer(a: Float[Array, "n m d"], b: Float[Array, "n m p"]) -> Float[Array, "n m d p"]:
    return a[..., :, None] * b[..., None, :]
