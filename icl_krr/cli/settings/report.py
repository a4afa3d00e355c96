"""What `icl-krr report` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from .command import Command


@dataclass(frozen=True)
class Report(Command):
    """One page that needs no network, report.html: sliders for temperature, ridge, depth and width
    over a grid of constructed transformers, residual streams and attention patterns, which solver
    a trained model runs, and which claims hold. What RUNS hold is shown as it is; identification
    and claims that are in none of them are computed at a small size."""

    runs: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="RUN")]] = ()
    """Folders that verify, identify, sweep or train left, or the name of a reference run."""
    seed: int = 0
    """Seed of every random choice."""
    json: bool = False
    """Print JSON for programs in place of a table."""
    out: Path = Path("icl-krr-report")
    """Folder for report.html, grid.csv and meta.json."""
