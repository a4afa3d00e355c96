"""The two functions that solvers and transformers share."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    """a @ b at full precision: TF32, the default of recent GPUs, breaks Gram matrices silently.

    Shapes and dtype as `jnp.matmul`.

    >>> import jax.numpy as jnp
    >>> matmul(jnp.ones((1, 2)), jnp.ones((2, 1))).tolist()
    [[2.0]]
    """
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


@jax.custom_jvp
def reciprocal(x: jax.Array) -> jax.Array:
    """1 / x, and 0 where |x| < tiny / eps: to a solver past convergence 0 / 0 is 0.

    Below tiny / eps (1e-31 in float32, 1e-292 in float64) a sum of squares has lost digits to
    underflow, so that quotients of such sums mean nothing. An x that overflowed gives NaN: 0
    would pass for convergence. `x` is an array of any shape, the
    result has its shape and dtype. Near the threshold gradients stay finite as well.

    >>> import jax.numpy as jnp
    >>> reciprocal(jnp.array([2.0, 0.0])).tolist()
    [0.5, 0.0]
    """
    small = jnp.abs(x) < jnp.finfo(x.dtype).tiny / jnp.finfo(x.dtype).eps
    inverse = jnp.where(small, 0, 1 / jnp.where(small, 1, x))
    return jnp.where(jnp.isinf(x), jnp.nan, inverse)


@reciprocal.defjvp
def _reciprocal_jvp(primals, tangents):
    # 1 / x^2 overflows long before 1 / x does, and inf * 0 is NaN. Applied one after the other,
    # its two factors meet a tangent that is as small as x.
    (x,), (dx,) = primals, tangents
    inverse = reciprocal(x)
    return inverse, -inverse * (inverse * dx)
