"""Settings of JAX that must be made before JAX is imported, which packages of solvers may do."""

import os
import sys
from importlib.metadata import version

from platformdirs import user_cache_dir


def keep_compiled_programs() -> None:
    """Keep compiled programs in JAX's cache on disk, unless the caller has configured the cache."""
    if "jax" not in sys.modules:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", user_cache_dir("icl-krr"))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
        # jaxlib 0.10.1 reports hints to its own compiler as errors when it loads a kept program
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def compile_quickly() -> None:
    """Let XLA compile in less time, unless the user sets flags.

    It optimises less, which saves a fifth, and the programs are as fast. Its older code generator
    saves half. With that one, exponentials take 1.5 times as long, and newer versions do not have
    it: XLA aborts at a flag that it does not know.
    """
    if "jax" not in sys.modules:
        flags = "--xla_backend_optimization_level=1"
        if version("jaxlib").startswith("0.10."):
            flags += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        os.environ.setdefault("XLA_FLAGS", flags)
