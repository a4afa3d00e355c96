"""Axis "context": the number of supports that are not masked."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ....tasks import Task
from ..config import SweepConfig
from ..setting import OVER_VALUES, Models, Setting, against_exact, kernel_of


def build(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    seen = task.replace(mask=jnp.arange(config.num_supports) < value)
    return against_exact(line, kernel_of(config), seen, config.ridge, config)


AXIS = Models(build, OVER_VALUES)
