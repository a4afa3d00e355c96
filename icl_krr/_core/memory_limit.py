"""The memory limit: arrays that cannot fit are refused by their shapes, before any computation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import psutil
from jax.core import Tracer

_UNCHECKED_BYTES = 2**28
"""Arrays of at most so many bytes are not compared with the free memory."""

_HINT = "use fewer supports and queries, or fewer tasks at once"


def check(what: str, numbers: float, like: Any, hint: str = _HINT) -> None:
    """Raise MemoryError if arrays of so many numbers do not fit into the free memory.

    What JAX traces (`jax.jit`, `jax.vmap`, a derivative) is not checked: it may never run.

    Args:
        what: the arrays, as the error message names them.
        numbers: number of entries of all arrays that exist at the same time, at least.
        like: an array whose dtype they have; for a random key, JAX's default floating dtype.
        hint: what the caller can do.
    """
    dtype = getattr(like, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.result_type(float)
    need = numbers * dtype.itemsize
    if need > _UNCHECKED_BYTES and not isinstance(like, Tracer) and need > (free := free_bytes()):
        raise MemoryError(
            f"{what} must fit into memory, but needs {need / 1e9:.3g} GB and only "
            f"{free / 1e9:.3g} GB are free; {hint}"
        )


def free_bytes() -> int:
    """Free bytes of JAX's first device; for a CPU, the available memory of the machine."""
    device = jax.devices()[0]
    if device.platform == "cpu":
        return psutil.virtual_memory().available
    stats = device.memory_stats()
    return stats["bytes_limit"] - stats["bytes_in_use"]
