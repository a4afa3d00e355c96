"""The settings of a construction, shared by demo, predict and fit."""

from __future__ import annotations

from dataclasses import dataclass

from ...catalogue import SOLVERS
from .choices import Kernel, Solver
from .command import Command, refuse_unused


@dataclass(frozen=True)
class Construction(Command):
    solver: Solver = "conjugate_gradient"
    """Solver that the transformer's weights implement."""
    kernel: Kernel | None = None
    """Kernel of the regression; the solver must support the kernel.
    If None, the first of linear, exponential and gaussian that the solver supports."""
    ridge: float | None = None
    """Ridge > 0 added to the diagonal of the kernel matrix.
    If None, the ridge with the least leave-one-out error on the supports, or on 1024 random
    supports if there are more."""
    temperature: float | None = None
    """Temperature > 0 of the exponential kernel.
    If None, the temperature with the least leave-one-out error on the supports, or on 1024 random
    supports if there are more."""
    lengthscale: float | None = None
    """Lengthscale > 0 of the Gaussian kernel.
    If None, the lengthscale with the least leave-one-out error on the supports, or on 1024 random
    supports if there are more."""
    steps: int | None = 16
    """Number of solver steps that the transformer runs, >= 1.
    If None, as many as the predictions need to converge, at most 256 in
    float32 and 1024 in float64."""
    seed: int = 0
    """Seed of every random choice."""
    json: bool = False
    """Print JSON instead of tables."""

    def refuse_options_without_effect(self) -> None:
        if not SOLVERS[self.solver].iterates:
            refuse_unused(self, ["steps"], f"for solver {self.solver!r}, which has no steps")
