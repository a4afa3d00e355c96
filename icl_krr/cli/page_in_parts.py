"""Write the page of `icl-krr report` part by part, each as soon as it is ready."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from ..report import Section, render
from . import output

Show = Callable[[str], None]
TITLE = "In-context kernel ridge regression, as transformer weights"
WORDS = (
    "The forward pass of a transformer can run a solver of kernel ridge regression. The weights of "
    "the constructed models on this page are written down explicitly. Constructed and trained "
    "models use the same forward code."
)


class Part(NamedTuple):
    """A part of the page that is computed: what it shows, and how it is made."""

    title: str
    make: Callable[[Show], Section]


def make_page(folder: Path, parts: list[Part | Section]) -> dict[str, float]:
    """Write the page with what is ready, then again after every part; return seconds by part."""
    seconds: dict[str, float] = {}

    def save() -> None:
        ready = [part for part in parts if isinstance(part, Section)]
        waiting = [part.title for part in parts if isinstance(part, Part)]
        output.save(folder, {"report.html": render(TITLE, WORDS, ready, waiting)})

    save()
    missing = [(place, part) for place, part in enumerate(parts) if isinstance(part, Part)]
    print(
        f"wrote {folder / 'report.html'} with what is ready; {len(missing)} parts follow, each as "
        "soon as it is ready",
        file=sys.stderr,
    )
    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"))
    with output.progress(*columns, TimeElapsedColumn()) as progress:
        bars = [progress.add_task(part.title, start=False, total=1) for _, part in missing]
        for bar, (place, part) in zip(bars, missing, strict=True):
            progress.start_task(bar)
            start = time.perf_counter()
            parts[place] = part.make(
                lambda words, bar=bar, part=part: progress.update(
                    bar, description=f"{part.title}: {words}"
                )
            )
            seconds[part.title] = time.perf_counter() - start
            save()
            progress.update(bar, description=part.title, completed=1)
    return seconds
