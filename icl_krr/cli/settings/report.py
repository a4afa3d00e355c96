"""The settings of `icl-krr report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from .command import Command, Folder


@dataclass(frozen=True)
class Report(Command):
    """Write report.html, one page that needs no network. The page has sliders for the temperature,
    ridge, depth and width of constructed transformers. It also shows residual streams, attention
    patterns, the solver that a trained model runs, and verdicts on published claims. The page
    shows the results in the folders RUN without computing them again. If the folders contain
    no identification or no claims, the command computes the missing results on fewer tasks and
    seeds. It writes the page with what is ready first, and then adds each part that takes long."""

    runs: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="[RUN ...]")]] = ()
    """Folders written by verify, identify, sweep or train, or names of trained models
    of the package (such as gp-encoder)."""
    seed: int = 0
    """Seed of every random choice."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Folder = Path("icl-krr-report")
    """Folder for report.html, grid.csv and meta.json."""
