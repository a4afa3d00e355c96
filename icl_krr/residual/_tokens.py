"""Tokens of a task; the aggregator stores sums over the supports, or it is the softmax sink."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._core import checks, devices
from .._core.numerics import matmul
from ..tasks import Task
from ..tasks._task import check_axes, check_is_task, support_mask
from ._layout import Layout
from ._reads import Read

Stream = dict[str, jax.Array]
"""{slot: [T, width]}; a model with merged slots has only the slot "stream"."""

TOKENS = ("pairs", "interleaved")


def fields(task: Task, tokens: str = "pairs") -> Stream:
    """Return the input fields of all tokens, in the dtype of the task.

    The field `x` [T, p] is zero at the aggregator, and `y` [T, r] also at the queries. The flags
    `aggregator`, `support` and `query` [T, 1] are 1 at tokens of this role, else 0; `one` [T, 1] is
    1 at all tokens. At a masked support, all fields except `one` are zero. In the format
    "interleaved", the y token of a support has the flag `support`, and the x token the flag
    `query`, because the model can predict y there from earlier tokens.

    Args:
        tokens: token format, "pairs" or "interleaved".

    >>> from icl_krr import Task
    >>> task = Task(x=[[1.0], [1.0]], y=[3.0, 4.0], x_query=[[1.0]])
    >>> fields(task)["support"].ravel().tolist()
    [0.0, 1.0, 1.0, 0.0]
    >>> fields(task, "interleaved")["y"].ravel().tolist()
    [0.0, 0.0, 3.0, 0.0, 4.0, 0.0]
    """
    check_axes(task)
    checks.choice("tokens", tokens, TOKENS)
    return _fields(task, tokens)


@partial(jax.jit, static_argnums=1)
def _fields(task: Task, tokens: str) -> dict[str, jax.Array]:
    n, q, dtype = task.num_supports, task.num_queries, task.x.dtype
    keep = support_mask(task)
    interleaved = tokens == "interleaved"

    def field(aggregator, inputs, outputs, queries):
        """Return one field of all tokens; the token of a pair has the entry of x plus that of y."""
        parts = [jnp.where(keep[:, None], part, 0) for part in (inputs, outputs)]
        width = parts[0].shape[1]
        pairs = parts[0] + parts[1]
        supports = jnp.stack(parts, axis=1).reshape(2 * n, width) if interleaved else pairs
        first = jnp.broadcast_to(aggregator, (1, width))
        return jnp.concatenate([first, supports, jnp.broadcast_to(queries, (q, width))])

    y = task.y.reshape(n, -1)
    zero = jnp.zeros((1, 1), dtype)
    none, each = jnp.zeros((n, 1), dtype), jnp.ones((n, 1), dtype)
    input_queries = each if interleaved else none
    return {
        "x": field(zero, task.x, jnp.zeros_like(task.x), task.x_query),
        "y": field(zero, jnp.zeros_like(y), y, zero),
        "aggregator": field(zero + 1, none, none, zero),
        "support": field(zero, none, each, zero),
        "query": field(zero, input_queries, none, zero + 1),
        "one": jnp.ones((num_tokens(task, tokens), 1), dtype),
    }


def num_tokens(task: Task, tokens: str = "pairs") -> int:
    """Return the number of tokens $T = 1 + n + q$, or $1 + 2n + q$ for "interleaved" tokens.

    Args:
        tokens: as in `fields`.

    >>> from icl_krr import Task
    >>> num_tokens(Task(x=np.ones((5, 1)), y=np.ones(5), x_query=[[1.0], [1.0]]))
    8
    """
    check_is_task(task)
    checks.choice("tokens", tokens, TOKENS)
    per_support = 2 if tokens == "interleaved" else 1
    return 1 + per_support * task.num_supports + task.num_queries


def embed(
    embedding: Mapping[str, Read],
    task: Task,
    tokens: str = "pairs",
    centred: bool = False,
    axes: devices.Axes = (),
) -> Stream:
    """Compute the initial stream of a task from the `fields` of its tokens.

    Args:
        tokens: as in `fields`.
        embedding: {slot: read of the fields}; an empty read gives zeros.
        centred: whether to subtract the mean of the unmasked supports' x from the x of all supports
            and queries first. A kernel of the differences x - z does not change, and inner products
            lose no digits if all points are far from 0.
        axes: axes of a mesh over which `jax.shard_map` divides the supports, such as ("context",);
            (): `task` has all supports.

    >>> from icl_krr import Task
    >>> task = Task(x=[[1.0], [1.0]], y=[3.0, 4.0], x_query=[[1.0]])
    >>> embed({"r": Read({"y": np.ones(())}, 1)}, task)["r"].ravel().tolist()
    [0.0, 3.0, 4.0, 0.0]
    """
    if not isinstance(embedding, Mapping) or not all(
        isinstance(read, Read) for read in embedding.values()
    ):
        raise TypeError(f"embedding must be {{slot: Read}}, got {checks.short_repr(embedding)}")
    inputs = fields(centre(task, axes) if centred else task, tokens)
    return {slot: read(inputs) for slot, read in embedding.items()}


def centre(task: Task, axes: devices.Axes = ()) -> Task:
    """Return the task with the mean of the unmasked supports' x as the new origin of x."""
    keep = support_mask(task)
    count = devices.psum(jnp.asarray(keep.sum(), task.x.dtype), axes)
    shares = keep.astype(task.x.dtype) / jnp.maximum(count, 1)
    mean = devices.psum(matmul(shares[None], jnp.where(keep[:, None], task.x, 0)), axes)
    return task.replace(x=task.x - mean, x_query=task.x_query - mean)


