"""Axis "depth": the error of alpha after every step, with the bound of theory."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .... import solvers, theory
from ....catalogue import SOLVERS, load
from ....tasks import Task, system
from ...shared.rows import Plot
from ..config import SweepConfig
from ..setting import Models, Setting, kernel_of, solve


def build(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    kernel, rate = kernel_of(config), SOLVERS[line].rate
    solution = solvers.exact(kernel, task, ridge=config.ridge)
    gram = system(kernel, task).gram
    A = gram + jnp.asarray(config.ridge, gram.dtype) * jnp.eye(len(gram), dtype=gram.dtype)
    model, bound = solve(line, kernel, task, config.ridge, config), None
    if rate is not None:
        low, high = theory.spectral_bounds(kernel, task, ridge=config.ridge)
        bound = load(rate)(low, high, jnp.arange(config.steps + 1.0))
    return Setting(model, task, solution.prediction, bound, solution.alpha, A, smoother=kernel)


AXIS = Models(build, Plot("value", "error", ("line",), "bound"))
