"""Keys and batches of tasks that experiments draw."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ...tasks import Sampler, Task, sample


def draws(key: jax.Array, count: int) -> jax.Array:
    return jax.random.split(key, count)


def draw_tasks(key: jax.Array, count: int, sampler: Sampler) -> Task:
    """A batch of tasks: one program for all that is done with them."""
    return sample_each(draws(key, count), sampler)


@jax.jit
def sample_each(keys: jax.Array, sampler: Sampler) -> Task:
    return jax.lax.map(lambda key: sample(key, sampler), keys)


def project(task: Task, sphere: jax.Array) -> Task:
    """The task, its inputs on the unit sphere where `sphere` is true."""
    x, x_query = (
        points / jnp.where(sphere, jnp.linalg.norm(points, axis=1, keepdims=True), 1)
        for points in (task.x, task.x_query)
    )
    return task.replace(x=x, x_query=x_query)
