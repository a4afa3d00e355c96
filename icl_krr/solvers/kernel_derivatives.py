"""Derivatives of the kernels by hand, so that they are evidence against those of programs."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kernels import Exponential, Gaussian, Kernel, Linear
from ..numerics import matmul


def in_bandwidth(
    kernel: Kernel, x: Float[Array, "n p"], z: Float[Array, "m p"]
) -> Float[Array, "n m"]:
    """d k(x, z) / d temperature = -k log k / temperature; d lengthscale: -2 k log k / lengthscale.

    Raises TypeError for a kernel that has neither.

    >>> one = jnp.ones((1, 1))
    >>> in_bandwidth(Exponential(1.0), one, 0 * one).tolist()
    [[-0.0]]
    """
    if isinstance(kernel, Exponential):
        return -kernel(x, z) * kernel.log(x, z) / jnp.asarray(kernel.temperature, x.dtype)
    if isinstance(kernel, Gaussian):
        return -2 * kernel(x, z) * kernel.log(x, z) / jnp.asarray(kernel.lengthscale, x.dtype)
    raise TypeError(f"kernel must be Exponential or Gaussian to have a bandwidth, got {kernel!r}")


def in_x(kernel: Kernel, x: Float[Array, "n p"], z: Float[Array, "m p"]) -> Float[Array, "n m p"]:
    """d k(x, z) / dx = M z, k M z / temperature or k M (z - x) / lengthscale^2, M = U^T U.

    For the linear, exponential and Gaussian kernel; the second argument's is that of k(z, x).

    Raises TypeError for another kernel.

    >>> in_x(Linear(), jnp.zeros((1, 2)), jnp.ones((1, 2))).tolist()
    [[[1.0, 1.0]]]
    """
    U = projection(kernel, x)
    if isinstance(kernel, Linear):
        slope = jnp.broadcast_to(z[None], (len(x), *z.shape))
    elif isinstance(kernel, Exponential):
        slope = kernel(x, z)[:, :, None] * z[None] / jnp.asarray(kernel.temperature, x.dtype)
    elif isinstance(kernel, Gaussian):
        scale = jnp.asarray(kernel.lengthscale**2, x.dtype)
        slope = kernel(x, z)[:, :, None] * (z[None] - x[:, None]) / scale
    else:
        raise unknown(kernel)
    return matmul(matmul(slope, U.T), U)


def in_projection(
    kernel: Kernel, x: Float[Array, "n p"], z: Float[Array, "m p"]
) -> Float[Array, "n m d p"]:
    """d k(x, z) / dU = U S, k U S / temperature or -k U (x - z) (x - z)^T / lengthscale^2.

    For the linear, exponential and Gaussian kernel, with S = x z^T + z x^T; a kernel without a
    projection has the identity.

    Raises TypeError for another kernel.

    >>> in_projection(Linear(), jnp.ones((1, 1)), jnp.ones((1, 1))).tolist()
    [[[[2.0]]]]
    """
    U = projection(kernel, x)
    if isinstance(kernel, Gaussian):
        apart = x[:, None] - z[None]
        scale = -kernel(x, z) / jnp.asarray(kernel.lengthscale**2, x.dtype)
        return scale[:, :, None, None] * outer(matmul(apart, U.T), apart)
    Ux, Uz = (
        jnp.broadcast_to(matmul(v, U.T), (len(x), len(z), len(U))) for v in (x[:, None], z[None])
    )
    slope = outer(Ux, z[None]) + outer(Uz, x[:, None])
    if isinstance(kernel, Linear):
        return slope
    if isinstance(kernel, Exponential):
        inverse = kernel(x, z) / jnp.asarray(kernel.temperature, x.dtype)
        return inverse[:, :, None, None] * slope
    raise unknown(kernel)


def projection(kernel: Kernel, x: Float[Array, "n p"]) -> Float[Array, "d p"]:
    own = getattr(kernel, "projection", None)
    return jnp.eye(x.shape[1], dtype=x.dtype) if own is None else jnp.asarray(own, x.dtype)


def outer(a: Float[Array, "n m d"], b: Float[Array, "..."]) -> Float[Array, "n m d p"]:
    return a[..., :, None] * b[..., None, :]


def unknown(kernel: Kernel) -> TypeError:
    return TypeError(f"kernel must be Linear, Exponential or Gaussian, got {kernel!r}")
