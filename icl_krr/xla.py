"""Flags of XLA: the one without which some versions return wrong numbers, and those of a user.

This file does not import JAX, so that `icl-krr --help` starts quickly.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib.metadata import version

WRONG = "0.10.2", "0.11.0"
"""Versions of jaxlib whose programs for a CPU return wrong sums over a product of matrices, if the
product has more than 128 KB. The values of a Gaussian kernel with a projection are such sums.

Source: github.com/jax-ml/jax/issues/39103.
"""

FLAG = "--xla_cpu_experimental_ynn_fusion_type"
"""The flag that keeps them from computing products and sums in one."""


def given() -> list[str]:
    """The flags that the user has set, without the one that the library adds."""
    return [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(FLAG)]


def add(*flags: str) -> None:
    """Set more flags, for this process and those that it starts."""
    os.environ["XLA_FLAGS"] = " ".join([*os.environ.get("XLA_FLAGS", "").split(), *flags])


def keep_sums_right() -> None:
    """Set the flag, if this version of jaxlib needs it and the user has not set it."""
    if version("jaxlib") not in WRONG or FLAG in os.environ.get("XLA_FLAGS", ""):
        return
    bridge = sys.modules.get("jax._src.xla_bridge")  # these versions have it
    if bridge is not None and bridge.backends_are_initialized():
        warnings.warn(
            f"jaxlib {version('jaxlib')} returns wrong sums over large products of matrices on a "
            "CPU, and JAX has read its flags before icl_krr could set the one that helps; import "
            f"icl_krr before JAX computes anything, or set XLA_FLAGS={FLAG}=-reduce",
            RuntimeWarning,
            stacklevel=2,
        )
    add(f"{FLAG}=-reduce")
