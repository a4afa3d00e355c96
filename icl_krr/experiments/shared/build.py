"""Build a solver by name: its construction for a task, and its oracle."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import theory
from ...catalogue import SOLVERS, Solver, find, load
from ...constructions import Softmax
from ...kernels import Kernel
from ...tasks import Task
from ...transformer import Transformer
from .solver_keywords import solver_keywords


def build(
    solver: str, kernel: Kernel, task: Task, ridge: float, steps: int
) -> tuple[Transformer, np.ndarray]:
    """The construction, and the oracle's predictions after every step."""
    row = find("solver", SOLVERS, solver)
    needs = keywords(row, kernel, task, ridge, steps)
    model = with_keywords(row, kernel, task, needs)
    path = np.asarray(load(row.oracle)(kernel, task, **needs).prediction)
    return model, path if row.iterates else np.stack([0 * path, path])


def build_model(
    solver: str, kernel: Kernel, task: Task, ridge: float | None, steps: int | None
) -> Transformer:
    """The construction alone."""
    row = find("solver", SOLVERS, solver)
    return with_keywords(row, kernel, task, keywords(row, kernel, task, ridge, steps))


def keywords(row: Solver, kernel: Kernel, task: Task, ridge: Any, steps: Any) -> dict[str, Any]:
    """What the construction and the oracle must be told; {} for a solver without steps."""
    return {"steps": steps, **solver_keywords(row, kernel, task, ridge)} if row.iterates else {}


def with_keywords(row: Solver, kernel: Kernel, task: Task, needs: dict[str, Any]) -> Transformer:
    return construct(row.name, kernel, task, **needs, **(attention(kernel, task) if needs else {}))


def construct(solver: str, kernel: Kernel, task: Task, **needs: Any) -> Transformer:
    """The construction for tasks with as many features and outputs as this task."""
    sizes = {"num_features": task.num_features, "num_outputs": task.num_outputs}
    return load(find("solver", SOLVERS, solver).construction)(kernel, **sizes, **needs)


def attention(kernel: Kernel, task: Task) -> dict[str, Any]:
    """Softmax attention with a sink chosen from the task; {} if the kernel has a feature map."""
    if kernel.featured:
        return {}
    return {"attention": Softmax(log_sink=theory.log_sink(kernel, task))}
