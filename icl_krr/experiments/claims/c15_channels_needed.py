"""C15: p + c channels are enough to run a solver exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ...kernels import Linear
from ...tasks import LinearRegression
from ..shared.draws import draw_tasks, draws
from ..shared.rows import Plot, Rows, tidy
from .channels import Channels, channel_gaps
from .claim import FAMILY, HOLDS, Claim, Verdict, at_least, at_most, judge, named

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
    rows, gaps, overheads = [], [], []
    for name in config.layouts:
        solver, options = LAYOUTS[name]
        run = Channels(solver, config.ridge, config.steps, tuple(options.items()))
        gaps.append(np.asarray(channel_gaps(draws(key, config.draws), tasks, Linear(), run)))
        overheads.append([run.overhead(Linear(), size) for size in (p, 2 * p)])
        rows += tidy(
            {"solver": [name], "draw": range(config.draws), "p - m": lost},
            gap=gaps[-1][None],
            c=overheads[-1][0],
        )
    full, short = np.moveaxis(np.stack(gaps, axis=1), 2, 0)
    own, of_twice = np.transpose(overheads)
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
    config=Config(),
    quick=Config(draws=5, layouts=("CG textbook", "Chebyshev")),
    plot=Plot(x="p - m", y="gap", by=("solver",)),
)
