"""Which machine a solver is written for: its kernel, attention and arithmetic."""

from __future__ import annotations

from jax.typing import DTypeLike

from .. import checks
from ..kernels import Kernel, Linear
from .linear_attention import LinearAttention


def machine(
    kernel: Kernel,
    attention: str,
    arithmetic: str,
    num_features: int,
    num_outputs: int,
    dtype: DTypeLike | None,
) -> LinearAttention:
    """The machine whose verbs realise these choices; ValueError for a choice without one."""
    checks.choice("attention", attention, ("linear",))
    checks.choice("arithmetic", arithmetic, ("exact",))
    if not isinstance(kernel, Linear):
        raise ValueError(
            f"kernel must be Linear() to be applied by linear attention, got {kernel!r}"
        )
    return LinearAttention(attention, num_features, num_outputs, dtype)
