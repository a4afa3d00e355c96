"""What `icl-krr bench` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .choices import Suite
from .command import Command


@dataclass(frozen=True)
class Bench(Command):
    """Time and memory against floors and peers, interleaved, after checking that all agree.
    Peers that are not installed are left out: pip install "icl_krr[bench]" has them."""

    suite: tuple[Suite, ...] = ()
    """What to compare; everything if absent."""
    quick: bool = False
    """A smoke run on the smallest sizes: its times mean nothing."""
    repeats: int = 7
    """Timed runs of each program, in turns."""
    seed: int = 0
    """Seed of every random choice."""
    json: bool = False
    """Print JSON for programs in place of a table."""
    out: Path | None = None
    """Folder for bench.json, bench.md, scaling.png and .svg; no files if absent."""
