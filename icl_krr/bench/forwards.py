"""The forward pass of a construction against the solver that it implements, as plain code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax

from ..catalogue import SOLVERS, load
from ..kernels import Kernel
from ..transformer import Transformer, predict_batch
from .contest import Contest, scratch
from .draws import draw, exponential, gaussian, linear
from .plain import plain_predictions

WIDE, NARROW = {"spectrum": (0.1, 250.0)}, {"spectrum": (0.7, 300.0)}

CASES: list[tuple[str, Callable[..., Any], str, dict[str, Any], float]] = [
    ("linear, CG", linear, "conjugate_gradient", {}, 2.0),
    ("linear, fused CG", linear, "fused_conjugate_gradient", {}, 2.0),
    ("linear, pipelined CG", linear, "pipelined_conjugate_gradient", {}, 2.0),
    # with a smaller ridge, Jacobi's preconditioner makes convergence too slow to compare results
    ("linear, Jacobi CG", linear, "jacobi_conjugate_gradient", {"ridge": 6.4}, 2.0),
    ("linear, Chebyshev", linear, "chebyshev", WIDE, 1.5),
    ("linear, heavy ball", linear, "heavy_ball", WIDE, 2.0),
    ("linear, gradient descent", linear, "gradient_descent", WIDE, 2.0),
    ("linear, Newton-Schulz", linear, "newton_schulz", WIDE, 2.0),
    ("softmax, CG", exponential, "conjugate_gradient", {}, 2.0),
    ("softmax, fused CG", exponential, "fused_conjugate_gradient", {}, 2.0),
    ("softmax, pipelined CG", exponential, "pipelined_conjugate_gradient", {}, 2.0),
    ("softmax, Jacobi CG", exponential, "jacobi_conjugate_gradient", {}, 2.0),
    ("softmax, Chebyshev", exponential, "chebyshev", NARROW, 1.5),
    ("Gaussian, Richardson", gaussian, "richardson", {}, 2.0),
]
"""Name, kernel and tasks, row of the catalogue, options, goal."""


def forwards(quick: bool, seed: int) -> Iterator[Contest]:
    """16 steps of the solvers in `CASES`, against plain code in chunks and by vmap.

    The tasks have n = 64, and p = 8 for the linear kernel, else p = 2.
    """
    for name, route, solver, options, target in CASES[:1] if quick else CASES:
        for batch in (4,) if quick else (1, 256, 4096):
            title = f"{name}, {batch} tasks"
            yield against_plain("forward", title, route(), solver, options, batch, 16, seed, target)


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
    for label, route in (("linear", linear), ("softmax", exponential)):
        for axis, values in [*grids.items()][: 1 if quick else None]:
            for value in values[:1] if quick else values:
                at = {**start, axis: value}
                yield against_plain(
                    "scaling",
                    f"{label}, {axis} = {value}",
                    route(n=at["n"], p=at["p"]),
                    "conjugate_gradient",
                    {"ridge": at["n"] / 10},
                    at["tasks"],
                    at["depth"],
                    seed,
                )


def against_plain(
    suite: str,
    name: str,
    route: tuple[Kernel, Any, float],
    solver: str,
    options: dict[str, Any],
    batch: int,
    steps: int,
    seed: int,
    target: float = 2.0,
) -> Contest:
    kernel, config, ridge = route
    options = {"ridge": ridge, "steps": steps, **options}
    row = SOLVERS[solver]
    model: Transformer = load(row.construction)(
        kernel, num_features=config.num_features, **row.options, **options
    )
    tasks = draw(config, batch, seed)
    forward = jax.jit(predict_batch)
    return Contest(
        suite,
        name,
        lambda: forward(model, tasks),
        plain_predictions(kernel, tasks, solver, options),
        target=target,
        # rounding changes inner products, and these change all later steps
        tolerance=0.05 if row.sums else 1e-3,
        scratch=lambda: scratch(forward, model, tasks),
        size={"n": config.num_supports, "tasks": batch, "depth": steps, "p": config.num_features},
    )
