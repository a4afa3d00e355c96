"""Tables for people, JSON for programs, files for later."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

from ..files import Lines, replace
from .settings.command import Command

PACKAGES = ("icl_krr", "jax", "jaxlib", "flax", "numpy")


def surroundings(settings: Command) -> dict[str, Any]:
    """What was asked for, and where it ran."""
    device = jax.devices()[0]
    options = dataclasses.asdict(settings)
    argv = options.pop("argv")
    return {
        "command": ["icl-krr", *argv],
        "settings": options,
        "seed": settings.first_seed,
        "matmul_precision": "highest",
        "device": f"{device.platform}: {device.device_kind}",
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
    }


def wide() -> Console:
    """For tables that no narrow page holds."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def lined(title: str, content: Lines) -> Table:
    header, lines = content
    table = Table(title=title)
    for i, column in enumerate(header):
        table.add_column(column, justify="right" if i else "left", overflow="fold")
    for line in lines:
        table.add_row(*line)
    return table


def number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3g}"


def to_json(value: Any) -> str:
    return json.dumps(plain(value), indent=2, allow_nan=False)


def plain(value: Any) -> Any:
    """What JSON can hold: paths as text, null for a number that is not finite."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def prepare(folder: Path) -> None:
    """Make the folder before the work, so that a bad one is refused at once."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def save(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """Write files, each of which replaces its elder only when whole."""
    for name, content in files.items():
        replace(folder / name, content)
    return [folder / name for name in files]


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Save the files, and say so."""
    print(f"wrote {', '.join(map(str, save(folder, files)))}", file=sys.stderr)
