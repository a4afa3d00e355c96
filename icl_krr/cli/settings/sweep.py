"""What `icl-krr sweep` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from .choices import Axis, Kernel
from .command import Command


@dataclass(frozen=True)
class Sweep(Command):
    """A grid of transformers along one axis, each beside exact KRR at every depth. All values
    of a line are one compiled call where shapes allow; a run that was interrupted goes on where
    it was, and more seeds or lines are added to what is there."""

    axis: tyro.conf.Positional[Axis]
    """What to go along."""
    values: tuple[str, ...] = ()
    """Values of the axis; a default grid if absent."""
    lines: tuple[str, ...] = ()
    """Solvers, sketches or features to compare; those of the axis if absent."""
    kernel: Kernel | None = None
    """Kernel of the regression; by default the exponential one, linear along the width, Gaussian
    along the arithmetic. Its bandwidth is that of the temperature."""
    seeds: int = 5
    """Number of tasks, each of its own seed."""
    seed: int = 0
    """First seed."""
    steps: int = 32
    """Solver steps of every model."""
    num_supports: int = 64
    """Supports n of a task."""
    num_features: int | None = None
    """Features p of a task; by default 2, or 32 along the width."""
    num_queries: int = 64
    """Queries of a task."""
    temperature: float = 0.5
    """Temperature > 0 of the exponential kernel."""
    ridge: float | None = None
    """Ridge > 0; by default 0.1 k(x, x), or 0.1 p along the width."""
    json: bool = False
    """Print JSON for programs in place of a table."""
    out: Path | None = None
    """Folder for results.csv, meta.json and the figure; by default icl-krr-sweep-AXIS."""
