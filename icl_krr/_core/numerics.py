"""The few numerical functions that the solvers and the transformers share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike


def matmul(a: jax.Array | np.ndarray, b: jax.Array | np.ndarray) -> jax.Array:
    """Compute a @ b at full precision.

    On recent GPUs the default precision is TF32. It makes Gram matrices inaccurate without a
    warning.
    """
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def accumulation_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the dtype for sums over many tokens: float32, or `dtype` if it is wider."""
    return np.promote_types(dtype, np.float32)


def power_of_two_below(x: jax.Array) -> jax.Array:
    """Return the largest power of two that is at most |x|, or 1/2 if x = 0; its derivative is 0.

    A division by it is exact.
    """
    _, exponent = jnp.frexp(jax.lax.stop_gradient(x))
    return jnp.ldexp(jnp.ones((), x.dtype), exponent - 1)


@jax.custom_jvp
def reciprocal(x: jax.Array) -> jax.Array:
    """Compute 1 / x, or 0 if |x| < tiny / eps.

    So a converged solver gets 0 for the quotient 0 / 0. Here tiny and eps are those of `jnp.finfo`,
    and tiny / eps is 1e-31 in float32 and 1e-292 in float64. A sum of squares below tiny / eps is
    inaccurate because of underflow, so its quotients are not meaningful. An infinite x gives NaN,
    because 0 would look like convergence. Gradients near the threshold are finite.
    """
    small = jnp.abs(x) < jnp.finfo(x.dtype).tiny / jnp.finfo(x.dtype).eps
    inverse = jnp.where(small, 0, 1 / jnp.where(small, 1, x))
    return jnp.where(jnp.isinf(x), jnp.nan, inverse)


@reciprocal.defjvp
def _reciprocal_jvp(primals, tangents):
    # 1 / x^2 overflows long before 1 / x does, and inf * 0 is NaN. The tangent is about as small
    # as x, so multiplying it by 1 / x twice, one factor at a time, does not overflow.
    (x,), (dx,) = primals, tangents
    inverse = reciprocal(x)
    return inverse, -inverse * (inverse * dx)
