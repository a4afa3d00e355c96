"""Build a solver by name: its construction for a task, and its oracle."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import theory
from ...catalogue import SOLVERS, find, load
from ...constructions import Softmax
from ...kernels import Kernel
from ...tasks import Task
from ...transformer import Transformer
from .told import told


def build(
    solver: str, kernel: Kernel, task: Task, ridge: float, steps: int
) -> tuple[Transformer, np.ndarray]:
    """The construction, and the oracle's predictions after every step."""
    row = find("solver", SOLVERS, solver)
    if not row.iterates:
        smooth = np.asarray(load(row.oracle)(kernel, task).prediction)
        return construct(solver, kernel, task), np.stack([0 * smooth, smooth])
    needs: dict[str, Any] = {"steps": steps, **told(row, kernel, task, ridge)}
    model = construct(solver, kernel, task, **needs, **attention(kernel, task))
    return model, np.asarray(load(row.oracle)(kernel, task, **needs).prediction)


def construct(solver: str, kernel: Kernel, task: Task, **needs: Any) -> Transformer:
    """The construction for tasks with as many features and outputs as this task."""
    sizes = {"num_features": task.num_features, "num_outputs": task.num_outputs}
    return load(find("solver", SOLVERS, solver).construction)(kernel, **sizes, **needs)


def attention(kernel: Kernel, task: Task) -> dict[str, Any]:
    """Softmax attention with a sink chosen from the task; {} if the kernel has a feature map."""
    if kernel.featured:
        return {}
    return {"attention": Softmax(log_sink=theory.log_sink(kernel, task))}
