"""`icl-krr identify FILE.npz`: tasks for a model of any library, and the solver that it runs."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ..experiments.shared.arrays import read_arrays, task_of
from ..experiments.shared.draws import draw_tasks
from ..experiments.shared.recipe import Recipe
from ..experiments.shared.runs import family
from ..probes.naming.answers import with_other_outputs
from ..tasks import Task
from . import output

GIVEN = ("x", "y", "x_query", "mask")
WANTED = ("answers", "hats")
OPTIONAL = "other_hats"


class Arrays(NamedTuple):
    """The arguments of `identify_arrays`."""

    tasks: Task
    answers: np.ndarray
    hats: np.ndarray
    other_hats: np.ndarray | None


def tasks_file(family: Any, count: int, seed: int) -> bytes:
    """A file with x, y, x_query and y_query of `count` tasks, and other outputs y_other."""
    tasks = draw_tasks(jax.random.key(seed), count, family)
    names = (*GIVEN, "y_query")
    arrays: dict[str, Any] = {n: np.asarray(getattr(tasks, n)) for n in names if has(tasks, n)}
    stream = io.BytesIO()
    np.savez(stream, **arrays, y_other=np.asarray(with_other_outputs(tasks).y))
    return stream.getvalue()


def has(tasks: Task, name: str) -> bool:
    return getattr(tasks, name) is not None


def answered(path: Path) -> Arrays:
    """Read a file of tasks to which answers and hats were added.

    Raises:
        ValueError: the file is not a NumPy file, or an array is missing or does not fit.
        OSError: the file cannot be read.
    """
    if not path.exists():
        raise ValueError(
            f"{path} does not exist; write tasks to it with --tasks-of RUN, then add answers"
        )
    mend = (
        "; add the predictions of every layer as answers [b, layers + 1, q], and their derivatives "
        "in y as hats [b, layers + 1, q, n]"
    )
    held = read_arrays(path, (*GIVEN[:3], *WANTED), (*GIVEN[3:], OPTIONAL), mend)
    tasks = task_of(path, {name: held[name] for name in GIVEN if name in held})
    return Arrays(tasks, held["answers"], held["hats"], held.get(OPTIONAL))


def write_tasks(path: Path, recipe: str, *, num_queries: int, count: int, seed: int) -> int:
    """Write tasks of the family of a recipe to a new file."""
    drawn: Any = family(Recipe.read(recipe).task)
    drawn = replace(drawn, num_queries=num_queries)
    with jax.enable_x64(True):
        content = tasks_file(drawn, count, seed)
    if path.exists():
        raise ValueError(f"{path} must be a new file, but it exists; remove it or use another name")
    output.write(path.parent, {path.name: content})
    return 0
