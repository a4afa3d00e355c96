"""The tokens of one task whose supports are divided over several devices."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import devices
from ..tasks import Task
from .tokens import num_tokens, token_positions, visible


class DividedTokens(NamedTuple):
    """What one device knows of the tokens that all devices along some axes of a mesh hold together.

    Each device holds some of the supports, and its own copy of the aggregator and of the queries.
    All copies are equal. Only the first device shows its aggregator to attention, so that every
    key is counted once.

    Attributes:
        visible: which tokens of this device attention may read as keys, [T] booleans.
        positions: number of visible tokens before each token, on all devices, [T].
        queries: number of queries, which are the last tokens of every device.
        axes: the axes of the mesh.
    """

    visible: jax.Array
    positions: jax.Array
    queries: int
    axes: devices.Axes


def keys_of(task: Task, tokens: str, axes: devices.Axes) -> jax.Array | np.ndarray | DividedTokens:
    """Which tokens attention may read; with `axes`, `task` has only the supports of this device."""
    if not axes:
        return visible(task, tokens)
    q = task.num_queries
    shown = jnp.asarray(visible(task, tokens))
    shown = shown.at[0].set(jax.lax.axis_index(axes) == 0)
    count = jnp.sum(shown)
    supports = token_positions(shown) + devices.sum_before(count, axes)
    place = np.arange(num_tokens(task, tokens))
    copies = jnp.where(place == 0, 0, devices.total(count, axes))
    is_copy = (place == 0) | (place >= len(place) - q)
    return DividedTokens(shown, jnp.where(is_copy, copies, supports), q, axes)


def positions(keys: jax.Array | np.ndarray | DividedTokens) -> jax.Array:
    """The number of visible tokens before each token [T]; it is equal for all queries."""
    return keys.positions if isinstance(keys, DividedTokens) else token_positions(keys)


def without_aggregator(
    keys: jax.Array | np.ndarray | DividedTokens,
) -> jax.Array | np.ndarray | DividedTokens:
    """The tokens that can be read as keys, without the first one."""
    if isinstance(keys, DividedTokens):
        return keys._replace(visible=keys.visible.at[0].set(False))
    return keys & (np.arange(len(keys)) > 0)
