"""The status of a rule that learns the supports one by one: whether it diverges."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..status import HOPELESS, Status, assess
from ..tasks import Task
from .accuracy import largest, out_of_range, worst
from .algebra import seen


def of_recurrence(task: Task, along: Any) -> Status:
    """The status of a rule that learns the supports one by one, from its predictions [T, r].

    A rule that solves no regression has no residual and no distance to its solution. Its gap is
    the unit of rounding times the growth of the predictions: rounding errors that grow and are then
    forgotten are not in it.
    """
    task, along = jax.lax.stop_gradient((task, along))
    y, n = seen(task)[1], task.num_supports
    along = along.reshape(len(along), -1)
    most = largest(y, axis=0)
    growth = worst(jnp.abs(along[:n]) / most)
    grows = ~(growth <= HOPELESS)
    gap = jnp.where(grows, jnp.inf, jnp.finfo(y.dtype).eps * jnp.maximum(growth, 1))
    out = out_of_range(y, jnp.ones((), y.dtype), along)
    return assess(jnp.inf, gap, 0.0, y.dtype, range=out & ~grows, grows=grows)
