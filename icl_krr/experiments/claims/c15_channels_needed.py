"""C15: p + c channels are enough to run a solver exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions, sketches, solvers
from ...kernels import Kernel, Linear
from ...tasks import LinearRegression, Task
from ...transformer import Transformer, run_with_cache
from .claim import FAMILY, HOLDS, Claim, Verdict, at_least, at_most, judge, named
from .measuring import Plot, Rows, draw_tasks, every, largest_gap, tidy


class Channels(NamedTuple):
    """A solver by name with its ridge, steps and further options."""

    solver: str
    ridge: float
    steps: int
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def arguments(self) -> dict[str, Any]:
        return {"ridge": self.ridge, "steps": self.steps, **dict(self.options)}

    def build(self, kernel: Kernel, num_features: int, **sketch: jax.Array) -> Transformer:
        construct = getattr(constructions, self.solver)
        return construct(kernel, num_features=num_features, **self.arguments, **sketch)

    def overhead(self, kernel: Kernel, num_features: int) -> int:
        """The number c of channels of the construction that do not store features."""
        return self.build(kernel, num_features).overhead

    def gap(self, kernel: Kernel, task: Task, sketch: jax.Array) -> jax.Array:
        """Return the largest of the gaps |slot - iterate| / |iterate| of the solver's states.

        The model stores the features P^T x, the solver has the features x. The states are alpha,
        the prediction at the queries and, if the model keeps it, r. |.| is a maximum over all
        steps.
        """
        path = getattr(solvers, self.solver)(kernel, task, **self.arguments)
        model = self.build(kernel, task.num_features, sketch=sketch)
        names = tuple(name for name in ("alpha", "r", "prediction") if name in model.layout.names)
        _, cache = run_with_cache(model, task, names=names)
        return jnp.max(jnp.stack([largest_gap(cache[name], getattr(path, name)) for name in names]))


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
    p = config.num_features
    process = LinearRegression(num_features=p, num_supports=config.num_supports)
    tasks = draw_tasks(key, config.draws, process)
    runs = [
        Channels(solver, config.ridge, config.steps, tuple(options.items()))
        for solver, options in (LAYOUTS[name] for name in config.layouts)
    ]
    gaps, own, of_twice = measure(key, tasks, Linear(), runs)
    rows = tidy(
        {"solver": config.layouts, "draw": range(config.draws), "p - m": (0, 1)},
        gap=gaps,
        c=own[:, None, None],
    )
    full, short = gaps.T  # [draw, run]
    checks = {
        "p feature channels, any basis: |slots - iterates| / |iterates| <= 1e-9": at_most(
            full, 1e-9, stated=True
        ),
        "c for 2 p features <= c for p features (Jacobi preconditioner: + p)": at_most(
            of_twice, own + p * np.array(["Jacobi" in name for name in config.layouts])
        ),
        "p - 1 feature channels: |slots - iterates| / |iterates| >= 1e-3": at_least(short, 1e-3),
    }
    return rows, judge(*named(checks))


def measure(
    key: jax.Array, tasks: Task, kernel: Kernel, runs: list[Channels]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gaps [run, draw, 2] of `channel_gaps`, and c [run] for p and for 2 p features."""
    draws, p = len(tasks.y), tasks.x.shape[-1]
    keys = jax.random.split(key, draws)
    gaps = np.stack([channel_gaps(keys, tasks, kernel, run) for run in runs])
    own, of_twice = np.transpose(
        [[run.overhead(kernel, size) for size in (p, 2 * p)] for run in runs]
    )
    return gaps, own, of_twice


@every(together=True, static="run")
def channel_gaps(turn: jax.Array, task: Task, kernel: Kernel, run: Channels) -> jax.Array:
    """Return the gaps [draw, 2] for p and p - 1 feature channels in a random orthonormal basis.

    p - 1 channels mean that one is 0.
    """
    P = sketches.orthonormal(turn, task.num_features, task.num_features)
    both = jnp.stack([P, P.at[:, -1].set(0)])
    return jax.vmap(lambda P: run.gap(kernel, task, P))(both)


CLAIM = Claim(
    title="p + c channels run conjugate gradient exactly",
    statement="Let p be the number of features of x and let the kernel be linear. A transformer "
    "with at least p + c channels runs any number of steps of conjugate gradient exactly, up to "
    "rounding. Here c is the number of channels for the state of conjugate gradient.",
    truth="In our constructions c does not depend on p, and the p feature channels may hold the "
    "features in any basis. A Jacobi preconditioner needs p channels more. With only p - 1 feature "
    "channels the steps are not exact.",
    corrected="ours",
    source="Cawley 2025, docs/theory/width_rank.md, theorem",
    quote="If m >= p + c (channels for CG state), then there exists a parameterization realizing "
    "t CG steps on KRR exactly (up to numeric precision) under the masks described in S5.",
    expected=HOLDS,
    told=FAMILY,
    run=run,
    quick=Config(draws=5, layouts=("CG textbook", "Chebyshev")),
    plot=Plot(x="p - m", y="gap", by=("solver",)),
)
