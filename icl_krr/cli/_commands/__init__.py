"""The commands, one file each: a class of settings, such as `Demo`, and its work.

The work is a function `run(settings)` that returns an `Outcome`; the driver writes and prints it.
JAX is imported inside of the functions, so that `--help` is fast.
"""

from __future__ import annotations

from importlib import import_module

from .._options import Command

COMMANDS = (
    "demo",
    "predict",
    "fit",
    "sweep",
    "train",
    "identify",
    "ablate",
    "report",
    "verify",
    "solverbench",
)
"""The commands in the order of the help. The class of the settings of `demo` is `Demo`."""


def settings_of(name: str) -> type[Command]:
    return getattr(import_module(f".{name}", __name__), name.capitalize())
