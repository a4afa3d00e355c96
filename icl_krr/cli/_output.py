"""The results of a command, and the driver that reports progress, writes files and prints."""

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
from .._core.messages import time_left
from .._core.text_tables import TextTable
from ..catalogue import SOLVERS
from ._options import Command

if TYPE_CHECKING:
    from rich.console import Console

EMPTY: Mapping[str, Any] = MappingProxyType({})


class Outcome(NamedTuple):
    """The results of a command.

    Attributes:
        record: what `--json` prints, beside the meta data.
        parts: tables and sentences, in the order in which they are printed without `--json`.
        files: {name: content}. Rows become CSV, a record becomes JSON with the meta data, and a
            partial that draws a figure becomes an image in two formats. None stands for a file that
            is already written.
        facts: further meta data, beside the settings and the machine.
        notes: sentences for standard error.
        status: the exit status.
    """

    record: dict[str, Any]
    parts: Sequence[TextTable | str] = ()
    files: Mapping[str, Any] = EMPTY
    facts: Mapping[str, Any] = EMPTY
    notes: Sequence[str] = ()
    status: int = 0


def finish(settings: Command, outcome: Outcome) -> int:
    """Write and print the results of a command; return its exit status."""
    for words in outcome.notes:
        print(words, file=sys.stderr)
    if not (outcome.record or outcome.files):
        return outcome.status
    precision = {"dtype": "float64"} if settings.float64 else {}
    meta = surroundings(settings, **{**precision, **outcome.facts})
    if settings.folder is not None and outcome.files:
        files = {}
        for name, content in outcome.files.items():
            files |= encoded(name, content, meta)
        save(settings.folder, {n: one for n, one in files.items() if one is not None})
        names = ", ".join(str(settings.folder / name) for name in files)
        print(f"wrote {names}", file=sys.stderr)
    if vars(settings)["json"]:
        print(to_json({"meta": meta, **outcome.record}))
    else:
        print_parts(outcome.parts)
    return outcome.status


def encoded(name: str, content: Any, meta: dict[str, Any]) -> dict[str, Any]:
    """The files of one entry; meta.json holds the meta data."""
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
    """The meta data: the command, its settings, the machine, versions, and other facts."""
    import jax

    from ..experiments._study import environment

    options = dataclasses.asdict(settings)
    argv = options.pop("argv")
    return {
        "command": ["icl-krr", *argv],
        "settings": options,
        "own_solvers": {name: entry.source for name, entry in SOLVERS.items() if entry.source},
        "seed": settings.first_seed,
        "matmul_precision": "highest",
        "mesh": dict(jax.sharding.get_abstract_mesh().shape),
        "processes": jax.process_count(),
        **environment("flax", "numpy"),
    } | more


def table_console() -> Console:
    """A console for tables; it has 160 columns without a terminal, unless COLUMNS is set."""
    from rich.console import Console

    console = Console(highlight=False)
    fixed = console.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    return console if fixed else Console(width=160, highlight=False)


def print_parts(parts: Sequence[TextTable | str]) -> None:
    console = table_console()
    for part in parts:
        console.print(part)


EVERY = 30.0
"""Seconds between two lines of progress if standard error is not a terminal."""


Show = Callable[..., None]
"""Reports progress: words and, if the amount of work is known, how much of it is done."""


@contextmanager
def working(settings: Command) -> Iterator[Show]:
    """Make the folder, set the precision, and yield a function that reports progress.

    It writes to standard error: a bar on a terminal, otherwise a line every 30 seconds. If the
    amount of work is known, both say the time that is left.
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
        begin: tuple[float, int] | None = None

        def show(words: str, done: int = 0, total: int | None = None) -> None:
            nonlocal last, begin
            if total is not None:
                bar.columns = counted
                bar.update(only, total=total)
            bar.update(only, description=words, completed=done)
            start, before = begin = begin or (time.monotonic(), done)
            if console.quiet and time.monotonic() > last + EVERY:
                last = time.monotonic()
                if total is not None:
                    words = f"{done} of {total}: {words}"
                    if done > before:
                        words += f", {time_left(start, done - before, total - before)}"
                print(words, file=sys.stderr)

        yield show


def prepare(folder: Path) -> None:
    """Make the folder before the computation, so that a folder without access fails early."""
    import jax
    from jax.experimental.multihost_utils import sync_global_devices

    if jax.process_index() == 0:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    sync_global_devices(f"{folder} is there")


def save(folder: Path, files: dict[str, bytes]) -> None:
    """Write files atomically. Of several processes, only the first writes, after all have read."""
    import jax
    from jax.experimental.multihost_utils import sync_global_devices

    sync_global_devices(f"{folder} is read")
    for name, content in () if jax.process_index() else files.items():
        replace(folder / name, content)
