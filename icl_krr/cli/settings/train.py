"""The settings of `icl-krr train`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from ...experiments.shared.recipe import ModelRecipe, TaskRecipe
from ...training.settings import Training
from .command import Command


@dataclass(frozen=True)
class Train(Command):
    """Train a transformer on new random tasks in every step. RECIPE sets the defaults of all other
    settings. If training is interrupted, the same command continues from the last checkpoint and
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
    """AdamW with warm-up and cosine decay of the learning rate, on the squared error."""
    json: bool = False
    """Print JSON instead of a table."""
    out: Path | None = None
    """Folder for the weights, the checkpoint, metrics.csv, recipe.json, meta.json and the figure.
    If None, icl-krr-train-RECIPE, or RECIPE itself if RECIPE is the folder of a run."""

    @property
    def first_seed(self) -> int:
        return self.training.seed
