"""The settings of `icl-krr bench`."""

from __future__ import annotations

from dataclasses import dataclass

from .choices import Suite
from .command import Command, Folder, refuse_unused


@dataclass(frozen=True)
class Bench(Command):
    """Measure time and memory, and compare them with those of plain solvers and other libraries.
    The command first checks that programs return the same result. Then it runs them alternately.
    Libraries that are not installed are left out. Install them from a clone with
    python -m pip install ".[bench]"."""

    suite: tuple[Suite, ...] = ()
    """Groups of comparisons to run. If empty, all groups."""
    quick: bool = False
    """Run once on the smallest sizes, as a check. Timings are not meaningful."""
    repeats: int = 7
    """Number of timed runs of each program, >= 1. The programs run alternately. Programs that take
    milliseconds run up to 15 times as often."""
    seed: int = 0
    """Seed of every random choice."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Folder | None = None
    """Folder for bench.json, bench.md, scaling.png and scaling.svg.
    If None, no files are written."""

    def refuse_options_without_effect(self) -> None:
        if self.quick:
            refuse_unused(self, ["repeats"], "with --quick, which runs once")
