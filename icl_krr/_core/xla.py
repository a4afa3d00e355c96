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

TOLD: set[str] = set()
"""What has been told once."""


def given() -> list[str]:
    """The flags that the user has set, without the one that the library adds."""
    return [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(FLAG)]


def add(*flags: str) -> None:
    """Set more flags, for this process and those that it starts."""
    os.environ["XLA_FLAGS"] = " ".join([*os.environ.get("XLA_FLAGS", "").split(), *flags])


def keep_sums_right() -> None:
    """Set the flag, if this version of jaxlib needs it and the user has not set it.

    `import icl_krr` calls this, and so does the first use of JAX in the library, because a user may
    set XLA_FLAGS in between.
    """
    flags, number = os.environ.get("XLA_FLAGS", ""), version("jaxlib")
    if number not in WRONG or FLAG in flags:
        return
    bridge = sys.modules.get("jax._src.xla_bridge")  # these versions have it
    wrong = f"jaxlib {number} returns wrong sums over large products of matrices on a CPU, and "
    if flags and not flags.lstrip().startswith("--"):
        told = f"XLA_FLAGS is a file; add the line {FLAG}=-reduce to {flags}"
    elif bridge is None or not bridge.backends_are_initialized():
        return add(f"{FLAG}=-reduce")
    else:
        told = (
            "JAX has read its flags before icl_krr could set the one that helps; import icl_krr "
            f"before JAX computes anything, or set XLA_FLAGS={FLAG}=-reduce"
        )
    if told not in TOLD:
        TOLD.add(told)
        warnings.warn(wrong + told, RuntimeWarning, stacklevel=3)
