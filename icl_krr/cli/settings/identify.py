"""What `icl-krr identify` can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

import tyro

from .choices import Kernel
from .command import Command


@dataclass(frozen=True)
class Identify(Command):
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
    kernels: tuple[Kernel, ...] = get_args(Kernel)
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
