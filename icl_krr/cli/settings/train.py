"""The settings of `icl-krr train`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from ...catalogue import FAMILIES, SOLVERS, kernel_class
from ...experiments.shared.recipe import ModelRecipe, TaskRecipe
from ...training.settings import Training
from .command import Command, Folder, refuse_unused
from .devices import ONE_DEVICE, OnDevices

ARCHITECTURE = ("style", "attention", "width", "heads", "hidden", "activation", "layer_norm")
"""Settings of a model with random weights that a construction determines itself."""


@dataclass(frozen=True)
class Train(Command):
    """Train a transformer on new random tasks in every step. RECIPE sets the defaults of all other
    settings. If training is interrupted, the same command continues from the last finished step and
    reaches the same weights as an uninterrupted run."""

    recipe: tyro.conf.Positional[Annotated[str | None, tyro.conf.arg(metavar="RECIPE")]] = None
    """A recipe of the package (such as gp-encoder), the folder of an icl-krr train run, or a JSON
    file.
    If None, built-in defaults are used."""
    task: TaskRecipe = field(default_factory=TaskRecipe)
    """Family of tasks to draw from."""
    model: ModelRecipe = field(default_factory=ModelRecipe)
    """Architecture with random weights, or the weights to start from."""
    training: Training = field(default_factory=Training)
    """AdamW with warm-up and cosine decay of the learning rate."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Folder | None = None
    """Folder for the weights, the checkpoint, metrics.csv, recipe.json, meta.json and the figure.
    If None, icl-krr-train-RECIPE, or RECIPE itself if RECIPE is the folder of a run."""
    devices: OnDevices = ONE_DEVICE

    @property
    def first_seed(self) -> int:
        return self.training.seed

    def refuse_options_without_effect(self) -> None:
        """Each family takes its own settings; a construction has an architecture of its own."""
        solver = self.model.start in SOLVERS
        taken = {*FAMILIES[self.task.family].takes, *(["kernel"] if solver else [])}
        if "kernel" in taken:
            taken |= {kernel_class(self.task.kernel).bandwidth}
            own = f"family {self.task.family!r} and kernel {self.task.kernel!r}"
        else:
            own = f"family {self.task.family!r}"
        named = {name for row in FAMILIES.values() for name in row.takes}
        others = {*named, "temperature", "lengthscale"} - taken
        refuse_unused(self.task, others, f"for {own}", "task.")
        if solver:
            refuse_unused(self.model, ARCHITECTURE, f"for start {self.model.start!r}", "model.")
