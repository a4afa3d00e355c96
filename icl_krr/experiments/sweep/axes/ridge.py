"""Axis "ridge": every solver is compared with exact KRR of the same ridge."""

from __future__ import annotations

from typing import Any

import jax

from ....tasks import Task
from ..config import SweepConfig
from ..setting import OVER_VALUES, Models, Setting, against_exact, kernel_of


def build(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    return against_exact(line, kernel_of(config), task, value, config)


AXIS = Models(build, OVER_VALUES)
