"""Columns of a comma-separated file: its cells as text, and how they become numbers."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .. import checks, fields
from ..fields import cut, shown


class Cells(NamedTuple):
    """The text of a file: one tuple of cells for each column, and the line of every row."""

    path: Path
    columns: dict[str, tuple[str, ...]]
    lines: tuple[int, ...]


@dataclass(frozen=True)
class Column:
    """A column of a file: numbers, or texts that are one-hot encoded.

    A text becomes one feature for every text of `texts`, in their order: 1 for the same text, else
    0. A text that is not among them becomes 0 everywhere.

    Args:
        name: name of the column.
        texts: the different texts of the column, or None for a column of numbers; default None.

    >>> Column("city", ("Oslo", "Rome")).features
    ('city=Oslo', 'city=Rome')
    """

    name: str
    texts: tuple[str, ...] | None = None

    def __post_init__(self):
        fields.check(self)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that the column becomes."""
        if self.texts is None:
            return (self.name,)
        return tuple(f"{self.name}={text}" for text in self.texts)

    def numbers(self, cells: Cells) -> np.ndarray:
        """The features [rows, number of features] of the cells of this column, float64."""
        values = cells.columns[self.name]
        if self.texts is not None:
            return np.asarray(values, object)[:, None] == np.asarray(self.texts, object)[None]
        numbers = np.array([number(value) for value in values])
        if not np.all(np.isfinite(numbers)):
            row = int(np.argmin(np.isfinite(numbers)))
            raise ValueError(
                f"{cells.path}, line {cells.lines[row]}, column {shown(self.name)}: expected a "
                f"finite number, got {shown(values[row])}; correct the cell or remove the row"
            )
        return numbers[:, None]


def read_cells(path: str | Path) -> Cells:
    """The cells of a file whose header names every column once."""
    path = checks.path("path", path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            # line_num is the line in the file; a quoted cell may span several lines
            reader = csv.reader(file)
            rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} must be comma-separated UTF-8 text: {error}") from None
    if not rows:
        raise ValueError(f"{path} is empty; it must have a header and rows of numbers")
    (_, header), *rows = rows
    if not all(header):
        raise ValueError(f"{path} must name every column, got {cut(', '.join(map(repr, header)))}")
    if repeated := sorted({name for name in header if header.count(name) > 1}):
        raise ValueError(
            f"{path} must name each column once, got {shown(repeated[0])} more than once"
        )
    if not rows:
        raise ValueError(f"{path} must have rows of numbers below its header, got none")
    for line, row in rows:
        if len(row) != len(header):
            raise ValueError(
                f"{path}, line {line}: expected as many cells as the header has ({len(header)}), "
                f"got {len(row)}{separator(header)}"
            )
    columns = dict(zip(header, zip(*(row for _, row in rows), strict=True), strict=True))
    return Cells(path, columns, tuple(line for line, _ in rows))


def separator(header: Collection[str]) -> str:
    """The end of an error about a file that may have another separator."""
    if len(header) > 1:
        return ""
    found = next((mark for mark in ";\t|" if mark in next(iter(header))), None)
    return f"; separate the cells with commas instead of {found!r}" if found else ""


def columns_of(cells: Cells, names: Sequence[str], encode: bool) -> tuple[Column, ...]:
    """The columns with these names; columns of text are encoded, or else refused by name."""
    texts = {name: values for name in names if is_text(values := cells.columns[name])}
    if texts and not encode:
        raise ValueError(
            f"{cells.path} must have numbers in every column, got text in "
            f"{cut(', '.join(map(repr, texts)))}; encode text as numbers (--encode on the command "
            "line, encode=True in Python) or remove the column"
        )
    return tuple(Column(name, different(cells, name) if name in texts else None) for name in names)


def is_text(values: Sequence[str]) -> bool:
    """Whether most cells are not numbers; a few of them may be typing errors."""
    return sum(math.isnan(number(value)) for value in values) > len(values) / 2


def different(cells: Cells, name: str) -> tuple[str, ...]:
    values = cells.columns[name]
    if "" in values:
        raise ValueError(
            f"{cells.path}, line {cells.lines[values.index('')]}, column {shown(name)}: expected "
            "text, got an empty cell; fill the cell or remove the row"
        )
    found = tuple(sorted(set(values)))
    if len(found) > max(2, len(values) // 2):
        raise ValueError(
            f"{cells.path}, column {shown(name)} must have few different texts to be encoded, got "
            f"{len(found)} in {len(values)} rows; remove the column"
        )
    return found


def number(cell: str) -> float:
    try:
        return math.nan if "_" in cell else float(cell)  # float accepts 1_000
    except ValueError:
        return math.nan
