"""The settings of `icl-krr predict`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from .command import Folder
from .construction import Construction


@dataclass(frozen=True)
class Predict(Construction):
    """Predict a column of TABLE.csv with a constructed transformer. Random rows are the supports,
    the other rows are the queries, and every column except the target is a feature. The command
    prints the relative distance of the transformer to exact KRR at every depth."""

    table: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="TABLE.csv")]] = tyro.MISSING
    """Comma-separated file with a header line and numeric columns."""
    target: Annotated[str, tyro.conf.arg(metavar="COLUMN")] = tyro.MISSING
    """Column to predict."""
    supports: int | None = None
    """Number of rows used as supports.
    If None, three quarters of the rows, but at most 512."""
    out: Folder | None = None
    """Folder for results.csv, meta.json, depth.png and depth.svg.
    If None, no files are written."""
