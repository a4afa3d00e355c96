"""The iterates of a solver and what they predict, for a y of any size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ..kernels import Kernel
from ..numerics import matmul
from ..tasks import Task, system
from ..units import in_units, unit_of
from .accuracy import of_path
from .algebra import like
from .results import Trajectory


@partial(jax.jit, static_argnames=("iterates", "static", "spectrum", "stuck"))
def trajectory(
    kernel: Kernel,
    task: Task,
    ridge: Any,
    iterates: Callable,
    static: tuple,
    *others: Any,
    spectrum: bool = False,
    stuck: bool = False,
) -> Trajectory:
    """The result of a solver that predicts with k(x)^T alpha.

    `iterates` is a function of a module. It takes the static arguments, gram, ridge, y and the
    others, and returns all alpha, all r, and all p or None. `stuck` says that r keeps what K takes
    to 0.
    """
    parts = system(kernel, task)
    gram, cross, y = parts
    ridge, others = jax.tree.map(lambda value: jnp.asarray(value, y.dtype), (ridge, others))

    def run(y: Any, gram: Any, cross: Any, ridge: Any, *others: Any) -> Any:
        alpha, r, p = iterates(*static, gram, ridge, y, *others)
        return alpha, r, p, matmul(cross, alpha)

    path = in_units(unit_of(y, axis=0), run, 1, y, gram, cross, ridge, *others)
    status = of_path(parts, ridge, *path[:2], stuck, spectrum)
    alpha, r, p, prediction = jax.tree.map(partial(like, task.y), path)
    return Trajectory(alpha, r, p, prediction, status)


def after(start: Any, path: Any) -> Any:
    """All iterates, from the first and from those after every step."""
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, path)
