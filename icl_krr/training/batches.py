"""A batch of tasks as a step of training sees it: fresh, of mixed length, by a curriculum."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..tasks import Sampler, Task, sample
from .settings import Training


def draw(key: jax.Array, family: Sampler, size: int) -> Task:
    """`size` tasks of full length and features."""
    keys = jax.random.split(key, size)
    return jax.vmap(sample, in_axes=(0, None))(keys, family)


def batch(key: jax.Array, family: Sampler, settings: Training, step: jax.Array) -> Task:
    """The tasks of one step: `mask` [b, n] says how long each context is, if they are mixed."""
    of_tasks, of_lengths = jax.random.split(key)
    keys = jax.random.split(of_tasks, settings.batch)
    active = None
    if settings.start_features is not None:
        active = curriculum_size(settings.start_features, num_features(family), settings, step)
    tasks = jax.vmap(sample, in_axes=(0, None, None))(keys, family, active)
    if settings.min_supports is None and settings.start_supports is None:
        return tasks
    n = longest = tasks.num_supports
    if settings.start_supports is not None:
        longest = curriculum_size(settings.start_supports, n, settings, step)
    shortest = longest if settings.min_supports is None else settings.min_supports
    lengths = jax.random.randint(of_lengths, (settings.batch,), shortest, longest + 1)
    return tasks.replace(mask=jnp.arange(n)[None] < lengths[:, None])


def curriculum_size(start: int, end: int, settings: Training, step: jax.Array) -> jax.Array:
    """From `start` at step 0 to `end` at step `curriculum`, in whole numbers."""
    share = jnp.minimum(step / settings.curriculum, 1)
    return start + jnp.floor((end - start) * share).astype(int)


def num_features(family: Sampler) -> int:
    return jax.eval_shape(lambda key: sample(key, family), jax.random.key(0)).num_features
