"""C15: p + c channels are enough to run a solver exactly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, sketches, solvers
from ...kernels import Linear
from ...tasks import LinearRegression, Task
from ...transformer import Transformer, run_with_cache
from ..shared.draws import draw_tasks, draws
from ..shared.rows import Plot, Rows, tidy
from .claim import HOLDS, TASK, Claim, Verdict, at_least, compare, judge

LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "CG textbook": ("conjugate_gradient", {}),
    "CG fused": ("conjugate_gradient", {"form": "fused"}),
    "CG pipelined": ("conjugate_gradient", {"form": "pipelined"}),
    "PCG Jacobi": ("preconditioned_conjugate_gradient", {}),
    "Chebyshev": ("chebyshev", {"spectrum": (1.0, 60.0)}),
    "gradient descent": ("gradient_descent", {"step_size": 0.02}),
}


@dataclass(frozen=True)
class Config:
    draws: int = 50
    num_features: int = 8
    num_supports: int = 24
    steps: int = 6
    ridge: float = 1.0
    layouts: tuple[str, ...] = tuple(LAYOUTS)


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    p, lost = config.num_features, (0, 1)
    process = LinearRegression(num_features=p, num_supports=config.num_supports)
    tasks = draw_tasks(key, config.draws, process)
    rows, gaps = [], []
    for name in config.layouts:
        gaps.append(np.asarray(measure(draws(key, config.draws), tasks, name, config)))
        overhead = build(name, config, jnp.eye(p)).overhead
        rows += tidy(
            {"solver": [name], "draw": range(config.draws), "p - m": lost},
            gap=gaps[-1][None],
            c=overhead,
        )
    full, short = np.moveaxis(np.stack(gaps, axis=1), 2, 0)
    return rows, judge(
        compare(
            "p feature channels, any basis: |slots - iterates| / |iterates| <= 1e-9",
            full,
            1e-9,
            stated=True,
        ),
        at_least("p - 1 feature channels: |slots - iterates| / |iterates| >= 1e-3", short, 1e-3),
    )


def build(name: str, config: Config, P: jax.Array) -> Transformer:
    solver, options = LAYOUTS[name]
    return getattr(constructions, solver)(
        Linear(),
        num_features=config.num_features,
        ridge=config.ridge,
        steps=config.steps,
        sketch=P,
        **options,
    )


@partial(jax.jit, static_argnames=("name", "config"))
def measure(keys: jax.Array, tasks: Task, name: str, config: Config) -> jax.Array:
    """Return the gaps for p and p - 1 feature channels; p - 1 means that one channel is 0."""
    solver, options = LAYOUTS[name]

    def gaps(turn: jax.Array, task: Task) -> jax.Array:
        P = sketches.orthonormal(turn, config.num_features, config.num_features)
        oracle = getattr(solvers, solver)(
            Linear(), task, ridge=config.ridge, steps=config.steps, **options
        ).alpha

        def gap(P: jax.Array) -> jax.Array:
            _, cache = run_with_cache(build(name, config, P), task, names=("alpha",))
            return jnp.max(jnp.abs(cache["alpha"] - oracle)) / jnp.max(jnp.abs(oracle))

        return jax.vmap(gap)(jnp.stack([P, P.at[:, -1].set(0)]))

    return jax.lax.map(lambda draw: gaps(*draw), (keys, tasks))


CLAIM = Claim(
    title="p + c channels run conjugate gradient exactly",
    statement="Let p be the number of features and c a constant. A transformer with at least "
    "p + c channels runs any number of steps of conjugate gradient exactly.",
    truth="c is the number of channels that the layout of the construction adds to the p "
    "feature channels. With only p - 1 feature channels the steps are not exact.",
    corrected="ours",
    source="Cawley 2025, TODO",
    quote="TODO",
    expected=HOLDS,
    told=TASK,
    run=run,
    config=Config(),
    quick=Config(draws=5, layouts=("CG textbook", "Chebyshev")),
    plot=Plot(x="p - m", y="gap", by=("solver",)),
)
