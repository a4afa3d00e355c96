"""The settings of `icl-krr identify`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, get_args

import tyro

from .choices import Battery, Kernel
from .command import Command, Folder, refuse_unused
from .devices import ONE_DEVICE, OnDevices

CONSTRUCTIONS = "constructions"
"""Value of MODEL for the confusion matrix."""


@dataclass(frozen=True)
class Identify(Command):
    """Identify the solver that MODEL runs. The command fits every candidate solver to the
    predictions of the model after each layer, then compares model and candidates on new tasks of
    the same family. If MODEL is the word "constructions", the command identifies constructed
    models, whose solver is known, and prints the confusion matrix."""

    model: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="MODEL")]]
    """A trained model of the package (such as gp-encoder), the folder of an icl-krr train run, or
    "constructions" (see above)."""
    tasks: int = 64
    """Number of tasks that the candidates are fitted to, >= 2.
    Distances are measured on the same number of new tasks."""
    probe_tasks: int = 512
    """Number of tasks that the linear probes of the layers are fitted to, >= 2."""
    num_queries: int = 8
    """Number of queries per task."""
    kernels: tuple[Kernel, ...] = get_args(Kernel)
    """Kernels to try for each candidate."""
    steps: int | None = None
    """Maximum number of solver steps of a candidate. If None, 32 steps per layer of the model."""
    per_layer: bool = False
    """Refine the parameters of each candidate separately for each layer."""
    battery: Battery | None = None
    """Score probes and candidates on tasks outside of the training distribution, such as
    more-supports. If None, on tasks of the training family."""
    positions: tuple[int, ...] = ()
    """Numbers of supports after which the model is identified, besides all supports of its tasks.
    At a support, a decoder answers as it answers a query after the supports before it."""
    seeds: int = 3
    """Number of seeds of the confusion matrix. The first seed is --seed."""
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

    def refuse_options_without_effect(self) -> None:
        of_a_model = ("tasks", "probe_tasks", "num_queries", "kernels", "steps", "per_layer")
        of_a_model += ("battery", "positions")
        if self.model == CONSTRUCTIONS:
            refuse_unused(self, of_a_model, f"for {CONSTRUCTIONS}")
        else:
            refuse_unused(self, ["seeds", "quick"], "for a trained model")
