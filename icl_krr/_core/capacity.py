"""The guard of memory: what cannot fit is refused from its shapes, before it is computed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import psutil
from jax.core import Tracer

SMALL = 2**28
"""Bytes that are never compared with the free memory."""

FEWER = "use fewer supports and queries, or fewer tasks at once"


def check(what: str, numbers: float, like: Any, mend: str = FEWER) -> None:
    """Raise MemoryError if arrays of so many numbers do not fit into the free memory.

    What JAX traces (`jax.jit`, `jax.vmap`, a derivative) is not checked: it may never run.

    Args:
        what: the arrays, as the error message names them.
        numbers: number of entries of all arrays that exist at the same time, at least.
        like: an array whose dtype they have; for a random key, JAX's default floating dtype.
        mend: what the caller can do.
    """
    dtype = getattr(like, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.result_type(float)
    need = numbers * dtype.itemsize
    if need > SMALL and not isinstance(like, Tracer) and need > (available := free()):
        raise MemoryError(
            f"{what} must fit into memory, but needs {need / 1e9:.3g} GB and only "
            f"{available / 1e9:.3g} GB are free; {mend}"
        )


def free() -> int:
    """Free bytes of JAX's first device; for a CPU, the available memory of the machine."""
    device = jax.devices()[0]
    if device.platform == "cpu":
        return psutil.virtual_memory().available
    stats = device.memory_stats()
    return stats["bytes_limit"] - stats["bytes_in_use"]
