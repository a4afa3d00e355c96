"""Keyword arguments of causal solvers, which hold for all prefixes of a task."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from .. import Kernel, Task, theory


def spectrum(kernel: Kernel, task: Task, ridge: Any) -> tuple[Any, Any]:
    return theory.prefix_bounds(kernel, task, ridge=ridge)


def step_size(kernel: Kernel, task: Task, ridge: Any) -> Any:
    """A step size of the delta rule that is stable at every support."""
    return 1 / (jnp.max(kernel.diagonal(task.x)) + ridge)


def momentum(kernel: Kernel, task: Task, ridge: Any) -> float:
    """A momentum with which that step size stays stable."""
    return 0.5
