"""Write the page of `icl-krr report` part by part, each as soon as it is ready."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from ..files import LAST_WORDS, replace
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
    """Write the page with what is ready, then again after every part; return seconds by part.

    If the process ends before the last part, the page says so.
    """
    seconds: dict[str, float] = {}
    path = folder / "report.html"

    def page(interrupted: bool = True) -> bytes:
        ready = [part for part in parts if isinstance(part, Section)]
        waiting = [part.title for part in parts if isinstance(part, Part)]
        return render(TITLE, WORDS, ready, about(waiting, interrupted) if waiting else "")

    def save() -> None:
        output.save(folder, {path.name: page(interrupted=False)})

    missing = [(place, part) for place, part in enumerate(parts) if isinstance(part, Part)]
    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"))
    with (
        saying_if_interrupted(path, page),
        output.progress(*columns, TimeElapsedColumn()) as progress,
    ):
        save()
        print(
            f"wrote {path} with what is ready; {len(missing)} parts follow, each as soon as it is "
            "ready",
            file=sys.stderr,
        )
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


def about(waiting: list[str], interrupted: bool) -> str:
    """What the page says of the parts that it lacks."""
    now, titles = time.strftime("%Y-%m-%d %H:%M:%S %z"), "; ".join(waiting)
    if interrupted:
        return f"Interrupted at {now}; run the command again. Missing: {titles}."
    return (
        f"In progress at {now}: {titles}. Load this page again to see the parts that are ready by "
        "then. If icl-krr report does not run any more, run the command again."
    )


@contextmanager
def saying_if_interrupted(path: Path, page: Callable[[], bytes]) -> Iterator[None]:
    """Replace a file by what `page` returns if the process ends, or an error is raised, before."""
    LAST_WORDS[path] = page
    try:
        yield
    except BaseException:
        with suppress(OSError):  # such as a full disk, of which the first error tells
            replace(path, page())
        raise
    finally:
        del LAST_WORDS[path]
