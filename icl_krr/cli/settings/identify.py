"""The settings of `icl-krr identify`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, get_args

import tyro

from ...catalogue.choices import Battery, Kernel
from ..options import ONE_DEVICE, Command, Folder, OnDevices, refuse_unused

CONSTRUCTIONS = "constructions"
"""Value of MODEL for the confusion matrix."""


@dataclass(frozen=True)
class Identify(Command):
    """Identify the solver that MODEL runs. The command fits every candidate solver to the
    predictions of the model after each layer, then compares model and candidates on new tasks of
    the same family. If MODEL is a file MODEL.npz, it holds the answers of a model of any library,
    and --tasks-of writes the tasks to it that need answers. If MODEL is the word "constructions",
    the command identifies constructed models, whose solver is known, and prints the confusion
    matrix."""

    model: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="MODEL")]]
    """A trained model of the package (such as gp-encoder), the folder of an icl-krr train run, a
    NumPy file MODEL.npz, or "constructions" (see above)."""
    tasks_of: str | None = None
    """Do not identify, but write tasks to MODEL.npz, in arrays x, y and x_query. This is a trained
    model, a run's folder or the recipe.json whose family the tasks have. To identify your model,
    add its predictions as the array answers [b, layers + 1, q] and their derivatives in y as hats
    [b, layers + 1, q, n]. The derivatives at the outputs y_other, as other_hats, are optional."""
    tasks: int = 64
    """Number of tasks that the candidates are fitted to, >= 2. Distances are measured on the same
    number of new tasks. With --tasks-of, the file has tasks for both."""
    probe_tasks: int = 512
    """Number of tasks that the linear probes of the layers are fitted to, >= 2."""
    num_queries: int = 8
    """Number of queries per task."""
    kernels: tuple[Kernel, ...] = get_args(Kernel)
    """Kernels to try for each candidate."""
    steps: int | None = None
    """Number of solver steps of a candidate, or four times as many where these are too few. If
    None, 8 per layer of a trained model and 4 per layer of a file."""
    per_layer: bool = False
    """Refine the parameters of each candidate separately for each layer."""
    battery: Battery | None = None
    """Score probes and candidates on tasks outside of the training distribution, such as
    more-supports. If None, on tasks of the training family."""
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

    @property
    def is_file(self) -> bool:
        return self.model.endswith(".npz")

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
