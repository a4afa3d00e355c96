"""The settings of each command. These files must not import JAX, so that `--help` is fast."""

from __future__ import annotations

from importlib import import_module

from .command import Command

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
    "bench",
)
"""The commands in the order of the help. For each command, such as `demo`, the settings are the
class `Demo` in `settings/demo.py`, and the program is `run` in `commands/demo.py`."""


def settings_of(name: str) -> type[Command]:
    return getattr(import_module(f".{name}", __name__), name.capitalize())
