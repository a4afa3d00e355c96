"""C15: p + c channels are enough to run a solver exactly."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import Kernel, Linear, Transformer, constructions, run_with_cache, sketches, solvers
from ...tasks import LinearRegression, Task
from .claim import FAMILY, HOLDS, Claim, Unnamed, Verdict, at_least, at_most, judge, named
from .measuring import Plot, Rows, draw_tasks, every, sizes, slot_gaps, tidy

LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "CG textbook": ("conjugate_gradient", {}),
    "CG fused": ("conjugate_gradient", {"form": "fused"}),
    "CG pipelined": ("conjugate_gradient", {"form": "pipelined"}),
    "PCG Jacobi": ("preconditioned_conjugate_gradient", {}),
    "Chebyshev": ("chebyshev", {"spectrum": (1.0, 60.0)}),
    "gradient descent": ("gradient_descent", {"step_size": 0.02}),
}


class Config(NamedTuple):
    draws: int = 50
    num_features: int = 8
    num_supports: int = 24
    steps: int = 6
    ridge: float = 1.0
    layouts: tuple[str, ...] = tuple(LAYOUTS)


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    tasks = draw_tasks(key, config.draws, LinearRegression(**sizes(config)))
    gaps, own, of_twice = measure(key, tasks, Linear(), config.layouts, config)
    axes = {"solver": config.layouts, "draw": range(config.draws), "p - m": (0, 1)}
    rows = tidy(axes, gap=gaps, c=own[:, None, None])
    jacobi = np.array(["Jacobi" in name for name in config.layouts])
    grows = {
        "c for 2 p features <= c for p features (Jacobi preconditioner: + p)": at_most(
            of_twice, own + config.num_features * jacobi
        )
    }
    return rows, judge(*named(checks_of(gaps) | grows))


def checks_of(gaps: np.ndarray) -> dict[str, Unnamed]:
    full, short = gaps.T  # [draw, layout]
    return {
        "p feature channels, any basis: |slots - iterates| / |iterates| <= 1e-9": at_most(
            full, 1e-9, stated=True
        ),
        "p - 1 feature channels: |slots - iterates| / |iterates| >= 1e-3": at_least(short, 1e-3),
    }


def measure(
    key: jax.Array, tasks: Task, kernel: Kernel, layouts: Sequence[str], config: Any
) -> tuple[np.ndarray, ...]:
    """`channel_gaps` [layout, draw, 2], and the c [layout] other channels, for p and for 2 p."""
    keys, p = jax.random.split(key, config.draws), config.num_features
    gaps = [channel_gaps(keys, tasks, kernel, name, config.ridge, config.steps) for name in layouts]
    numbers = {"ridge": config.ridge, "steps": config.steps}
    c = [[build(name, kernel, size, **numbers).overhead for size in (p, 2 * p)] for name in layouts]
    return np.stack(gaps), *np.transpose(c)


def build(name: str, kernel: Kernel, num_features: int, **options: Any) -> Transformer:
    solver, needs = LAYOUTS[name]
    return getattr(constructions, solver)(kernel, num_features=num_features, **needs, **options)


@every(together=True, static=("name", "ridge", "steps"))
def channel_gaps(
    turn: jax.Array, task: Task, kernel: Kernel, name: str, ridge: float, steps: int
) -> jax.Array:
    """The largest gaps |slot - iterate| / |iterate| [draw, 2] with p and p - 1 channels P^T x."""
    p, (solver, needs) = task.num_features, LAYOUTS[name]
    P = sketches.orthonormal(turn, p, p)
    path = getattr(solvers, solver)(kernel, task, ridge=ridge, steps=steps, **needs)

    def largest(P: jax.Array) -> jax.Array:
        model = build(name, kernel, p, ridge=ridge, steps=steps, sketch=P)
        slots = tuple(name for name in ("alpha", "r", "prediction") if name in model.layout.names)
        _, cache = run_with_cache(model, task, names=slots)
        return jnp.max(slot_gaps(cache, path, *slots))

    return jax.vmap(largest)(jnp.stack([P, P.at[:, -1].set(0)]))


CLAIM = Claim(
    title="p + c channels run conjugate gradient exactly",
    statement="Let p be the number of features of x and let the kernel be linear. A transformer "
    "with at least p + c channels runs any number of steps of conjugate gradient exactly, up to "
    "rounding. Here c is the number of channels for the state of conjugate gradient.",
    truth="In our constructions c does not depend on p, and the p feature channels may hold the "
    "features in any basis. A Jacobi preconditioner needs p channels more. With only p - 1 feature "
    "channels the steps are not exact.",
    source="Cawley 2025, docs/theory/width_rank.md, theorem",
    quote="If m >= p + c (channels for CG state), then there exists a parameterization realizing "
    "t CG steps on KRR exactly (up to numeric precision) under the masks described in S5.",
    expected=HOLDS,
    told=FAMILY,
    run=run,
    quick=Config(draws=5, layouts=("CG textbook", "Chebyshev")),
    plot=Plot(x="p - m", y="gap", by=("solver",)),
)
