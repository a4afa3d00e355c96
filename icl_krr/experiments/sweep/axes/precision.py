"""Axis "precision": the dtype of the task; all models have the same weights."""

from __future__ import annotations

from typing import Any

import jax

from .... import solvers
from ....tasks import Task
from ...shared.rows import Plot
from ..config import SweepConfig
from ..setting import Models, Setting, kernel_of, solve


def build(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    kernel = kernel_of(config)
    exact = solvers.exact(kernel, task, ridge=config.ridge).prediction
    model = solve(line, kernel, task, config.ridge, config)
    cast = jax.tree.map(lambda field: field.astype(value), task.replace(y_query=None))
    return Setting(model, cast.replace(y_query=task.y_query), exact, smoother=kernel)


AXIS = Models(build, Plot("step", "gap", ("line", "value")), traced=False)
