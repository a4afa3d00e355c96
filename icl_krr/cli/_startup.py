"""Settings of JAX that must be made before JAX is imported, which packages of solvers may do."""

from __future__ import annotations

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


def compile_quickly() -> None:
    """Let XLA use its older code generator, which takes half the time, unless the user sets flags.

    The programs are as fast, except that exponentials take 1.5 times as long. XLA aborts at a flag
    that it does not know, so only a version that knows these gets them.
    """
    knows_them = version("jaxlib").startswith("0.10.")
    if "jax" not in sys.modules and knows_them:
        flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        os.environ.setdefault("XLA_FLAGS", flags)
