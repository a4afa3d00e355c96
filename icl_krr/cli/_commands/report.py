"""`icl-krr report`: one page with the results of finished runs; missing results are computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ..._core.text_tables import TextTable
from .. import _output
from .._options import Command
from .._output import Outcome, working

if TYPE_CHECKING:
    from ...experiments._explorer import Explored


@dataclass(frozen=True)
class Report(Command):
    """Write report.html, one page that needs no network. The page has sliders for the temperature,
    ridge, depth and width of constructed transformers. It also shows residual streams, attention
    patterns, the solver that a trained model runs, the errors of trained models against depth and
    width, and verdicts on published claims. The page shows the results in the folders RUN without
    computing them again. If the folders contain no identification or no claims, the command
    computes the missing results on fewer tasks and seeds, in about 6 CPU minutes. It writes the
    page with what is ready first, and then adds each part that takes long."""

    runs: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="[RUN ...]")]] = ()
    """Folders written by verify, identify, sweep or train, or names of trained models
    of the package (such as gp-encoder)."""
    seed: int = 0
    """Seed of every random choice."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Path = Path("icl-krr-report")
    """Folder for report.html, grid.csv and meta.json."""


def run(settings: Report) -> Outcome:
    from .._page_parts import grid_rows, make_page, page_parts

    grid: list[Explored] = []
    parts = page_parts(settings.runs, settings.seed, _output.surroundings(settings), grid)
    if (settings.out / "meta.json").exists() and not (settings.out / "report.html").is_file():
        raise ValueError(
            f"{settings.out} must be empty or hold a report, got other files; choose another --out"
        )
    with working(settings) as show:
        seconds = make_page(settings.out, parts, show)
    rows = grid_rows(grid[0])
    lines = [[title, f"{spent:.0f}"] for title, spent in seconds.items()]
    table = TextTable("report.html", ["part", "seconds"], [lines])
    files = {"grid.csv": rows, "meta.json": {}}
    return Outcome({"rows": rows}, [table], files, {"dtype": grid[0].dtype})
