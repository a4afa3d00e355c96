"""The settings of `icl-krr ablate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from ...experiments.shared.recipe import solver_of
from .choices import Kernel, Site
from .command import Command, Folder, refuse_unused
from .devices import ONE_DEVICE, OnDevices


@dataclass(frozen=True)
class Ablate(Command):
    """Remove each part of MODEL, one at a time, and measure how far the predictions change. Parts
    are heads, MLP units, slots (named groups of channels) and token roles (such as all queries).
    For a construction, the command also runs the algorithm without the operation that the part
    implements, and compares both results."""

    model: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="MODEL")]]
    """A solver to construct (such as chebyshev or cg), a trained model of the package (such as
    gp-encoder) or the folder of an icl-krr train run."""
    kernel: Kernel | None = None
    """Kernel of a construction.
    If None, the kernel for which the expected changes are known.
    If they are known for no kernel, the first kernel that the solver supports."""
    steps: int | None = None
    """Number of solver steps of a construction. If None, 12."""
    kinds: tuple[Site, ...] | None = None
    """Kinds of parts to remove.
    If None, heads and slots of a construction, or heads and MLP units of a trained model."""
    each_step: bool = False
    """Remove a part from one solver step at a time, instead of from all steps.
    Parts of a trained model are always removed from one block at a time."""
    replace: Literal["zero", "mean"] = "zero"
    """Value that replaces the removed part.
    "zero" is the number 0. "mean" is the mean over tasks and over tokens of the same role."""
    swap: str | None = None
    """Solver whose steps also replace the blocks of a trained model, one at a time.
    Decoders do not support this option. If None, no block is replaced."""
    tasks: int = 64
    """Number of tasks to predict, >= 2."""
    num_queries: int = 8
    """Number of queries per task."""
    seed: int = 0
    """Seed of every random choice."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Folder | None = None
    """Folder for ablate.csv, ablate.md, meta.json, ablate.png and ablate.svg.
    If None, icl-krr-ablate-MODEL."""
    devices: OnDevices = ONE_DEVICE

    def refuse_options_without_effect(self) -> None:
        if solver_of(self.model) is None:
            refuse_unused(self, ["each_step"], "for a trained model, which has no solver steps")
