"""The settings of `icl-krr identify`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from ...experiments.identify.settings import IdentifyOptions
from ..options import ONE_DEVICE, Command, Folder, OnDevices, refuse_unused

CONSTRUCTIONS = "constructions"
"""Value of MODEL for the confusion matrix."""


@dataclass(frozen=True)
class Source(Command):
    """What is identified."""

    model: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="MODEL")]]
    """A trained model of the package (such as gp-encoder), the folder of an icl-krr train run, a
    NumPy file MODEL.npz, or "constructions" (see above)."""
    tasks_of: str | None = None
    """Do not identify, but write tasks to MODEL.npz, in arrays x, y and x_query. This is a trained
    model, a run's folder or the recipe.json whose family the tasks have. To identify your model,
    add its predictions as the array answers [b, layers + 1, q] and their derivatives in y as hats
    [b, layers + 1, q, n]. The derivatives at the outputs y_other, as other_hats, are optional."""

    @property
    def is_file(self) -> bool:
        return self.model.endswith(".npz")


@dataclass(frozen=True)
class Identify(IdentifyOptions, Source):
    """Identify the solver that MODEL runs. The command fits every candidate solver to the
    predictions of the model after each layer, then compares model and candidates on new tasks of
    the same family. If MODEL is a file MODEL.npz, it holds the answers of a model of any library,
    and --tasks-of writes the tasks to it that need answers. If MODEL is the word "constructions",
    the command identifies constructed models, whose solver is known, and prints the confusion
    matrix."""

    positions: tuple[int, ...] = ()
    """Numbers of supports after which the model is identified, besides all supports of its tasks.
    At a support, a decoder answers as it answers a query after the supports before it."""
    seeds: int | None = None
    """Number of seeds, each with its own tasks and probes. The verdict holds for all of them. The
    first seed is --seed. If None, 2 for a model and 3 for the confusion matrix."""
    quick: bool = False
    """Use half the number of tasks for the confusion matrix."""
    seed: int = 0
    """Seed of every random choice."""
    json: bool = False
    """Print JSON instead of tables."""
    out: Folder | None = None
    """Folder for the tables (JSON, CSV, Markdown) and the figures (PNG, SVG).
    If None, icl-krr-identify-MODEL."""
    devices: OnDevices = ONE_DEVICE

    @property
    def last_seed(self) -> int:
        return self.first_seed + self.seed_count - 1

    @property
    def seed_count(self) -> int:
        return self.seeds or (3 if self.model == CONSTRUCTIONS else 2)

    def refuse_options_without_effect(self) -> None:
        of_arrays = ["kernels", "steps", "per_layer"]
        of_tasks = ["tasks", "num_queries"]
        of_run = ["probe_tasks", "battery", "positions"]
        if self.tasks_of is not None:
            if not self.is_file:
                raise ValueError(f"MODEL must be a file .npz with --tasks-of, got {self.model!r}")
            unused = [*of_arrays, *of_run, "seeds", "quick", "out", "json"]
            refuse_unused(self, unused, "with --tasks-of")
        elif self.is_file:
            refuse_unused(self, [*of_tasks, *of_run, "seeds", "quick"], "for a file")
        elif self.model == CONSTRUCTIONS:
            refuse_unused(self, [*of_tasks, *of_arrays, *of_run], f"for {CONSTRUCTIONS}")
        else:
            refuse_unused(self, ["quick"], "for a trained model")
