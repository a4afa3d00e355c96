"""What `icl-krr train` can be told."""

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
    """Train a model on tasks that are drawn in every step. RECIPE is a reference run that ships, a
    run's folder or a JSON file, and gives the defaults of all other settings. A run that was
    interrupted goes on where it was, and ends with the same weights."""

    recipe: tyro.conf.Positional[Annotated[str | None, tyro.conf.arg(metavar="RECIPE")]] = None
    """Such as gp-encoder; built-in defaults if absent."""
    task: TaskRecipe = field(default_factory=TaskRecipe)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    training: Training = field(default_factory=Training)
    json: bool = False
    """Print JSON for programs in place of a table."""
    out: Path | None = None
    """Folder for checkpoint.msgpack, model.msgpack, metrics.csv, recipe.json, meta.json and
    training.png and .svg; by default icl-krr-train-RECIPE."""

    @property
    def first_seed(self) -> int:
        return self.training.seed
