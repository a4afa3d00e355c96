"""The task family that a recipe describes."""

from __future__ import annotations

from typing import Any

from ...catalogue import FAMILIES, find, load, make_kernel
from ...tasks import GaussianProcess, Rows, Sampler, diabetes, read_table
from .recipe import TaskRecipe


def family(task: TaskRecipe) -> Sampler:
    """The sampler that a recipe describes."""
    row = find("family", FAMILIES, task.family)
    if row.name != "table" and task.table is not None:
        raise ValueError(f"table must be None for family {row.name!r}, got {str(task.table)!r}")
    shared = ("num_supports", "num_queries", "num_features", "inputs", "noise")
    given: dict[str, Any] = {name: getattr(task, name) for name in shared}
    if not row.fields:
        return load(row.made_by)(task, **given)
    own = {to: getattr(task, name) for name, to in row.fields.items()}
    return load(row.made_by)(**own, **given)


def gaussian_process(task: TaskRecipe, **given: Any) -> GaussianProcess:
    kernel = make_kernel(task.kernel, vars(task))
    return GaussianProcess(kernel, spread=task.spread, noise_spread=task.noise_spread, **given)


def table(
    task: TaskRecipe, num_supports: int, num_queries: int, num_features: int, **_: Any
) -> Rows:
    """Tasks whose rows are drawn from a table; by default from the diabetes table."""
    if (task.table is None) != (task.target is None):
        raise ValueError(
            f"table and target must be given together, got table {task.table} "
            f"and target {task.target!r}"
        )
    rows = diabetes() if task.table is None else read_table(task.table, task.target or "")
    if num_features != len(rows.features):
        raise ValueError(
            f"num_features must be {len(rows.features)}, as in the table, got {num_features}"
        )
    return Rows.of(rows, num_supports=num_supports, num_queries=num_queries)
