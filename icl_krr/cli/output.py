"""Output of the commands: tables, JSON, files, and the folders that hold them."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..catalogue import SOLVERS
from ..files import replace
from .options import Command

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.status import Status

PACKAGES = ("icl_krr", "jax", "jaxlib", "flax", "numpy")


def surroundings(settings: Command, **more: Any) -> dict[str, Any]:
    """The command, its settings, the machine and versions that ran it, and other facts."""
    import platform

    import jax

    device = jax.devices()[0]
    options = dataclasses.asdict(settings)
    argv = options.pop("argv")
    return {
        "command": ["icl-krr", *argv],
        "settings": options,
        "own_solvers": {name: row.source for name, row in SOLVERS.items() if row.source},
        "seed": settings.first_seed,
        "matmul_precision": "highest",
        "device": f"{device.platform}: {device.device_kind}",
        "mesh": dict(jax.sharding.get_abstract_mesh().shape),
        "processes": jax.process_count(),
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
        **more,
    }


def wide() -> Console:
    """A console for tables: 160 columns if the output is no terminal, unless COLUMNS is set."""
    from rich.console import Console

    console = Console(highlight=False)
    fixed = console.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    return console if fixed else Console(width=160, highlight=False)


EVERY = 30.0
"""Seconds between the lines of a status where there is no terminal."""


def status() -> Status:
    """What is being done, on stderr; where that is no terminal, a line of it now and then."""
    from rich.console import Console
    from rich.status import Status

    class Told(Status):
        last = time.monotonic()

        def update(self, status: Any = None, **options: Any) -> None:
            super().update(status, **options)
            if not self.console.is_terminal and time.monotonic() > self.last + EVERY:
                self.last = time.monotonic()
                print(status, file=sys.stderr, flush=True)

    return Told("", console=Console(stderr=True, no_color=True))


def progress(*columns: ProgressColumn) -> Progress:
    """A progress bar on stderr; where that is no terminal, nothing, not even an empty line."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True, no_color=True)  # rich's yellow vanishes on white
    console.quiet = not console.is_terminal
    return Progress(*columns, console=console, transient=True)


def count() -> Progress:
    """What is being done, how much of how much is done, and the time since the start."""
    from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn

    return progress(TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())


def bar() -> Progress:
    """How much is done, as a bar and a number, some words, and the time that remains."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    words = TextColumn("{task.description}")
    return progress(BarColumn(), MofNCompleteColumn(), words, TimeRemainingColumn())


def to_json(value: Any) -> str:
    return json.dumps(plain(value), indent=2, allow_nan=False)


def json_file(value: Any) -> bytes:
    return (to_json(value) + "\n").encode()


def plain(value: Any) -> Any:
    """Convert a value for JSON: paths become text, NaN and infinity become null."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def prepare(folder: Path) -> None:
    """Make the folder before the computation, so that one without access fails early."""
    import jax
    from jax.experimental.multihost_utils import sync_global_devices

    if jax.process_index() == 0:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    sync_global_devices(f"{folder} is there")


def save(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """Write files; each replaces an older file only after all its content is written.

    Of several processes, the first writes, as soon as all have read what was there.
    """
    import jax
    from jax.experimental.multihost_utils import sync_global_devices

    sync_global_devices(f"{folder} is read")
    if jax.process_index():
        return []
    for name, content in files.items():
        replace(folder / name, content)
    return [folder / name for name in files]


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Save the files and print their paths."""
    print(f"wrote {', '.join(map(str, save(folder, files)))}", file=sys.stderr)
