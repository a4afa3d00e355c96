"""What XLA reads when it starts: the flag without which some versions return wrong numbers, the
flags of a user, and the number of threads.

This file does not import JAX, so that `icl-krr --help` starts quickly.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from importlib.metadata import version

WRONG_VERSIONS = "0.10.2", "0.11.0"
"""Versions of jaxlib whose programs for a CPU return wrong sums over a product of matrices, if the
product has more than 128 KB. The values of a Gaussian kernel with a projection are such sums.

Source: github.com/jax-ml/jax/issues/39103.
"""

FLAG = "--xla_cpu_experimental_ynn_fusion_type"
"""The flag that keeps them from computing products and sums in one."""

THREADS = "PJRT_NPROC"
"""The variable with the number of threads that XLA starts; without it, XLA counts the cores."""

_WARNINGS: set[str] = set()
"""The warnings that have been issued: each is issued once."""


def user_flags() -> list[str]:
    """The flags that the user has set, without the one that the library adds."""
    return [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(FLAG)]


def add_flags(*flags: str) -> None:
    """Set more flags, for this process and those that it starts."""
    os.environ["XLA_FLAGS"] = " ".join([*os.environ.get("XLA_FLAGS", "").split(), *flags])


def disable_wrong_fusion() -> None:
    """Set the flag if this version of jaxlib needs it and the user has not set it.

    `import icl_krr` calls this, and so does the first use of JAX in the library, because a user may
    set XLA_FLAGS in between.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    jaxlib = version("jaxlib")
    if jaxlib not in WRONG_VERSIONS or FLAG in flags:
        return
    bridge = sys.modules.get("jax._src.xla_bridge")  # these versions have it
    fault = f"jaxlib {jaxlib} returns wrong sums over large products of matrices on a CPU, and "
    if flags and not flags.lstrip().startswith("--"):
        hint = f"XLA_FLAGS is a file; add the line {FLAG}=-reduce to {flags}"
    elif bridge is None or not bridge.backends_are_initialized():
        return add_flags(f"{FLAG}=-reduce")
    else:
        hint = (
            "JAX has read its flags before icl_krr could set the one that helps; import icl_krr "
            f"before JAX computes anything, or set XLA_FLAGS={FLAG}=-reduce"
        )
    if hint not in _WARNINGS:
        _WARNINGS.add(hint)
        warnings.warn(fault + hint, RuntimeWarning, stacklevel=3)


def start_enough_threads() -> None:
    """Let XLA start two threads for each device of a CPU that has several.

    Reason: XLA starts as many threads as there are cores or devices. A program holds one thread for
    each device. The launch of a further program does, too, if 32 are in flight. Devices that wait
    for the sum over all may then wait for one that has no thread, until XLA aborts.

    It is called where `disable_wrong_fusion` is.
    """
    flags, jax = os.environ.get("XLA_FLAGS", ""), sys.modules.get("jax")
    option = jax.config.jax_num_cpu_devices if jax else os.environ.get("JAX_NUM_CPU_DEVICES", "")
    counts = [*re.findall(r"--xla_force_host_platform_device_count=(\d+)", flags), str(option)]
    needed = 2 * max((int(count) for count in counts if count.isdecimal()), default=1)
    given = os.environ.get(THREADS, "")
    if needed > 2 and not (given.isdecimal() and int(given) >= needed):
        os.environ[THREADS] = str(max(needed, os.cpu_count() or 1))
