"""What a command returns, and the driver that shows its work, writes its files and prints it."""

from __future__ import annotations

import dataclasses
import errno
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from .._core.files import replace, to_csv, to_json
from .._core.text_tables import TextTable
from ..catalogue import SOLVERS
from ._options import Command

if TYPE_CHECKING:
    from rich.console import Console

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Outcome(NamedTuple):
    """What a command found.

    Attributes:
        record: what `--json` prints, besides what made it.
        shown: tables and sentences, in the order in which they are printed without `--json`.
        files: {name: content}. Rows become CSV, a record becomes JSON with what made it, and a
            partial that draws a figure becomes an image in two formats. None stands for a file that
            the work has written.
        facts: what the command knows of its making besides its settings and the machine.
        notes: sentences for standard error.
        status: the exit status.
    """

    record: dict[str, Any]
    shown: Sequence[TextTable | str] = ()
    files: Mapping[str, Any] = NOTHING
    facts: Mapping[str, Any] = NOTHING
    notes: Sequence[str] = ()
    status: int = 0


def finish(settings: Command, found: Outcome) -> int:
    """Write and print what a command found; return its exit status."""
    for words in found.notes:
        print(words, file=sys.stderr)
    if not (found.record or found.files):
        return found.status
    precision = {"dtype": "float64"} if settings.float64 else {}
    meta = surroundings(settings, **{**precision, **found.facts})
    if settings.folder is not None and found.files:
        files = {}
        for name, content in found.files.items():
            files |= encoded(name, content, meta)
        save(settings.folder, {n: one for n, one in files.items() if one is not None})
        names = ", ".join(str(settings.folder / name) for name in files)
        print(f"wrote {names}", file=sys.stderr)
    if vars(settings)["json"]:
        print(to_json({"meta": meta, **found.record}))
    else:
        print_parts(found.shown)
    return found.status


def encoded(name: str, content: Any, meta: dict[str, Any]) -> dict[str, Any]:
    """The files of one entry; meta.json holds what made the others."""
    if isinstance(content, partial):
        from ..plots import images

        return images(name, content())
    if isinstance(content, dict):
        content = meta | content if name == "meta.json" else {"meta": meta} | content
        content = to_json(content) + "\n"
    if isinstance(content, list):
        content = to_csv(content)
    return {name: content.encode() if isinstance(content, str) else content}


def surroundings(settings: Command, **more: Any) -> dict[str, Any]:
    """The command, its settings, the machine and versions that ran it, and other facts."""
    import jax

    from ..experiments._study import environment

    options = dataclasses.asdict(settings)
    argv = options.pop("argv")
    return {
        "command": ["icl-krr", *argv],
        "settings": options,
        "own_solvers": {name: row.source for name, row in SOLVERS.items() if row.source},
        "seed": settings.first_seed,
        "matmul_precision": "highest",
        "mesh": dict(jax.sharding.get_abstract_mesh().shape),
        "processes": jax.process_count(),
        **environment("flax", "numpy"),
    } | more


def wide() -> Console:
    """A console for tables: 160 columns if the output is no terminal, unless COLUMNS is set."""
    from rich.console import Console

    console = Console(highlight=False)
    fixed = console.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    return console if fixed else Console(width=160, highlight=False)


def print_parts(parts: Sequence[TextTable | str]) -> None:
    console = wide()
    for part in parts:
        console.print(part)


EVERY = 30.0
"""Seconds between the lines of a status where there is no terminal."""


Show = Callable[..., None]
"""Says what is being done in words and, if that is known, how much of how much is done."""


@contextmanager
def working(settings: Command) -> Iterator[Show]:
    """Yield a function that tells the work of a command, whose folder and precision are set.

    It tells on stderr; where that is no terminal, a line now and then.
    """
    import jax
    from rich import progress as rich
    from rich.console import Console

    if settings.folder is not None:
        prepare(settings.folder)
    precision = jax.enable_x64(True) if settings.float64 else nullcontext()
    console = Console(stderr=True, no_color=True)  # rich's yellow vanishes on white
    console.quiet = not console.is_terminal
    text, last = rich.TextColumn("{task.description}"), time.monotonic()
    counted = (rich.BarColumn(), rich.MofNCompleteColumn(), text, rich.TimeRemainingColumn())
    drawn = rich.Progress(rich.SpinnerColumn(), text, console=console, transient=True)
    with precision, drawn as bar:
        only = bar.add_task("", total=None)

        def show(words: str, done: int = 0, total: int | None = None) -> None:
            nonlocal last
            if total is not None:
                bar.columns = counted
                bar.update(only, total=total)
            bar.update(only, description=words, completed=done)
            if console.quiet and time.monotonic() > last + EVERY:
                last = time.monotonic()
                print(words if total is None else f"{done} of {total}: {words}", file=sys.stderr)

        yield show


def prepare(folder: Path) -> None:
    """Make the folder before the computation, so that one without access fails early."""
    import jax
    from jax.experimental.multihost_utils import sync_global_devices

    if jax.process_index() == 0:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    sync_global_devices(f"{folder} is there")


def save(folder: Path, files: dict[str, bytes]) -> None:
    """Write files; each replaces an older file only after all its content is written.

    Of several processes, the first writes, as soon as all have read what was there.
    """
    import jax
    from jax.experimental.multihost_utils import sync_global_devices

    sync_global_devices(f"{folder} is read")
    for name, content in () if jax.process_index() else files.items():
        replace(folder / name, content)
