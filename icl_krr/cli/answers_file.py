"""`icl-krr identify FILE.npz`: tasks for a model of any library, and the solver that it runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from ..experiments.identify.files import answered, tasks_file
from ..experiments.identify.trained_model import distance_rows, distance_table
from ..experiments.shared.families import family
from ..experiments.shared.recipe import Recipe
from ..files import to_csv, to_markdown
from ..plots import identification_figure, images
from ..probes import identify_arrays
from ..probes.naming.distances import SPACES
from . import output
from .identification_tables import identification_record, print_identification
from .settings.identify import Identify


def write_tasks(settings: Identify) -> int:
    drawn: Any = family(Recipe.read(str(settings.tasks_of)).task)
    drawn = dataclasses.replace(drawn, num_queries=settings.num_queries)
    with jax.enable_x64(True):
        content = tasks_file(drawn, 2 * settings.tasks, settings.seed)
    path = Path(settings.model)
    if path.exists():
        raise ValueError(f"{path} must be a new file, but it exists; remove it or use another name")
    output.write(path.parent, {path.name: content})
    return 0


def identify_file(settings: Identify, folder: Path) -> int:
    """Identify the model whose answers and derivatives are in a NumPy file."""
    with jax.enable_x64(True):
        held = answered(Path(settings.model))
        output.prepare(folder)
        with Console(stderr=True).status("") as status:
            found = identify_arrays(
                held.tasks,
                held.answers,
                held.hats,
                other_hats=held.other_hats,
                kernels=settings.kernels,
                steps=settings.steps,
                per_layer=settings.per_layer,
                seed=settings.seed,
                progress=lambda words: status.update(f"{settings.model}: {words}"),
            )
    meta = {**output.surroundings(settings), "dtype": "float64"}
    record = {"meta": meta, **identification_record(found)}
    title = f"{settings.model}, seed {settings.seed}, float64"
    tables = [distance_table(found, space) for space in SPACES]
    files = {
        "identify.json": (output.to_json(record) + "\n").encode(),
        "heatmaps.csv": to_csv(distance_rows(found)),
        "identify.md": "\n".join(map(to_markdown, tables)).encode(),
        **images("heatmaps", identification_figure(found, title)),
    }
    output.write(folder, files)
    if settings.json:
        print(output.to_json(record))
    else:
        print_identification(found)
        print(found.verdict)
    return 0
