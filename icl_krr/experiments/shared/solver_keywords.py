"""The keyword arguments of solvers that depend on the task or the ridge.

Every function except `solver_keywords` computes the keyword argument with the name of the
function. The field `told` of a `Solver` lists the names that this solver needs.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ... import catalogue, theory
from ...catalogue import Solver
from ...kernels import Kernel
from ...sketches import Nystrom, nystrom
from ...tasks import Task


def solver_keywords(
    solver: Solver, kernel: Kernel, task: Task, ridge: Any, but: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the keyword arguments of a solver for a task, without `steps` and those in `but`."""
    found = dict(solver.options)
    for name in solver.told:
        if name in but:
            continue
        path = name if ":" in name else f"{__name__}:{name}"
        found[path.partition(":")[2]] = catalogue.load(path)(kernel, task, ridge)
    return found


def ridge(kernel: Kernel, task: Task, ridge: Any) -> Any:
    return ridge


def ridges(kernel: Kernel, task: Task, ridge: Any) -> Any:
    """The ridges of a family whose noise may be a quarter of the expected one, or four times it."""
    return jnp.asarray(ridge) * jnp.array([0.25, 1.0, 4.0])


def spectrum(kernel: Kernel, task: Task, ridge: Any) -> tuple[Any, Any]:
    return theory.spectral_bounds(kernel, task, ridge=ridge)


def preconditioner(kernel: Kernel, task: Task, ridge: Any) -> Nystrom:
    rank = max(1, min(task.num_supports, task.num_features) // 2)
    return nystrom(kernel, task.x, ridge=ridge, rank=rank)


def num_supports(kernel: Kernel, task: Task, ridge: Any) -> int:
    return task.num_supports


def step_size(kernel: Kernel, task: Task, ridge: Any) -> Any:
    return 1 / spectrum(kernel, task, ridge)[1]


def curvature(kernel: Kernel, task: Task, ridge: Any) -> Any:
    """A curvature with which GD++ flattens the spectrum step by step."""
    return 0.3 / spectrum(kernel, task, ridge)[1]
