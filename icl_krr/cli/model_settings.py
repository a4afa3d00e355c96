"""What the commands that work on one model can be told; no JAX here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ..experiments.shared.recipe import ModelRecipe, TaskRecipe
from ..training.settings import Training
from .settings import Bench, Demo, Predict, Report, Settings, Sweep, Verify


@dataclass(frozen=True)
class Train:
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
    def seed(self) -> int:
        return self.training.seed


@dataclass(frozen=True)
class Identify:
    """Which solver does MODEL run? Every candidate is fitted to what the model answers after each
    layer, on tasks of its own family, and compared on others. MODEL is a reference run that
    ships, the folder of a run of icl-krr train, or the word constructions: that identifies
    models whose solver is known, and prints the confusion matrix."""

    model: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="MODEL")]]
    """Such as gp-encoder, a folder, or constructions."""
    tasks: int = 64
    """Tasks that candidates are fitted to, and as many to score them."""
    probe_tasks: int = 512
    """Tasks that the linear probes of a trained model's layers are fitted to."""
    num_queries: int = 8
    """Queries of a task."""
    kernels: tuple[Literal["linear", "exponential", "gaussian"], ...] = (
        "linear",
        "exponential",
        "gaussian",
    )
    """Kernels that candidates may have."""
    steps: int | None = None
    """Steps that a candidate may have taken after the last layer; 32 for each layer if absent."""
    per_layer: bool = False
    """Refine the parameters for each layer by itself."""
    seeds: int = 3
    """Seeds of the confusion matrix."""
    quick: bool = False
    """Half the tasks for the confusion matrix."""
    seed: int = 0
    """Seed of every random choice."""
    json: bool = False
    """Print JSON for programs in place of tables."""
    out: Path | None = None
    """Folder for identify.json and .md, layers.csv, heatmaps.csv, .png and .svg, filter.png and
    .svg, or for confusion.json, .csv, .md, .png and .svg; by default icl-krr-identify-MODEL."""


@dataclass(frozen=True)
class Ablate:
    """What is every part of MODEL needed for? Each head, slot, unit or role is taken out by
    itself; for constructions the change is compared with what the algorithm without that line
    computes. MODEL is a solver, whose construction it is, a reference run or a run's folder."""

    model: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="MODEL")]]
    """Such as conjugate-gradient, chebyshev, richardson, gp-encoder or a folder."""
    kernel: Literal["linear", "exponential", "gaussian"] | None = None
    """Kernel of a construction; by default the one that its expectations are known for."""
    steps: int | None = None
    """Solver steps of a construction; 12 if absent."""
    kinds: tuple[Literal["head", "unit", "slot", "role"], ...] | None = None
    """What to take out; by default heads and slots, of runs heads and units."""
    each_step: bool = False
    """Take a construction's parts out of one step at a time; runs have it so in any case."""
    replace: Literal["zero", "mean"] = "zero"
    """What takes its place: zero, or the mean over tasks and over tokens of the same role."""
    swap: str | None = None
    """Solver whose steps replace the blocks of a run as well, one at a time; not of a decoder."""
    tasks: int = 64
    """Tasks to predict."""
    num_queries: int = 8
    """Queries of a task."""
    seed: int = 0
    """Seed of every random choice."""
    json: bool = False
    """Print JSON for programs in place of a table."""
    out: Path | None = None
    """Folder for ablate.csv, ablate.md, meta.json, ablate.png and .svg; by default
    icl-krr-ablate-MODEL."""


@dataclass(frozen=True)
class Fit(Settings):
    """Fit the construction's hyperparameters by gradient through the forward. DATA is a table, of
    which --target is to be predicted, or a run of icl-krr train, shipped or in a folder, whose
    predictions are. Prints what moved, and errors beside the baselines on what is held apart."""

    data: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="DATA")]] = tyro.MISSING
    """Such as table.csv, gp-encoder, or a folder."""
    target: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    """Column of the table to predict."""
    objective: Literal["held-out", "marginal-likelihood"] = "held-out"
    """Squared error at queries: each quarter of a table's supports from the others, or the tasks
    of a run; or the likelihood of the supports' outputs."""
    method: Literal["adam", "lbfgs"] = "adam"
    """Optimiser."""
    iterations: int = 100
    """Its iterations at most."""
    fit_spectrum: bool = False
    """Fit the bounds on the eigenvalues too, and with them step sizes and momenta, which otherwise
    follow from the tasks."""
    supports: int | None = None
    """Rows of the table used as supports; by default three quarters of them, 512 at most."""
    tasks: int = 64
    """Tasks of a run that are fitted to, and as many held apart."""
    out: Path | None = None
    """Folder for fit.csv, moved.csv, meta.json, fit.png and .svg; no files if absent."""


Chosen = Demo | Predict | Fit | Sweep | Train | Identify | Ablate | Verify | Report | Bench
"""The settings of any command."""
