"""What `icl-krr predict` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from .construction import Construction


@dataclass(frozen=True)
class Predict(Construction):
    """Read TABLE.csv as one task: random rows are supports, the others queries, and every other
    column is a feature. Prints the gap of the transformer to exact KRR, depth by depth."""

    table: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="TABLE.csv")]] = tyro.MISSING
    """Comma-separated file of numbers with a header."""
    target: Annotated[str, tyro.conf.arg(metavar="COLUMN")] = tyro.MISSING
    """Column to predict."""
    supports: int | None = None
    """Rows used as supports; by default three quarters of them, 512 at most."""
    out: Path | None = None
    """Folder for results.csv, meta.json, depth.png and .svg; no files if absent."""
