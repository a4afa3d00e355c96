"""What must happen before XLA starts: a warning about versions that return wrong numbers, and a
number of threads with which several devices of a CPU do not wait for each other for ever.

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

THREADS = "PJRT_NPROC"
"""The variable with the number of threads that XLA starts; without it, XLA counts the cores."""


def warn_of_wrong_version() -> None:
    """Warn if this version of jaxlib returns wrong numbers."""
    if (jaxlib := version("jaxlib")) in WRONG_VERSIONS:
        warnings.warn(
            f"jaxlib {jaxlib} returns wrong sums over large products of matrices on a CPU; "
            'pip install "jax!=0.10.2,!=0.11.0" "jaxlib!=0.10.2,!=0.11.0"',
            RuntimeWarning,
            stacklevel=3,
        )


def start_enough_threads() -> None:
    """Let XLA start two threads for each device of a CPU that has several.

    Reason: XLA starts as many threads as there are cores or devices. A program holds one thread for
    each device. The launch of a further program does, too, if 32 are in flight. Devices that wait
    for the sum over all may then wait for one that has no thread, until XLA aborts.

    `import icl_krr` calls this, and so does the first use of JAX in the library, because a user may
    set XLA_FLAGS in between.
    """
    flags, jax = os.environ.get("XLA_FLAGS", ""), sys.modules.get("jax")
    option = jax.config.jax_num_cpu_devices if jax else os.environ.get("JAX_NUM_CPU_DEVICES", "")
    counts = [*re.findall(r"--xla_force_host_platform_device_count=(\d+)", flags), str(option)]
    needed = 2 * max((int(count) for count in counts if count.isdecimal()), default=1)
    given = os.environ.get(THREADS, "")
    if needed > 2 and not (given.isdecimal() and int(given) >= needed):
        os.environ[THREADS] = str(max(needed, os.cpu_count() or 1))
