"""Flags that make XLA compile quickly, as far as it knows them: python tests/xla_flags.py."""

import os
import subprocess
import sys

# Half of the time of compilation would be the new code generator's. Newer versions have no other.
QUICK = "--xla_cpu_use_fusion_emitters=false"


def known(flags):
    """The flags, or none. A flag that XLA does not know aborts, so another process tries them."""
    tried = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        capture_output=True,
    )
    return flags if tried.returncode == 0 else ""


if __name__ == "__main__":
    print(known(QUICK))