def key_mask(task: Task, tokens: str = "pairs") -> jax.Array | np.ndarray:
    """Return the key mask [T]: attention reads the aggregator and unmasked supports.

    Without `task.mask` it is a NumPy array, a constant while JAX traces.

    Args:
        tokens: as in `fields`.

    >>> from icl_krr import Task
    >>> key_mask(Task(x=[[1.0]], y=[1.0], x_query=[[1.0]])).tolist()
    [True, True, False]
    """
    check_axes(task)
    checks.choice("tokens", tokens, TOKENS)
    if task.mask is None:
        return np.arange(num_tokens(task, tokens)) < num_tokens(task, tokens) - task.num_queries
    keep = jnp.repeat(support_mask(task), 2) if tokens == "interleaved" else support_mask(task)
    return jnp.concatenate([jnp.ones(1, bool), keep, jnp.zeros(task.num_queries, bool)])


def role_slice(at: tuple[str, ...], task: Task, tokens: str = "pairs") -> slice:
    """Return the tokens of the role in `at`, or all tokens if `at` has several roles."""
    end, step = num_tokens(task, tokens) - task.num_queries, 1 + (tokens == "interleaved")
    only: dict[tuple[str, ...], slice] = {
        ("aggregator",): slice(0, 1),
        ("support",): slice(step, end, step),
        ("query",): slice(end, None),
    }
    return only.get(at, slice(None))


def get_slot(stream: Stream, layout: Layout, slot: str) -> jax.Array:
    """Return a slot [T, width] of a stream whose slots are separate or merged."""
    merged = set(stream) == {"stream"}
    return stream["stream"][:, layout.channels(slot)] if merged else stream[slot]


class DividedTokens(NamedTuple):
    """The tokens of one device, if tokens are divided over some axes of a mesh.

    Each device holds some of the supports, and its own equal copy of the aggregator and of the
    queries. Only the first device has its aggregator in the key mask, so that every key counts
    once. `positions` [T] are the numbers of keys before each token on all devices.
    """

    key_mask: jax.Array
    positions: jax.Array
    queries: int
    axes: devices.Axes


Keys = jax.Array | np.ndarray | DividedTokens


def keys_of_shard(task: Task, tokens: str, axes: devices.Axes) -> Keys:
    """The keys of attention; with `axes`, `task` has only the supports of this device."""
    if not axes:
        return key_mask(task, tokens)
    q = task.num_queries
    mask = jnp.asarray(key_mask(task, tokens))
    mask = mask.at[0].set(jax.lax.axis_index(axes) == 0)
    count = jnp.sum(mask)
    supports = positions(mask) + devices.exclusive_cumsum(count, axes)
    place = np.arange(num_tokens(task, tokens))
    copies = jnp.where(place == 0, 0, devices.psum(count, axes))
    is_copy = (place == 0) | (place >= len(place) - q)
    return DividedTokens(mask, jnp.where(is_copy, copies, supports), q, axes)


def positions(keys: Keys) -> jax.Array | np.ndarray:
    """The number of keys before each token [T]; it is equal for all queries."""
    if isinstance(keys, DividedTokens):
        return keys.positions
    # of a constant in NumPy, because XLA would take minutes to compute the sums before it runs
    so_far = keys.cumsum(dtype=jnp.result_type(int))
    return so_far - keys.astype(so_far.dtype)


def without_aggregator(keys: Keys) -> Keys:
    """The keys without the aggregator."""
    if isinstance(keys, DividedTokens):
        return keys._replace(key_mask=keys.key_mask.at[0].set(False))
    return keys & (np.arange(len(keys)) > 0)
