"""Files that are whole or not there, rows as CSV, tables as Markdown."""

from __future__ import annotations

import csv
import errno
import io
import os
from pathlib import Path
from typing import Any


def replace(path: Path, content: bytes) -> None:
    """Write a file that takes the place of its elder only when whole."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


Lines = tuple[list[str], list[list[str]]]
"""A table: its header and its lines."""


def to_markdown(table: Lines) -> str:
    header, lines = table
    rows = (header, ["---"] * len(header), *lines)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def to_csv(rows: list[dict[str, Any]]) -> bytes:
    """One line a row; the columns are those of all rows, in the order of their appearance."""
    table = io.StringIO()
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(table, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return table.getvalue().encode()
