"""A guard before large allocations: estimates from shapes, compared with the free memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from jax.core import Tracer

SMALL = 2**28
"""Bytes that are never compared with the free memory."""

FEWER = "use fewer supports and queries, or fewer tasks at once"


class Reach(NamedTuple):
    """What JAX transformations do with a value.

    Attributes:
        copies: number of copies that `jax.vmap` computes at once; 0 under `jax.jit`.
        differentiated: whether derivatives of the value are computed.
    """

    copies: float
    differentiated: bool


def check(what: str, numbers: float, like: Any, mend: str = FEWER) -> None:
    """Raise MemoryError if arrays of so many numbers do not fit into the free memory.

    The batch axes of `jax.vmap` count. A program that `jax.jit` traces is not checked, because it
    may never run, as under `jax.eval_shape`.

    Args:
        what: the arrays, as the error message names them.
        numbers: number of entries of all arrays that exist at the same time, at least.
        like: an array of the input, whose dtype the arrays have. For a random key, they have JAX's
            default floating dtype.
        mend: what the caller can do; by default, use fewer points or tasks.
    """
    if 8 * numbers <= SMALL and not isinstance(like, Tracer):
        return
    dtype = getattr(like, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.result_type(float)
    need = numbers * dtype.itemsize * reach(like).copies
    if need > SMALL and need > (available := free(jax.devices()[0])):
        raise MemoryError(refusal(what, need, available, mend))


def reach(value: Any) -> Reach:
    """How often, and whether with derivatives, JAX computes what depends on a value."""
    whole, differentiated = value, False
    while isinstance(whole, Tracer):
        differentiated |= hasattr(whole, "primal")
        whole = getattr(whole, "primal", getattr(whole, "val", None))
    if whole is value:
        return Reach(1, False)
    known = isinstance(whole, (jax.Array, np.ndarray))
    return Reach(whole.size / max(jnp.size(value), 1) if known else 0, differentiated)


def free(device: Any) -> int:
    """Free bytes of a device; for a CPU, the available memory of the machine."""
    if device.platform == "cpu":
        return psutil.virtual_memory().available
    stats = device.memory_stats()
    return stats["bytes_limit"] - stats["bytes_in_use"]


def refusal(what: str, need: float, available: float, mend: str) -> str:
    return (
        f"{what} must fit into memory, but needs {gigabytes(need)} and only "
        f"{gigabytes(available)} are free; {mend}"
    )


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB"
