"""Tables as text that fit the width of the terminal without breaking a word."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `icl-krr --help` does not need it
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table as Grid

ROOM = 12
"""The least width of a column that wraps its cells, unless its longest word is wider."""
NUMBER = re.compile(r"[-+]?\d|-$")
TOGETHER = re.compile(r"\([^\s()]+ [^\s()]+\)\S*|\S+")
"""What stays on one line where there is room: an interval (low, high), or a word."""


@dataclass(frozen=True)
class Table:
    """A table of text cells, printed by the console of `rich`.

    If the table does not fit, cells wrap between words. If that is not enough, the columns of
    `dropped_first` are left out, one after the other, and a line below the table says where they
    are. Columns that still do not fit continue in a further table, which repeats the first column.

    Args:
        title: line above the table.
        header: names of the columns.
        groups: lines of cells. A rule separates two groups.
        dropped_first: columns to leave out of a narrow table, in this order; none by default.
        where: where a reader finds these columns, such as "results.csv"; "" by default.

    >>> lines = [["zero", "1 (0.9, 1.1)"], ["gradient_descent", "0.01 (0.009, 0.01)"]]
    >>> print(as_text(Table("Distances", ["candidate", "distance"], [lines]), width=36))
    Distances
    ┏━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
    ┃ candidate        ┃      distance ┃
    ┡━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
    │ zero             │  1 (0.9, 1.1) │
    │ gradient_descent │          0.01 │
    │                  │ (0.009, 0.01) │
    └──────────────────┴───────────────┘
    """

    title: str
    header: list[str]
    groups: list[list[list[str]]]
    dropped_first: tuple[str, ...] = ()
    where: str = ""

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        from rich.text import Text

        width, dropped, blocks = options.max_width, 0, self.blocks(options.max_width, ())
        while len(blocks) > 1 and dropped < len(self.dropped_first):
            dropped += 1
            blocks = self.blocks(width, self.dropped_first[:dropped])
        yield Text(self.title, "table.title")
        for block in blocks:
            yield self.grid(block, width, continued=block != blocks[0])
        left_out = [name for name in self.header if name in self.dropped_first[:dropped]]
        if left_out:
            words = f"Not shown in {width} columns: {'; '.join(left_out)}. See {self.where}."
            yield Text(words)

    def column(self, at: int) -> Column:
        cells = (line[at] for group in self.groups for line in group)
        return Column(self.header[at], tuple(cells))

    def blocks(self, width: int, without: tuple[str, ...]) -> list[list[int]]:
        """The columns of each table that fits the width. The first column is in all tables."""
        first, *rest = (at for at, name in enumerate(self.header) if name not in without)
        found = [[first]]
        for at in rest:
            least = sum(self.column(i).least for i in (*found[-1], at))
            if len(found[-1]) > 1 and least > space([*found[-1], at], width):
                found.append([first])
            found[-1].append(at)
        return found

    def grid(self, block: list[int], width: int, *, continued: bool) -> Grid:
        from rich.table import Table as Grid
        from rich.text import Text

        columns = [self.column(at) for at in block]
        widths = shared(columns, space(block, width))
        grid = Grid()
        for column, own in zip(columns, widths, strict=True):
            justify = "right" if column.numeric else "left"
            header = Text("\n".join(wrap(column.header, own)))
            grid.add_column(header, width=own, justify=justify, overflow="fold")
        for group in self.groups:
            for line in group:
                if continued and not any(line[at] for at in block[1:]):
                    continue
                cells = (wrap(line[at], own) for at, own in zip(block, widths, strict=True))
                grid.add_row(*(Text("\n".join(lines)) for lines in cells))
            grid.add_section()
        return grid


@dataclass(frozen=True)
class Column:
    """The header and the cells of a column, and how much room they take."""

    header: str
    cells: tuple[str, ...]

    @property
    def numeric(self) -> bool:
        """Whether half of the cells or more begin with a number."""
        filled = [cell for cell in self.cells if cell]
        return 2 * sum(NUMBER.match(cell) is not None for cell in filled) >= len(filled) > 0

    @property
    def least(self) -> int:
        """The width of the longest word, and of cells that wrap at least `ROOM`."""
        words = longest(word for cell in (self.header, *self.cells) for word in cell.split())
        return max(words, min(ROOM, longest(self.lines(self.cells))))

    @property
    def whole(self) -> int:
        """The width at which nothing wraps."""
        return longest(self.lines((self.header, *self.cells)))

    @staticmethod
    def lines(cells: tuple[str, ...]) -> Iterator[str]:
        return (line for cell in cells for line in cell.splitlines())

    def heights(self, width: int) -> list[int]:
        return [len(wrap(cell, width)) for cell in (self.header, *self.cells)]


def longest(texts: Iterable[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, texts), default=0)


def space(block: list[int], width: int) -> int:
    """The width that the rules and margins of a table leave for its cells."""
    return width - 3 * len(block) - 1


def shared(columns: list[Column], space: int) -> list[int]:
    """The widths of the columns, narrowed where this adds the fewest lines to rows and cells."""
    least = [column.least for column in columns]
    widths = [
        min(column.whole, max(own, space - sum(least) + own))
        for column, own in zip(columns, least, strict=True)
    ]
    heights = cache(lambda i, width: columns[i].heights(width))

    def lines(narrowed: int) -> int:
        rows = (heights(i, width - (i == narrowed)) for i, width in enumerate(widths))
        return sum(max(row) + sum(row) for row in zip(*rows, strict=True))

    while sum(widths) > space:
        wide = [i for i, width in enumerate(widths) if width > least[i]]
        if not wide:
            break
        widths[min(wide, key=lambda i: (lines(i), -widths[i]))] -= 1
    return widths


def wrap(cell: str, width: int) -> list[str]:
    """The lines of a cell, broken between words, and before an interval rather than within."""
    from rich.cells import cell_len

    lines = []
    for line in cell.splitlines():
        lines.append("")
        for part in TOGETHER.findall(line):
            for word in [part] if cell_len(part) <= width else part.split():
                if lines[-1] and cell_len(f"{lines[-1]} {word}") > width:
                    lines.append("")
                lines[-1] += f" {word}" if lines[-1] else word
    return lines


def number(value: float, digits: int = 3) -> str:
    """Three digits of a number, or as many as are asked for, or "-" for NaN."""
    return "-" if math.isnan(value) else f"{value:.{digits}g}"


def as_text(*parts: RenderableType, width: int | None = None) -> str:
    """The text that the console prints for some tables and sentences, without colours."""
    from rich.console import Console

    console = Console(width=width, color_system=None, highlight=False, force_jupyter=False)
    with console.capture() as written:
        console.print(*parts, sep="\n")
    return "\n".join(line.rstrip() for line in written.get().splitlines())
