"""Axis "width": conjugate gradient on m channels of a sketch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .... import constructions, solvers, theory
from ....kernels import Linear
from ....tasks import Task
from ...shared.rows import Plot
from ...shared.spectra import sketch
from ..config import NOISE, SweepConfig
from ..setting import Models, Setting


def build(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    p, kernel = task.num_features, Linear()
    P = sketch(line, key, task.x, p)
    if line == "gaussian":
        # makes the mean of P P^T the identity, as only `value` columns of p remain
        P = P * jnp.sqrt(p / value)
    # the other columns are 0 and not removed, so that one compiled program runs all widths
    P = jnp.where(jnp.arange(p)[None] < value, P, 0)
    model = constructions.conjugate_gradient(
        kernel, num_features=p, ridge=config.ridge, steps=config.steps, sketch=P
    )
    exact = solvers.exact(kernel, task, ridge=config.ridge).prediction
    sigma = theory.eigenvalues(kernel, task)
    expected = theory.expected_gap(sigma, value, config.ridge, 1 / p, NOISE)
    return Setting(model, task, exact, expected=expected if line == "best" else None)


AXIS = Models(build, Plot("value", "gap", ("line",), "expected"))
