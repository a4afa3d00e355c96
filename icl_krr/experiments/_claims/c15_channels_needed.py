"""C15: p + c channels run conjugate gradient exactly."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import Kernel, Linear, Transformer, constructions, run_with_cache, sketches, solvers
from ...tasks import LinearRegression, Task
from .claim import HOLDS, TASK_FAMILY, Checks, Claim, Config, at_most, stated
from .measuring import Plot, Rows, draw_tasks, every, sizes, slot_gaps, tidy

LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "CG textbook": ("conjugate_gradient", {}),
    "CG fused": ("conjugate_gradient", {"form": "fused"}),
    "CG pipelined": ("conjugate_gradient", {"form": "pipelined"}),
    "PCG Jacobi": ("preconditioned_conjugate_gradient", {}),
    "Chebyshev": ("chebyshev", {"spectrum": (1.0, 60.0)}),
    "gradient descent": ("gradient_descent", {"step_size": 0.02}),
}


def run(config: Config, key: jax.Array) -> tuple[Rows, Checks]:
    tasks = draw_tasks(key, config.draws, LinearRegression(**sizes(config)))
    gaps, channels, channels_of_twice = measure(key, tasks, Linear(), config.layouts, config)
    axes = {"solver": config.layouts, "draw": range(config.draws), "p - m": (0, 1)}
    rows = tidy(axes, gap=gaps, c=channels[:, None, None])
    jacobi = np.array(["Jacobi" in name for name in config.layouts])
    words = "c for 2 p features <= c for p features (Jacobi preconditioner: + p)"
    growth = at_most(channels_of_twice, channels + config.num_features * jacobi)
    return rows, checks_of(gaps) | {words: growth}


def checks_of(gaps: np.ndarray) -> Checks:
    full, short = gaps.T  # [draw, layout]
    return {
        "p feature channels, any basis: |slots - iterates| / |iterates| <= 1e-9": stated(full),
        "p - 1 feature channels: |slots - iterates| / |iterates| >= 1e-3": short,
    }


def measure(
    key: jax.Array, tasks: Task, kernel: Kernel, layouts: Sequence[str], config: Any
) -> tuple[np.ndarray, ...]:
    """`channel_gaps` [layout, draw, 2], and the c [layout] other channels, for p and for 2 p."""
    gaps = [channel_gaps(key, tasks, kernel, name, config) for name in layouts]
    numbers, p = {"ridge": config.ridge, "steps": config.steps}, config.num_features
    c = [[build(name, kernel, size, **numbers).overhead for size in (p, 2 * p)] for name in layouts]
    return np.stack(gaps), *np.transpose(c)


def build(name: str, kernel: Kernel, num_features: int, **options: Any) -> Transformer:
    solver, needs = LAYOUTS[name]
    return getattr(constructions, solver)(kernel, num_features=num_features, **needs, **options)


@every(together=True, static=("name", "config"))
def channel_gaps(key: jax.Array, task: Task, kernel: Kernel, name: str, config: Any) -> jax.Array:
    """The largest gaps |slot - iterate| / |iterate| [draw, 2] with p and p - 1 channels P^T x."""
    p, (solver, needs) = task.num_features, LAYOUTS[name]
    numbers = {"ridge": config.ridge, "steps": config.steps}
    P = sketches.orthonormal(key, p, p)
    path = getattr(solvers, solver)(kernel, task, **numbers, **needs)

    def largest(P: jax.Array) -> jax.Array:
        model = build(name, kernel, p, sketch=P, **numbers)
        slots = tuple(name for name in ("alpha", "r", "prediction") if name in model.layout.names)
        _, cache = run_with_cache(model, task, names=slots)
        return jnp.max(slot_gaps(cache, path, *slots))

    return jax.vmap(largest)(jnp.stack([P, P.at[:, -1].set(0)]))


CLAIM = Claim(
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
    required_inputs=TASK_FAMILY,
    run=run,
    config=Config(draws=50, num_features=8, num_supports=24, steps=6, ridge=1.0),
    axes=Config(layouts=tuple(LAYOUTS)),
    quick=Config(draws=5, layouts=("CG textbook", "Chebyshev")),
    plot=Plot(x="p - m", y="gap", by=("solver",)),
)
