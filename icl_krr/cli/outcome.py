"""What a command returns, and the driver that shows its work, writes its files and prints it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import Any, NamedTuple

from ..files import to_csv
from ..text_tables import Table
from . import output
from .options import Command

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Outcome(NamedTuple):
    """What a command found.

    Attributes:
        record: what `--json` prints, besides what made it; None if there is nothing to print.
        shown: tables and sentences, in the order in which they are printed without `--json`.
        files: {name: content}. Rows become CSV, a function that draws a figure becomes an image in
            two formats, and a record becomes JSON with what made it. None stands for a file that
            the work has written.
        facts: what the command knows of its making besides its settings and the machine.
        notes: sentences for standard error.
        status: the exit status.
    """

    record: Mapping[str, Any] | None
    shown: Sequence[Table | str] = ()
    files: Mapping[str, Any] = NOTHING
    facts: Mapping[str, Any] = NOTHING
    notes: Sequence[str] = ()
    status: int = 0


@contextmanager
def working(settings: Command) -> Iterator[output.Show]:
    """The folder of a command is there, in its precision; yield a function that says its work."""
    import jax

    if settings.folder is not None:
        output.prepare(settings.folder)
    with jax.enable_x64(True) if settings.float64 else nullcontext(), output.telling() as show:
        yield show


def finish(settings: Command, found: Outcome) -> int:
    """Write and print what a command found; return its exit status."""
    for words in found.notes:
        print(words, file=sys.stderr)
    if found.record is None:
        return found.status
    precision = {"dtype": "float64"} if settings.float64 else {}
    meta = output.surroundings(settings, **precision | found.facts)
    if settings.folder is not None and found.files:
        files = {}
        for name, content in found.files.items():
            files |= encoded(name, content, meta)
        output.save(settings.folder, {n: one for n, one in files.items() if one is not None})
        names = ", ".join(str(settings.folder / name) for name in files)
        print(f"wrote {names}", file=sys.stderr)
    if vars(settings)["json"]:
        print(output.to_json({"meta": meta, **found.record}))
    else:
        output.print_parts(found.shown)
    return found.status


def encoded(name: str, content: Any, meta: dict[str, Any]) -> dict[str, bytes | None]:
    """The files of one entry; meta.json holds what made the others."""
    from ..plots import images

    if callable(content):
        return images(name, content())
    if isinstance(content, dict):
        content = meta | content if name == "meta.json" else {"meta": meta} | content
        return {name: output.json_file(content)}
    if isinstance(content, list):
        content = to_csv(content)
    return {name: content.encode() if isinstance(content, str) else content}
