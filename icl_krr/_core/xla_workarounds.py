"""Workarounds of XLA on a CPU, each with its reason and what it gains.

Each function returns what the plain operation returns, up to rounding; one that is no longer needed
can be replaced by that operation. `xla_start` has a further one, a number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.custom_batching import sequential_vmap

from .numerics import matmul

NARROW = 8
"""With fewer columns, products are faster one by one than together."""

LONG = 4096
"""With more rows, a sum is faster than a product with ones."""


def matmul_by_columns(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return a @ b at full precision, computed column by column if b has few columns.

    Reason: XLA hands a product with two to four columns to a library that takes two to three times
    as long as one matrix-vector product (58 and 19 microseconds for [512, 512] in float32).
    """
    if not 1 < b.shape[1] < NARROW:
        return matmul(a, b)
    return jnp.stack([matmul(a, column) for column in b.T], axis=1)


def sum_of_rows(column: jax.Array) -> jax.Array:
    """Return the sum [1, 1] of a column [n, 1].

    Reason: XLA adds numbers one by one. A product with ones adds several at once, and sums a batch
    of columns in one operation; without it, 256 conjugate gradients with n = 64 take 1.2 times as
    long. For long columns a sum is faster, because XLA fuses it with what computes the numbers: the
    product takes 1.6 times as long for n = 10,000.
    """
    if len(column) > LONG:
        return jnp.sum(column, axis=0, keepdims=True)
    return matmul(jnp.ones((1, len(column)), column.dtype), column)


def joint_barrier(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    """Return the same arrays; JAX takes none of them as constant in a loop if another one is not.

    Reason: the gradient of a loop computes before the loop, and stores, whatever is the same in all
    of its steps. For blockwise attention, that is the whole pattern if queries and keys are the
    same in all steps, or the causal mask: 71 GB instead of 0.36 GB for 131072 tokens.
    """
    return jax.lax.optimization_barrier(arrays)


def ordered_collectives(values: Any) -> Any:
    """Return the same arrays, none of which is computed before all are; so are their gradients.

    Reason: XLA may start exchanges that do not depend on each other, such as those of two heads, in
    another order on another device. The devices would then wait for each other for ever.
    """
    leaves, structure = jax.tree.flatten(values)
    floats = [
        i
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.size
    ]
    if jax.default_backend() != "cpu" or len(floats) < 2:
        return values
    dtype = jnp.result_type(*(leaves[i] for i in floats))
    entries = jnp.stack([leaves[i][(0,) * leaves[i].ndim].astype(dtype) for i in floats])
    # XLA must compute a number before it multiplies it by 0: the number could be NaN
    zero = 0 * jnp.sum(jnp.where(jnp.isfinite(entries), entries, 0))
    for i in floats:
        leaves[i] = leaves[i] + zero.astype(leaves[i].dtype)
    return structure.unflatten(leaves)


def sequential_on_cpu(function: Callable) -> Callable:
    """Return the function, which `jax.vmap` runs as a loop on the CPU and unchanged elsewhere.

    Reason: batched LAPACK calls that run at the same time deadlock in jaxlib, because each waits
    for the threads of the other: in independent parts of one program, in two threads, on several
    host devices. For small matrices, a loop of single factorisations is as fast.
    """
    looped, function = jax.jit(sequential_vmap(function)), jax.jit(function)

    def call(*args: Any) -> Any:
        return (looped if jax.default_backend() == "cpu" else function)(*args)

    return call


def wait_for_virtual_devices(array: jax.Array) -> None:
    """Wait for an array, if it is on several devices of a CPU.

    Reason: a loop that never waits launches more programs than XLA has threads for, if JAX started
    before `xla_start.start_enough_threads` could ask for them, and the devices wait for ever.
    """
    on_cpu = jax.default_backend() == "cpu" and not isinstance(array, Tracer)
    if on_cpu and len(array.devices()) > 1:
        array.block_until_ready()
