"""What `icl-krr ablate` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from .choices import Kernel, Site
from .command import Command


@dataclass(frozen=True)
class Ablate(Command):
    """What is every part of MODEL needed for? Each head, slot, unit or role is taken out by
    itself; for constructions the change is compared with what the algorithm without that line
    computes. MODEL is a solver, whose construction it is, a reference run or a run's folder."""

    model: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="MODEL")]]
    """Such as conjugate-gradient, chebyshev, richardson, gp-encoder or a folder."""
    kernel: Kernel | None = None
    """Kernel of a construction; by default the one that its expectations are known for."""
    steps: int | None = None
    """Solver steps of a construction; 12 if absent."""
    kinds: tuple[Site, ...] | None = None
    """What to take out; by default heads and slots, of runs heads and units."""
    each_step: bool = False
    """Take a construction's parts out of one step at a time; runs have it so in any case."""
    replace: Literal["zero", "mean"] = "zero"
    """What takes its place: zero, or the mean over tasks and over tokens of the same role."""
    swap: str | None = None
    """Solver whose steps replace the blocks of a run as well, one at a time; not of a decoder."""
    tasks: int = 64
    """Tasks to predict."""
    num_queries: int = 8
    """Queries of a task."""
    seed: int = 0
    """Seed of every random choice."""
    json: bool = False
    """Print JSON for programs in place of a table."""
    out: Path | None = None
    """Folder for ablate.csv, ablate.md, meta.json, ablate.png and .svg; by default
    icl-krr-ablate-MODEL."""
