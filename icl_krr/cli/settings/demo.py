"""What `icl-krr demo` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .construction import Construction


@dataclass(frozen=True)
class Demo(Construction):
    """Run on a small real table that ships (diabetes progression, Efron et al. 2004) and on a
    draw of a Gaussian process; write results.csv, meta.json, depth.png and
    depth.svg."""

    steps: int = 24
    """Solver steps of the transformer."""
    out: Path = Path("icl-krr-demo")
    """Folder for the files."""
