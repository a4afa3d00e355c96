"""Keyword arguments of causal solvers, which hold for all prefixes of a task."""

from __future__ import annotations

from typing import Any

from ... import theory
from ...kernels import Kernel
from ...tasks import Task


def spectrum(kernel: Kernel, task: Task, ridge: Any) -> tuple[Any, Any]:
    return theory.prefix_bounds(kernel, task, ridge=ridge)
