"""Flags that make XLA compile quickly: python tests/xla_flags.py."""

from importlib.metadata import version

# Half of the time of compilation would be the new code generator's (newer versions have no other),
# half of the rest would go to splitting small programs, each part to be compiled by itself, and a
# tenth of the rest to programs that run fast. Other versions of XLA abort, because they do not know
# a flag, or compute wrong derivatives of a log determinant with the last one, as 0.12 does.
QUICK = ""
if version("jaxlib").startswith("0.10."):
    QUICK = (
        "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 "
        "--xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE"
    )

DEVICES = "--xla_force_host_platform_device_count"

if __name__ == "__main__":
    print(QUICK)
