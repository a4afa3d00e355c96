"""The gap between a model with m feature channels and the solver that it runs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ... import constructions, solvers
from ...kernels import Kernel
from ...tasks import Task
from ...transformer import run_with_cache


def channel_gap(
    solver: str, kernel: Kernel, task: Task, sketch: jax.Array, **options: Any
) -> jax.Array:
    """Return the largest of the gaps |slot - iterate| / |iterate| of a solver's states.

    The model stores the features P^T x, the solver has the features x. The states are alpha, the
    prediction at the queries and, if the model keeps it, r. |.| is a maximum over all steps.
    """
    trajectory = getattr(solvers, solver)(kernel, task, **options)
    model = getattr(constructions, solver)(
        kernel, num_features=task.num_features, sketch=sketch, **options
    )
    names = tuple(name for name in ("alpha", "r", "prediction") if name in model.layout.names)
    _, cache = run_with_cache(model, task, names=names)
    return jnp.max(jnp.stack([gap(cache[name], getattr(trajectory, name)) for name in names]))


def gap(slot: jax.Array, iterate: jax.Array) -> jax.Array:
    return jnp.max(jnp.abs(slot - iterate)) / jnp.max(jnp.abs(iterate))
