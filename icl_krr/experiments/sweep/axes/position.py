"""Axis "position": a causal model at the support with so many supports before it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .... import solvers
from ....tasks import Task
from ..config import SweepConfig
from ..setting import OVER_VALUES, Models, Setting, kernel_of, solve


def build(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    """The model is told of the whole context; by causality it answers from the prefix alone."""
    kernel = kernel_of(config)
    model = solve(line, kernel, task, config.ridge, config)
    prefix = task.replace(mask=jnp.arange(config.num_supports) < value)
    exact = solvers.exact(kernel, prefix, ridge=config.ridge).prediction
    return Setting(model, prefix, exact)


AXIS = Models(build, OVER_VALUES)
