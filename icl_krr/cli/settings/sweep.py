"""The settings of `icl-krr sweep`."""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from ...catalogue import AXES
from .choices import Axis, Kernel
from .command import Command, Folder, refuse_unused
from .devices import ONE_DEVICE, OnDevices


@dataclass(frozen=True)
class Sweep(Command):
    """Vary one quantity and compare constructed transformers with exact KRR at every depth. If a
    sweep is interrupted, the same command continues it. The same command with more --seeds or
    --lines adds the new results to the finished results. In float32, curves of conjugate gradient
    are rough at depths before it has converged, because it amplifies rounding errors;
    JAX_ENABLE_X64=1 makes them smooth."""

    axis: tyro.conf.Positional[Axis]
    """Quantity to vary."""
    values: tuple[str, ...] = ()
    """Values of the quantity. If empty, a default grid is used."""
    lines: tuple[str, ...] = ()
    """Solvers, sketches or random features to compare. Each is one line of the figure.
    If empty, the default lines of the axis are used."""
    kernel: Kernel | None = None
    """Kernel of the regression; --temperature sets its bandwidth.
    If None, linear for the axis width, Gaussian for arithmetic, and exponential otherwise."""
    seeds: int = 5
    """Number of seeds. The first seed is --seed. There is one task per seed."""
    seed: int = 0
    """First seed."""
    steps: int = 32
    """Number of solver steps of every model, >= 1."""
    num_supports: int = 64
    """Number of supports n per task."""
    num_features: int | None = None
    """Number of features p. If None, 32 for the axis width, and 2 otherwise."""
    num_queries: int = 64
    """Number of queries q per task."""
    temperature: float = 0.5
    """Temperature of the exponential kernel, >= 1/80."""
    ridge: float | None = None
    """Ridge > 0.
    If None, 0.1 p for the axis width, and 0.1 e^(1 / temperature) otherwise."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Folder | None = None
    """Folder for results.csv, meta.json and the figure. If None, icl-krr-sweep-AXIS."""
    devices: OnDevices = ONE_DEVICE

    def refuse_options_without_effect(self) -> None:
        axis = AXES[self.axis]
        refuse_unused(self, axis.unused, f"along the axis {axis.name!r}, which does not use it")
