"""Cells of a comma-separated file: their text, which of them are missing, and which are wrong."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._core import checks
from .._core.messages import one_line, short_repr

MISSING = ("", "na", "n/a", "nan", "null", "?")
"""Cells without a value, in small letters."""

DROP, MEDIAN = METHODS = ("drop", "median")
"""What to do about them: leave out the row, or fill the cell."""

SHOWN = 10
"""Number of wrong cells that a message shows."""


class Cells(NamedTuple):
    """The text of a file: one tuple of cells for each column, and the line of every row."""

    path: Path
    columns: dict[str, tuple[str, ...]]
    lines: tuple[int, ...]

    def missing(self, names: Iterable[str]) -> np.ndarray:
        """Which cells of these columns are missing, bool [rows, columns]."""
        return np.array([[is_missing(cell) for cell in self.columns[name]] for name in names]).T

    def only(self, keep: np.ndarray) -> Cells:
        """The rows that are kept, bool [rows]."""

        def select(values: Sequence) -> tuple:
            return tuple(value for value, flag in zip(values, keep, strict=True) if flag)

        return Cells(self.path, {k: select(v) for k, v in self.columns.items()}, select(self.lines))


def is_missing(cell: str) -> bool:
    return cell.lower() in MISSING


def number(cell: str) -> float:
    try:
        return math.nan if "_" in cell else float(cell)  # float accepts 1_000
    except ValueError:
        return math.nan


class Rule(NamedTuple):
    """What the cells of a column must be, in words and as a function."""

    words: str
    fits: Callable[[str], bool]


TEXT = Rule("text", lambda cell: not is_missing(cell))
NUMBER = Rule("a finite number", lambda cell: math.isfinite(number(cell)))


def cell_faults(cells: Cells, rules: dict[str, Rule], missing: str | None) -> list[str]:
    """One sentence about all cells that do not follow the rule of their column, or none.

    Cells that are missing do not count if a method says what becomes of them.
    """
    wrong = [
        (line, name, value, rule.words)
        for name, rule in rules.items()
        for line, value in zip(cells.lines, cells.columns[name], strict=True)
        if not rule.fits(value) and not (missing and is_missing(value))
    ]
    if not wrong:
        return []
    wrong.sort(key=lambda one: one[0])
    (line, name, value, words), *others = wrong
    fault = f"line {line}, column {short_repr(name)}: expected {words}, got {short_repr(value)}"
    if others:
        some = others[: SHOWN - 1]
        places = (f"line {a}, column {short_repr(b)}, {short_repr(c)}" for a, b, c, _ in some)
        fault += f"; and {len(others)} more: {'; '.join(places)}"
        fault += "; ..." if len(wrong) > SHOWN else ""
    fault += "; correct these cells" if others else "; correct the cell or remove the row"
    if any(is_missing(value) for _, _, value, _ in wrong):
        fault += (
            "; for cells without a value, --missing drop or --missing median of icl-krr predict, "
            'missing="drop" or missing="median" in Python'
        )
    return [fault]


def refuse(path: Path, faults: Sequence[str]) -> None:
    """Raise one error with all faults of a file, which are numbered if there are several."""
    if faults:
        numbered = (f"({number}) {fault}" for number, fault in enumerate(faults, 1))
        raise ValueError(f"{path}: {faults[0] if len(faults) == 1 else '; '.join(numbered)}")


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
        raise ValueError(f"{path} must name every column, got {one_line(str(header)[1:-1])}")
    if repeated := sorted({name for name in header if header.count(name) > 1}):
        raise ValueError(
            f"{path} must name each column once, got {one_line(str(repeated)[1:-1])} more than once"
        )
    if not rows:
        raise ValueError(f"{path} must have rows of numbers below its header, got none")
    odd = [(line, len(row)) for line, row in rows if len(row) != len(header)]
    if odd:
        others = f"; also wrong: line {one_line(', '.join(str(line) for line, _ in odd[1:]))}"
        raise ValueError(
            f"{path}, line {odd[0][0]}: expected as many cells as the header has ({len(header)}), "
            f"got {odd[0][1]}{others if odd[1:] else ''}{separator(header)}"
        )
    columns = dict(zip(header, zip(*(row for _, row in rows), strict=True), strict=True))
    return Cells(path, columns, tuple(line for line, _ in rows))


def separator(header: Collection[str]) -> str:
    """The end of an error about a file that may have another separator."""
    if len(header) > 1:
        return ""
    other = next((mark for mark in ";\t|" if mark in next(iter(header))), None)
    return f"; separate the cells with commas instead of {other!r}" if other else ""
