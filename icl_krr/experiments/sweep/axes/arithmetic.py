"""Axis "arithmetic": the number of segments of the ReLU tables."""

from __future__ import annotations

from typing import Any

import jax

from .... import solvers
from ....constructions import ReLU
from ....tasks import Task
from ....transformer import operand_bounds
from ..config import SweepConfig
from ..setting import OVER_VALUES, Models, Setting, kernel_of, solve


def build(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    kernel = kernel_of(config)
    exact_twin = solve(line, kernel, task, config.ridge, config)
    bounds = operand_bounds(exact_twin, task, margin=2.0)
    model = solve(line, kernel, task, config.ridge, config, arithmetic=ReLU(value, bounds))
    exact = solvers.exact(kernel, task, ridge=config.ridge).prediction
    return Setting(model, task, exact, smoother=kernel)


AXIS = Models(build, OVER_VALUES, traced=False)
