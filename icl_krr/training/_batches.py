"""The batch of tasks of a training step: fresh tasks, mixed context lengths and a curriculum."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from .._core import checks
from ..tasks import Sampler, Task
from ..tasks._batches import sample_batch, task_shapes
from ._settings import LIKELIHOOD, Training


def draw(key: jax.Array, family: Sampler, size: int) -> Task:
    """Draw `size` tasks with all supports and features."""
    return sample_batch(jax.random.split(key, size), family)


def draw_observed(keys: jax.Array, family: Sampler, active: Any = None) -> Task:
    """Draw one task for each key, whose outputs at the queries have noise as those at the supports.

    Families with a field `noise` leave the noise out at the queries. The queries are then further
    supports of theirs.
    """
    if not hasattr(family, "noise"):
        return sample_batch(keys, family, active)
    shapes = task_shapes(family)
    n, q = shapes.num_supports, shapes.num_queries
    longer: Any = dataclasses.replace(family, num_supports=n + q, num_queries=1)  # pyright: ignore
    tasks = sample_batch(keys, longer, active)
    x, y = tasks.x, tasks.y
    return tasks.replace(x=x[:, :n], y=y[:, :n], x_query=x[:, n:], y_query=y[:, n:])


def check_observed(family: Sampler) -> None:
    """Raise an error if `draw_observed` cannot draw longer tasks of a family."""
    if not hasattr(family, "noise"):
        return
    missing = [name for name in ("num_supports", "num_queries") if not hasattr(family, name)]
    if missing or not dataclasses.is_dataclass(family):
        raise TypeError(
            "family must be a dataclass with the fields num_supports and num_queries, or have no "
            f"field noise, so that outputs at queries can have noise, got "
            f"{checks.short_repr(family)}; use objective='squared_error'"
        )


def batch(key: jax.Array, family: Sampler, settings: Training, step: jax.Array) -> Task:
    """Draw the tasks of one step. With mixed lengths, `mask` [b, n] marks the supports in use."""
    of_tasks, of_lengths = jax.random.split(key)
    keys = jax.random.split(of_tasks, settings.batch)
    active = None
    if settings.start_features is not None:
        p = task_shapes(family).num_features
        active = curriculum_size(settings.start_features, p, settings, step)
    draw_tasks = draw_observed if settings.objective == LIKELIHOOD else sample_batch
    tasks = draw_tasks(keys, family, active)
    if settings.min_supports is None and settings.start_supports is None:
        return tasks
    n = longest = tasks.num_supports
    if settings.start_supports is not None:
        longest = curriculum_size(settings.start_supports, n, settings, step)
    shortest = longest if settings.min_supports is None else settings.min_supports
    lengths = jax.random.randint(of_lengths, (settings.batch,), shortest, longest + 1)
    return tasks.replace(mask=jnp.arange(n)[None] < lengths[:, None])


def curriculum_size(start: int, end: int, settings: Training, step: jax.Array) -> jax.Array:
    """The number of supports or features at a step.

    It changes linearly from `start` at step 0 to `end` at step `settings.curriculum`, and is
    rounded down.
    """
    share = jnp.minimum(step / settings.curriculum, 1)
    return start + jnp.floor((end - start) * share).astype(int)
