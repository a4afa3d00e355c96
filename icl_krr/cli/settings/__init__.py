"""What each command can be told. No JAX here: the help needs these files and no others."""

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
    "bench",
)
"""In the order of the help. `demo` is told what `Demo` in `settings/demo.py` says, and does what
`run` in `commands/demo.py` does; so does every other."""


def settings_of(name: str) -> type[Command]:
    return getattr(import_module(f".{name}", __name__), name.capitalize())
