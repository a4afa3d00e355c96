"""The few numerical functions that the solvers and the transformers share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

NARROW = 8
"""With fewer columns or channels, XLA on a CPU is faster at products one by one than together."""


def matmul(a: jax.Array | np.ndarray, b: jax.Array | np.ndarray) -> jax.Array:
    """Compute a @ b at full precision.

    On recent GPUs the default precision is TF32. It makes Gram matrices inaccurate without a
    warning.
    """
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def times_columns(a: jax.Array, b: jax.Array) -> jax.Array:
    """Compute a @ b at full precision, and column by column where b has few.

    XLA on a CPU multiplies a matrix by one column two to three times as fast as by two to four.
    """
    if b.shape[1] >= NARROW:
        return matmul(a, b)
    return jnp.stack([matmul(a, column) for column in b.T], axis=1)


def apart(values: jax.Array) -> jax.Array:
    """Return the same numbers, but XLA does not fuse their sum with what uses them.

    On a CPU, such a fusion takes many times as long as its parts, and XLA drops
    `jax.lax.optimization_barrier` before it fuses.
    """
    dtype = jnp.finfo(values.dtype)
    return jax.lax.reduce_precision(values, dtype.nexp, dtype.nmant)


@jax.custom_jvp
def sum_of_few(numbers: jax.Array) -> jax.Array:
    """Return the sum of an array [n] of at most some thousand numbers.

    XLA on a CPU adds slices as vectors, but it sums a row number by number. If the rows of all
    tasks have more than 4096 numbers, it calls a library that fuses sums with what uses them.
    """
    lanes = max(8, len(numbers) // 16)
    numbers = jnp.pad(apart(numbers), (0, -len(numbers) % lanes))
    return jnp.sum(sum(jnp.split(numbers, len(numbers) // lanes)))


@sum_of_few.defjvp
def _sum_of_few_jvp(primals, tangents):
    return sum_of_few(*primals), jnp.sum(*tangents)


def as_one(*parts: jax.Array) -> tuple[jax.Array, ...]:
    """Return the same arrays, none of which JAX takes as known where another one is not.

    The gradient of a loop computes before the loop, and stores, whatever is the same in all of its
    steps. For attention in tiles, that may be the whole pattern or the causal mask. It is neither
    if queries and keys are one with the values, which differ from step to step.
    """
    return jax.lax.optimization_barrier(parts)


def accumulator(dtype: DTypeLike) -> np.dtype:
    """Return the dtype for sums over many tokens: float32, or `dtype` if it is wider."""
    return np.promote_types(dtype, np.float32)


def power_below(x: jax.Array) -> jax.Array:
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
