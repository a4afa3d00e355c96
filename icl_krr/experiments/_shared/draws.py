"""Batches of tasks for experiments."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from ...tasks import Sampler, Task, sample
from ...tasks._batches import check_batch, task_shapes


def draw_tasks(key: jax.Array, count: int, sampler: Sampler) -> Task:
    """Draw a batch of tasks with one compiled program."""
    check_batch(count, task_shapes(sampler))
    return sample_each(jax.random.split(key, count), sampler)


def draw_batches(key: jax.Array, counts: Sequence[int], sampler: Sampler) -> list[Task]:
    """Draw batches of these numbers of tasks, each from its own key."""
    return [draw_tasks(jax.random.fold_in(key, i), n, sampler) for i, n in enumerate(counts)]


@jax.jit
def sample_each(keys: jax.Array, sampler: Sampler) -> Task:
    return jax.lax.map(lambda key: sample(key, sampler), keys)


def project(task: Task, sphere: jax.Array) -> Task:
    """The task, with inputs projected to the unit sphere if `sphere` is true."""
    x, x_query = (
        points / jnp.where(sphere, jnp.linalg.norm(points, axis=1, keepdims=True), 1)
        for points in (task.x, task.x_query)
    )
    return task.replace(x=x, x_query=x_query)
