"""Tasks of every prefix of a context, for models that answer at every position."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .. import checks
from ..tasks import Task
from ..tasks.task import check_axes, kept


def prefixes(tasks: Task, positions: tuple[int, ...]) -> Task:
    """Make a task of each position of each context: its supports before, and it as the query.

    A causal model answers at position i as it answers this query after i supports. So its answers
    at several positions of b contexts, in this order, are the answers of one batch for
    `identify_arrays`: first all positions of the first context.

    Args:
        tasks: batch of b tasks; x [b, n, p].
        positions: tuple of numbers i of supports before the query, from 0 to n - 1.

    Returns:
        A batch of b * len(positions) tasks with one query each. Masks hide the other supports.

    Raises:
        TypeError: `tasks` is not a `Task`, or `positions` is not a tuple of integers.
        ValueError: `tasks` is not a batch, or a position is not from 0 to n - 1.

    >>> import icl_krr as ik
    >>> x = jnp.arange(3.0).reshape(1, 3, 1)
    >>> found = prefixes(ik.Task(x=x, y=x[..., 0], x_query=x), (1, 2))
    >>> found.mask.tolist(), found.x_query[:, 0, 0].tolist()
    ([[True, False, False], [True, True, False]], [1.0, 2.0])
    """
    check_axes(tasks, 1, "tasks")
    checks.instance("positions", positions, (tuple, list), "a tuple of integers")
    count = tasks.num_supports
    for position in positions:
        checks.count("positions", position, 0)
        if position >= count:
            raise ValueError(f"positions must be < n = {count}, got {position}")
    if not positions:
        raise ValueError("positions must have at least one number, got none")

    def of_position(task: Task, position: jax.Array) -> Task:
        return task.replace(
            mask=kept(task) & (jnp.arange(count) < position),
            x_query=task.x[position][None],
            y_query=task.y[position][None],
        )

    at = jnp.asarray(positions)
    each = jax.vmap(lambda task: jax.vmap(lambda i: of_position(task, i))(at))(tasks)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), each)
