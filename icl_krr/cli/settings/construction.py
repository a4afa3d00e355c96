"""What demo, predict and fit are told of the construction that they build."""

from __future__ import annotations

from dataclasses import dataclass

from .choices import Kernel, Solver
from .command import Command


@dataclass(frozen=True)
class Construction(Command):
    solver: Solver = "conjugate_gradient"
    """Algorithm that the transformer's weights spell out."""
    kernel: Kernel | None = None
    """Kernel of the regression. By default, of those the solver takes, predict prefers the
    linear and demo the exponential one."""
    ridge: float | None = None
    """Ridge > 0 added to the kernel matrix; chosen by leave-one-out on the supports if absent."""
    temperature: float | None = None
    """Temperature > 0 of the exponential kernel; chosen likewise."""
    lengthscale: float | None = None
    """Lengthscale > 0 of the Gaussian kernel; chosen likewise."""
    steps: int = 16
    """Solver steps of the transformer."""
    seed: int = 0
    """Seed of every random choice."""
    json: bool = False
    """Print JSON for programs in place of tables."""
