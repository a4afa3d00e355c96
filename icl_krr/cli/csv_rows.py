"""Read the CSV tables that commands write."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from ..experiments.shared.rows import Rows


def parse_rows(path: Path) -> Rows:
    """The rows of a CSV file, with numbers converted to int or float."""
    with path.open(newline="") as file:
        table = list(csv.DictReader(file))
    return [{name: parse_value(cell or "") for name, cell in row.items()} for row in table]


def is_whole(row: dict[str, Any]) -> bool:
    """Whether a row has all its numbers; a truncated or edited row does not."""
    return all(
        isinstance(value, (int, float))
        for name, value in row.items()
        if name not in ("axis", "line", "value")
    )


def parse_value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
