"""Flags that make XLA compile quickly, as far as it knows them: python tests/xla_flags.py."""

import os
import subprocess
import sys
from importlib.metadata import version

# Half of the time of compilation would be the new code generator's (newer versions have no other),
# half of the rest would go to splitting small programs, each part to be compiled by itself, and a
# tenth of the rest to programs that run fast.
QUICK = ("--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1")
if version("jaxlib").startswith("0.10."):  # with 0.12, derivatives of log det A are wrong with it
    QUICK += ("--xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE",)

DEVICES = "--xla_force_host_platform_device_count"


def known(flags):
    """Those flags that XLA knows. One that it does not know aborts, so another process tries."""
    if starts(flags):
        return " ".join(flags)
    return " ".join(flag for flag in flags if starts([flag]))


def starts(flags):
    tried = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(flags)},
        capture_output=True,
    )
    return tried.returncode == 0


if __name__ == "__main__":
    print(known(QUICK))
