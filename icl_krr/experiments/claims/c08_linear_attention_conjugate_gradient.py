"""C8: linear attention runs conjugate gradient with each vector in separate channels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, solvers, theory
from ...kernels import Linear
from ...sketches import nystrom
from ...tasks import LinearRegression, Task
from ...transformer import Transformer, run_with_cache
from ..shared.draws import draw_tasks
from ..shared.rows import Plot, Rows, tidy
from .claim import HOLDS, TASK, Claim, Verdict, compare, judge

KERNEL = Linear()


class Solver(NamedTuple):
    """A solver, its options and the number of blocks in one step according to the claim."""

    name: str
    options: dict[str, Any]
    blocks: int | None = None


SOLVERS = {
    "textbook": Solver("conjugate_gradient", {"form": "textbook"}, 5),
    "fused": Solver("conjugate_gradient", {"form": "fused"}, 3),
    "pipelined": Solver("conjugate_gradient", {"form": "pipelined"}, 2),
    "Chebyshev": Solver("chebyshev", {}, 1),
    "Jacobi": Solver("preconditioned_conjugate_gradient", {}),
    "Nystrom": Solver("preconditioned_conjugate_gradient", {}),
}


@dataclass(frozen=True)
class Config:
    draws: int = 50
    num_supports: int = 32
    num_features: int = 4
    ridge: float = 0.1
    steps: int = 6
    solvers: tuple[str, ...] = tuple(SOLVERS)


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    regression = LinearRegression(
        num_features=config.num_features, num_supports=config.num_supports, num_queries=8
    )
    tasks = draw_tasks(key, config.draws, regression)
    rows, checks = [], []
    for name in config.solvers:
        gaps, going, to_exact = measure(tasks, name, config)
        first = jax.tree.map(lambda leaf: leaf[0], tasks)
        blocks = build(name, config, first).blocks_per_step
        axes = {"solver": [name], "draw": range(config.draws), "step": range(config.steps + 1)}
        rows += tidy(axes, gap=gaps[None], blocks=blocks * np.arange(config.steps + 1))
        checks.append(
            compare(
                f"{name}: |slots - iterates| / |iterates| <= 1e-10",
                np.where(going, gaps, 0),
                1e-10,
                stated=True,
            )
        )
        stated = SOLVERS[name].blocks
        if stated:
            checks.append(
                compare(f"{name}: blocks in one step <= {stated}", blocks, stated, stated=True)
            )
        if SOLVERS[name].name == "conjugate_gradient":
            checks.append(
                compare(f"{name}: gap to f* after p + 1 steps <= 1e-8", to_exact, 1e-8, stated=True)
            )
    return rows, judge(*checks)


def build(name: str, config: Config, task: Task) -> Transformer:
    return getattr(constructions, SOLVERS[name].name)(
        KERNEL, num_features=config.num_features, **needs(name, config, task)
    )


def needs(name: str, config: Config, task: Task) -> dict[str, Any]:
    """Return the options that the construction and the solver share."""
    options = {"ridge": config.ridge, "steps": config.steps, **SOLVERS[name].options}
    if name == "Chebyshev":
        options["spectrum"] = theory.spectral_bounds(KERNEL, task, ridge=config.ridge)
    if name == "Nystrom":
        options["preconditioner"] = nystrom(KERNEL, task.x, ridge=config.ridge, rank=2)
    return options


@partial(jax.jit, static_argnames=("name", "config"))
def measure(tasks: Task, name: str, config: Config) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the gap between slots and iterates at every step, and two more arrays.

    The second array says at every step whether |r| is still > 1e-8 |y|. The third array is the gap
    to f* after p + 1 steps.
    """

    def once(task: Task) -> tuple[jax.Array, ...]:
        oracle = getattr(solvers, SOLVERS[name].name)(KERNEL, task, **needs(name, config, task))
        states = ("alpha", "r", "p")
        _, cache = run_with_cache(build(name, config, task), task, names=(*states, "prediction"))

        def gap(state: str) -> jax.Array:
            iterates = getattr(oracle, state)
            return jnp.max(jnp.abs(cache[state] - iterates), axis=1) / jnp.max(jnp.abs(iterates))

        size = jnp.linalg.norm(oracle.r, axis=1)
        exact = solvers.exact(KERNEL, task, ridge=config.ridge).prediction
        last = cache["prediction"][config.num_features + 1]
        return (
            jnp.max(jnp.stack([gap(state) for state in states]), axis=0),
            size > 1e-8 * size[0],
            jnp.linalg.norm(last - exact) / jnp.linalg.norm(exact),
        )

    return jax.lax.map(once, tasks)


CLAIM = Claim(
    title="linear attention runs conjugate gradient exactly",
    statement="Linear attention runs conjugate gradient exactly, with or without a "
    "preconditioner. The coefficients alpha, the residual r and the search direction p are stored "
    "in disjoint sets of channels (slots). One step of conjugate gradient takes 5 blocks in "
    "textbook form, 3 in fused form and 2 in pipelined form. One step of the Chebyshev iteration "
    "takes 1 block.",
    source="Cawley 2025, TODO",
    quote="TODO",
    expected=HOLDS,
    told=TASK,
    run=run,
    config=Config(),
    quick=Config(draws=5, solvers=("textbook", "fused", "pipelined")),
    plot=Plot(x="blocks", y="gap", by=("solver",)),
)
