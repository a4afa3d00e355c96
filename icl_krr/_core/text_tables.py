"""Tables of text cells that `rich` prints at the width of the terminal."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .files import Lines

if TYPE_CHECKING:  # `icl-krr --help` does not need it
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.measure import Measurement

LONGEST_WORD = 26
"""The width at which a long word is broken if there is no room for it."""
_NUMBER = re.compile(r"[-+]?\d|-$")


@dataclass(frozen=True)
class TextTable:
    """A table of text cells, in groups of lines with a rule between two groups.

    In a narrow terminal cells wrap between words. Columns that still do not fit continue in a
    further table, which repeats the first column.

    >>> lines = [["zero", "1 (0.9, 1.1)"], ["gradient_descent", "0.01 (0.009, 0.01)"]]
    >>> print(as_text(TextTable("Distances", ["candidate", "distance"], [lines]), width=36))
    Distances
    ┏━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
    ┃ candidate        ┃      distance ┃
    ┡━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
    │ zero             │  1 (0.9, 1.1) │
    │ gradient_descent │  0.01 (0.009, │
    │                  │         0.01) │
    └──────────────────┴───────────────┘
    """

    title: str
    header: list[str]
    groups: list[list[list[str]]]

    @classmethod
    def of(cls, title: str, table: Lines) -> TextTable:
        """The table of a header and its lines, in one group."""
        header, lines = table
        return cls(title, header, [lines])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.measure import measure_renderables
        from rich.table import Table as Grid
        from rich.text import Text

        wide = options.update_width(10**6)
        columns = [*zip(self.header, *(line for part in self.groups for line in part), strict=True)]
        sizes = [measure_renderables(console, wide, [*map(Text, cells)]) for cells in columns]
        yield Text(self.title, "table.title")
        for block in _column_blocks(sizes, options.max_width):
            grid = Grid()
            space = options.max_width - 1 - 3 * len(block)
            widths = _column_widths([sizes[at] for at in block], space)
            for at, width in zip(block, widths, strict=True):
                cells = [cell for cell in columns[at][1:] if cell]
                numbers = sum(_NUMBER.match(cell) is not None for cell in cells)
                justify = "right" if 2 * numbers >= len(cells) > 0 else "left"
                name = Text(self.header[at])
                grid.add_column(name, justify=justify, width=width, overflow="fold")
            for group in self.groups:
                for line in group:
                    grid.add_row(*(Text(line[at]) for at in block))
                grid.add_section()
            yield grid


def _column_blocks(sizes: list[Measurement], width: int) -> list[list[int]]:
    """The columns of each table that fits the width. All tables have the first column."""
    blocks = [[0]]
    for at in range(1, len(sizes)):
        least = sum(3 + min(sizes[i].minimum, LONGEST_WORD) for i in (*blocks[-1], at))
        if len(blocks[-1]) > 1 and least >= width:
            blocks.append([0])
        blocks[-1].append(at)
    return blocks


def _column_widths(sizes: list[Measurement], room: int) -> list[int]:
    """The widths of columns: the longest words, and the rest for those that need the least."""
    widths = [min(size.minimum, LONGEST_WORD) for size in sizes]
    spare = max(0, room - sum(widths))
    by_need = sorted(range(len(sizes)), key=lambda i: sizes[i].maximum - widths[i])
    for place, i in enumerate(by_need):
        extra = min(sizes[i].maximum - widths[i], spare // (len(sizes) - place))
        widths[i], spare = widths[i] + extra, spare - extra
    return widths


def format_number(value: float, digits: int = 3) -> str:
    """Some digits of a number, or "-" for NaN."""
    return "-" if math.isnan(value) else f"{value:.{digits}g}"


def as_text(*parts: RenderableType, width: int | None = None) -> str:
    """The text that the console prints for some tables and sentences, without colours."""
    from rich.console import Console

    console = Console(width=width, color_system=None, highlight=False, force_jupyter=False)
    with console.capture() as written:
        console.print(*parts, sep="\n")
    return "\n".join(line.rstrip() for line in written.get().splitlines())
