"""The settings of `icl-krr demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .choices import Kernel
from .command import Folder
from .construction import Construction


@dataclass(frozen=True)
class Demo(Construction):
    """Compare a constructed transformer with exact KRR on two tasks: a small real table included
    in the package (diabetes progression, Efron et al. 2004) and a draw of a Gaussian process.
    The command prints the relative distance to exact KRR at every depth, and writes results.csv,
    meta.json, depth.png and depth.svg."""

    kernel: Kernel | None = None
    """Kernel of the regression; the solver must support the kernel.
    If None, exponential, or linear if the solver supports no other kernel."""
    ridge: float | None = None
    """Ridge > 0 added to the diagonal of the kernel matrix. If None, the ridge with the least
    leave-one-out error for the table, and the noise variance for the Gaussian process."""
    temperature: float | None = None
    """Temperature > 0 of the exponential kernel. If None, the temperature with the least
    leave-one-out error for the table, and 1 for the Gaussian process."""
    lengthscale: float | None = None
    """Lengthscale > 0 of the Gaussian kernel. If None, the lengthscale with the least
    leave-one-out error for the table, and 1 for the Gaussian process."""
    steps: int | None = 24
    """Number of solver steps that the transformer runs, >= 1.
    If None, as many as the predictions need to converge, at most 256 in
    float32 and 1024 in float64."""
    out: Folder = Path("icl-krr-demo")
    """Folder for results.csv, meta.json, depth.png and depth.svg."""
