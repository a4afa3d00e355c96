"""Whole files: atomic writing, checksums, JSON and its records, and tables as CSV and Markdown."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import re
from dataclasses import is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

from .messages import short_repr, unknown_name


def replace(path: Path, content: bytes) -> None:
    """Write a file atomically, so that an interruption leaves the old file unchanged.

    The folder must exist. An OSError, as on a full disk, has the path.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:  # that of a full disk names no file
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def append(path: Path, line: bytes) -> None:
    """Add a line to a file. An OSError, as on a full disk, has the path."""
    try:
        with path.open("ab") as file:
            file.write(line)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


NO_CHECKSUM = "sha256:" + 64 * "0"
"""The placeholder of a checksum in the content of a file."""


def with_checksum(content: bytes) -> bytes:
    """The content of a file with its checksum in place of the first `NO_CHECKSUM`."""
    checksum = f"sha256:{sha256(content).hexdigest()}"
    return content.replace(NO_CHECKSUM.encode(), checksum.encode(), 1)


def verify_checksum(content: bytes) -> None:
    """Raise ValueError if the content of a file differs from what `with_checksum` returned.

    >>> verify_checksum(with_checksum(f"two words, {NO_CHECKSUM}".encode()))
    """
    checksum = re.search(rb"sha256:[0-9a-f]{64}", content)
    if checksum is None:
        raise ValueError("no checksum; files of earlier versions had none")
    if content != with_checksum(content.replace(checksum[0], NO_CHECKSUM.encode(), 1)):
        raise ValueError("a checksum of other content; copy or make the file again")


Lines = tuple[list[str], list[list[str]]]
"""A table of text cells: the header and the lines below it."""


def to_markdown(table: Lines) -> str:
    r"""The Markdown of a table, with `|` in a cell written as `\|`."""
    header, lines = table
    rows = (header, ["---"] * len(header), *lines)
    escaped = ([cell.replace("|", "\\|") for cell in line] for line in rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def from_markdown(text: str) -> list[Lines]:
    r"""All tables in a Markdown text, with `\|` in a cell read as `|`.

    >>> from_markdown("| a | b |\n| --- | --- |\n| 1 \\| 2 | 3 |\n")
    [(['a', 'b'], [['1 | 2', '3']])]
    """
    blocks = re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    tables = [[_cells(line) for line in block.splitlines()] for block in blocks]
    return [(header, lines) for header, _, *lines in tables]


def _cells(line: str) -> list[str]:
    return [part.strip().replace("\\|", "|") for part in re.split(r"(?<!\\)\|", line)[1:-1]]


def to_csv(rows: list[dict[str, Any]]) -> bytes:
    """The CSV of rows, with a header and one line per row.

    The columns are the keys of all rows in the order in which they first appear. A missing value is
    an empty cell.
    """
    table = io.StringIO()
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(table, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return table.getvalue().encode()


def from_csv(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV file, with numbers converted to int or float."""
    with path.open(newline="") as file:
        table = list(csv.DictReader(file))
    return [{name: _parse_number(cell or "") for name, cell in row.items()} for row in table]


def _parse_number(text: str) -> int | float | str:
    """The number that a text spells, or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def to_json(value: Any) -> str:
    return json.dumps(plain(value), indent=2, allow_nan=False)


def plain(value: Any) -> Any:
    """Convert a value for JSON: paths become text, NaN and infinity become null."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def read_record(hint: Any, path: Path) -> Any:
    """The record in a JSON file."""
    return convert_record(hint, parse_json(path, path.read_bytes()), path)


def parse_json(path: Path, content: bytes) -> Any:
    """The value of a JSON text; a ValueError names the file if the text is not JSON."""
    try:
        return json.loads(content)
    except ValueError as error:
        raise ValueError(f"{path} must be a JSON file: {error}") from None


def convert_record(hint: Any, value: Any, path: Path, place: str = "") -> Any:
    """A value of a JSON file, converted to a type; a ValueError names file, place and value.

    >>> from typing import TypedDict
    >>> class Run(TypedDict):
    ...     name: str
    ...     seeds: tuple[int, ...]
    >>> convert_record(Run, {"name": "a", "seeds": [1, 2]}, Path("runs.json"))
    {'name': 'a', 'seeds': (1, 2)}
    >>> convert_record(Run, {"name": "a", "seeds": [1, "2"]}, Path("runs.json"))
    Traceback (most recent call last):
    ValueError: runs.json: seeds[1] must be int, got '2'
    """
    import msgspec  # `icl-krr --help` does not need it

    where = f"{path}: {place}" if place else f"{path}"
    kind, inner = get_origin(hint), get_args(hint)
    field_types = get_type_hints(hint) if is_dataclass(hint) or is_typeddict(hint) else {}
    if isinstance(value, dict) and (field_types or kind is dict):
        for name, one in value.items():
            if name in field_types or kind is dict:
                field_type = field_types[name] if field_types else inner[1]
                convert_record(field_type, one, path, f"{place}.{name}" if place else name)
            elif is_dataclass(hint):
                raise ValueError(f"{where}: {unknown_name('field', name, field_types)}")
    elif isinstance(value, list) and kind is tuple:
        for i, one in enumerate(value):
            convert_record(inner[0], one, path, f"{place}[{i}]")
    elif kind is Literal and value not in inner:
        raise ValueError(f"{path}: {unknown_name(place, value, inner)}")
    try:
        return msgspec.convert(value, hint, dec_hook=lambda kind, one: kind(one))
    except msgspec.ValidationError as error:
        rule, _, inside = str(error).partition(" - at `$")
        rule = f": {re.sub(', got `.*|`', '', rule)}".replace(": Expected", " must be")
        got = "" if ", got " in rule else f", got {short_repr(value)}"
        raise ValueError(f"{where}{inside.strip('`')}{rule}{got}") from None
