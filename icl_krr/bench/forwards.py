"""The forward pass of a construction against the bare jitted solver that it implements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax

from .. import constructions, solvers
from ..kernels import Kernel
from ..tasks import Task, map_tasks
from ..transformer import Transformer, predict_batch
from .contest import Contest, scratch
from .draws import draw, exponential, gaussian, linear

CASES: list[tuple[str, Callable[..., Any], str, dict[str, Any]]] = [
    ("B, CG", linear, "conjugate_gradient", {}),
    ("B, Chebyshev", linear, "chebyshev", {"spectrum": (0.1, 100.0)}),
    ("A, CG", exponential, "conjugate_gradient", {}),
    ("A, Chebyshev", exponential, "chebyshev", {"spectrum": (0.7, 300.0)}),
    ("Gaussian, Richardson", gaussian, "richardson", {}),
]


def forwards(quick: bool, seed: int) -> Iterator[Contest]:
    """16 steps of the solvers in `CASES`, against the bare solver in chunks and by vmap.

    The tasks have n = 64, and p = 8 for the linear kernel (Route B), else p = 2.
    """
    for name, route, solver, options in CASES[:1] if quick else CASES:
        for batch in (4,) if quick else (1, 256, 4096):
            yield against_bare("forward", name, route(), solver, options, batch, 16, seed)


def scaling(quick: bool, seed: int) -> Iterator[Contest]:
    """Conjugate gradient by linear and by softmax attention, as n, tasks, depth or p grows.

    The ridge is n / 10, so that conjugate gradient converges. Before convergence, float32 rounding
    changes its iterates by as much as their gap to the solution, and programs disagree.
    """
    start = {"n": 64, "tasks": 64, "depth": 16, "p": 4}
    grids = {
        "n": (16, 32, 64, 128, 256, 512, 1024),
        "tasks": (1, 4, 16, 64, 256, 1024),
        "depth": (4, 8, 16, 32, 64, 128),
        "p": (2, 4, 8, 16, 32, 64),
    }
    for label, route in (("B", linear), ("A", exponential)):
        for axis, values in grids.items():
            for value in values[:1] if quick else values:
                at = {**start, axis: value}
                kernel, config, _ = route(n=at["n"], p=at["p"])
                yield against_bare(
                    "scaling",
                    f"{label}, {axis} = {value}",
                    (kernel, config, at["n"] / 10),
                    "conjugate_gradient",
                    {},
                    at["tasks"],
                    at["depth"],
                    seed,
                )


def against_bare(
    suite: str,
    name: str,
    route: tuple[Kernel, Any, float],
    solver: str,
    options: dict[str, Any],
    batch: int,
    steps: int,
    seed: int,
) -> Contest:
    kernel, config, ridge = route
    options = {"ridge": ridge, "steps": steps, **options}
    model: Transformer = getattr(constructions, solver)(
        kernel, num_features=config.num_features, **options
    )
    tasks = draw(config, batch, seed)

    def bare(task: Task) -> jax.Array:
        return getattr(solvers, solver)(kernel, task, **options).prediction[-1]

    chunks, whole = jax.jit(lambda t: map_tasks(bare, t)), jax.jit(jax.vmap(bare))
    forward = jax.jit(predict_batch)
    return Contest(
        suite,
        f"{name}, {batch} tasks" if suite == "forward" else name,
        lambda: forward(model, tasks),
        {"bare solver, chunks": lambda: chunks(tasks), "bare solver, vmap": lambda: whole(tasks)},
        target=3.0,
        tolerance=0.05,
        scratch=lambda: scratch(forward, model, tasks),
        size={
            "n": config.num_supports,
            "tasks": batch,
            "depth": steps,
            "p": config.num_features,
        },
    )
