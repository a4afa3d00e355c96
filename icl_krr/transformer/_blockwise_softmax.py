"""Softmax attention in tiles, with memory linear in the number of tokens."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._core.numerics import accumulation_dtype, matmul, power_of_two_below
from .._core.xla_workarounds import joint_barrier
from ._masks import Order, attends_to, key_positions

LARGEST_PATTERN = 2**22
"""Largest number of entries of a pattern that is computed as a whole: that of 2048 tokens."""

TILE_SIDES = {"cpu": 1024}
"""Tokens on a side of a tile, by platform; otherwise 4096. CPU tiles should fit the caches."""


def is_blockwise(tokens: int, streaming: bool | None) -> bool:
    """Whether to compute patterns in tiles; if `streaming` is None, this depends on their size."""
    return tokens * tokens > LARGEST_PATTERN if streaming is None else streaming


def blockwise_softmax(
    q: Float[Array, "T k"],
    k: Float[Array, "T k"],
    v: Float[Array, "T d"],
    key_mask: Bool[Array, " T"] | Bool[np.ndarray, " T"],
    order: Order,
) -> tuple[Float[Array, "T d"], Float[Array, " T"]]:
    """Compute softmax(q k^T) v over the visible keys, and the logarithms of the denominators.

    No array of logits is larger than [tile, tile]. They are shifted before exp, by the largest
    logit of each query, only if a bound on them shows that exp could overflow or underflow. A token
    without keys has the output 0 and the least number as logarithm. The backward pass computes
    every tile again; there are no forward-mode derivatives. k and v must be zero at hidden tokens.
    For inputs in bfloat16 only the results are rounded.

    Source: Rabe, Staats, Self-attention does not need O(n^2) memory, 2021; Dao et al.,
    FlashAttention, 2022.
    """
    wide = (part.astype(accumulation_dtype(q.dtype)) for part in (q, k, v))
    out, log_total = wide_softmax(*wide, key_mask, *key_positions(key_mask, order), order)  # pyright: ignore[reportGeneralTypeIssues]
    return out.astype(v.dtype), log_total.astype(q.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(6,))
def wide_softmax(q, k, v, key_mask, number, last, order):
    return forward_tiles(q, k, v, key_mask, number, last, order)[:2]


class Tiles(NamedTuple):
    """Keys, values, which keys are visible, and their numbers, in tiles."""

    k: jax.Array
    v: jax.Array
    key_mask: jax.Array
    number: jax.Array


def into_tiles(rows: jax.Array, tile: int) -> jax.Array:
    """[T, ...] as [tiles, tile, ...], padded with zeros."""
    padding = [(0, -len(rows) % tile)] + [(0, 0)] * (rows.ndim - 1)
    return jnp.pad(rows, padding).reshape(-1, tile, *rows.shape[1:])


def from_tiles(tiles: jax.Array, tokens: int) -> jax.Array:
    return tiles.reshape(-1, *tiles.shape[2:])[:tokens]


def tile_side(tokens: int) -> int:
    return min(TILE_SIDES.get(jax.default_backend(), 4096), tokens)


def all_into_tiles(*parts: jax.Array) -> tuple[jax.Array, ...]:
    """Parts [T, ...] of the same tokens, in tiles."""
    return tuple(into_tiles(part, tile_side(len(part))) for part in parts)


def logits(q: jax.Array, keys: Tiles) -> Float[Array, "keys queries"]:
    """Logits with the queries on the last axis, along which a CPU vectorises."""
    return matmul(keys.k, q.T)


def weights_of(
    q: jax.Array, last: jax.Array, shift: jax.Array, keys: Tiles, order: Order
) -> Float[Array, "keys queries"]:
    """exp(logits - shift), or 0 where the query does not see the key."""
    mask = attends_to(keys.key_mask, keys.number, last, order)
    return jnp.exp(jnp.where(mask, logits(q, keys) - shift[None], -jnp.inf))


def forward_tiles(q, k, v, key_mask, number, last, order):
    """The output, log total, and the total over exp(log total): 1, except for rounding."""
    q, k, v, key_mask, number, last = joint_barrier(q, k, v, key_mask, number, last)
    size = power_of_two_below(jnp.max(jnp.abs(v), axis=0))
    keys = Tiles(*all_into_tiles(k, scaled(v, size), key_mask, number))
    return quotients(*sums_of_tiles(q, last, keys, order), size)


def scaled(v: jax.Array, size: jax.Array) -> Float[Array, "T d+1"]:
    """Values of size one at most, and a column of ones, which sums to the denominators."""
    return jnp.concatenate([v / size[None], jnp.ones((len(v), 1), v.dtype)], axis=1)


def sums_of_tiles(
    q: jax.Array, last: jax.Array, keys: Tiles, order: Order
) -> tuple[Float[Array, "T d+1"], Float[Array, " T"]]:
    """Sums of exp(logits - shift) times the values, and the shift of each query."""
    shift = shifts(q, last, keys, order)

    def query_block(taken: tuple[jax.Array, ...]) -> jax.Array:
        q, shift, last = taken

        def add(sums: jax.Array, keys: Tiles) -> tuple[jax.Array, None]:
            return sums + matmul(keys.v.T, weights_of(q, last, shift, keys, order)), None

        return jax.lax.scan(add, jnp.zeros((keys.v.shape[-1], len(q)), q.dtype), keys)[0].T

    sums = jax.lax.map(query_block, all_into_tiles(q, shift, last))
    return from_tiles(sums, len(q)), shift


def quotients(sums: jax.Array, shift: jax.Array, size: jax.Array) -> tuple[jax.Array, ...]:
    total = jnp.where(sums[:, -1] == 0, 1, sums[:, -1])
    log_total = shift + jnp.log(total)
    rounding = total * jnp.exp(shift - log_total)
    log_total = jnp.where(sums[:, -1] == 0, jnp.finfo(total.dtype).min, log_total)
    return sums[:, :-1] / total[:, None] * size[None], log_total, rounding


def shifts(q: jax.Array, last: jax.Array, keys: Tiles, order: Order) -> Float[Array, " T"]:
    """Zero if no weight can overflow, or underflow and count; otherwise the largest logits.

    The bound on the logits is that of Cauchy and Schwarz.
    """
    tokens, dtype = len(q), jnp.finfo(q.dtype)
    q, k = jax.lax.stop_gradient(q), jax.lax.stop_gradient(keys.k)
    bound = jnp.max(jnp.linalg.norm(q, axis=-1)) * jnp.max(jnp.linalg.norm(k, axis=-1))

    def largest() -> jax.Array:
        def query_block(taken: tuple[jax.Array, ...]) -> jax.Array:
            q, last = taken

            def compare(most: jax.Array, keys: Tiles) -> tuple[jax.Array, None]:
                mask = attends_to(keys.key_mask, keys.number, last, order)
                masked = jnp.where(mask, logits(q, keys), -jnp.inf)
                return jnp.maximum(most, jnp.max(masked, axis=0)), None

            return jax.lax.scan(compare, jnp.full(len(q), dtype.min), keys._replace(k=k))[0]

        return from_tiles(jax.lax.map(query_block, all_into_tiles(q, last)), tokens)

    # the smallest weight that counts is exp(-bound), and what underflow takes from the sums is less
    # than a rounding error of it
    small = bound < float(np.log(dtype.eps / dtype.tiny) - np.log(keys.number.size))
    return jax.lax.cond(all_in_batch(small), lambda: jnp.zeros(tokens, q.dtype), largest)


@jax.custom_batching.custom_vmap
def all_in_batch(holds: Bool[Array, ""]) -> Bool[Array, ""]:
    """Whether a condition holds for all heads and tasks of a batch: one branch for all is run."""
    return holds


@all_in_batch.def_vmap
def _all_in_batch(size, batched, holds):
    return all_in_batch(jnp.all(holds)), False


def forward_with_residuals(q, k, v, key_mask, number, last, order):
    out, log_total, rounding = forward_tiles(q, k, v, key_mask, number, last, order)
    return (out, log_total), (q, k, v, key_mask, number, last, out, log_total, rounding)


def backward_tiles(order, residuals, cotangents):
    q, k, v, key_mask, number, last, out, log_total, rounding = residuals
    queries = slopes(q, last, out, log_total, rounding, *cotangents)
    keys = Tiles(*all_into_tiles(k, v, key_mask, number))
    d_q, *sums = slopes_of_tiles(queries, keys, order)
    return d_q, *(from_tiles(tiles, len(q)) for tiles in sums), None, None, None


class Slopes(NamedTuple):
    """What the gradients at the keys need to know of the queries.

    d logits_ij = pattern_ij (d out_i . v_j - d out_i . out_i + d log_total_i). The pattern is
    exp(logits - log_total), with the rounding of log_total divided out.
    """

    q: jax.Array
    log_total: jax.Array
    d_out: jax.Array
    offset: jax.Array
    last: jax.Array


def slopes(q, last, out, log_total, rounding, d_out, d_log_total) -> Slopes:
    offset = (d_log_total - jnp.sum(d_out * out, axis=1)) / rounding
    return Slopes(q, log_total, d_out / rounding[:, None], offset, last)


def slopes_of_tiles(queries: Slopes, keys: Tiles, order: Order) -> tuple[jax.Array, ...]:
    """Gradients with respect to q [T, k], and to the tiles of k and v."""

    def query_block(sums, taken):
        q, log_total, d_out, offset, last = taken

        def add_keys(d_q, inputs):
            keys, d_k, d_v = inputs
            weights = weights_of(q, last, log_total, keys, order)
            d_logits = weights * (matmul(keys.v, d_out.T) + offset[None])
            d_q += matmul(keys.k.T, d_logits)  # its transpose would transpose the tile
            return d_q, (d_k + matmul(d_logits, q), d_v + matmul(weights, d_out))

        d_q, sums = jax.lax.scan(add_keys, jnp.zeros_like(q.T), (keys, *sums))
        return sums, d_q.T

    start = jnp.zeros_like(keys.k), jnp.zeros_like(keys.v)
    (d_k, d_v), d_q = jax.lax.scan(query_block, start, all_into_tiles(*queries))
    return from_tiles(d_q, len(queries.q)), d_k, d_v


wide_softmax.defvjp(forward_with_residuals, backward_tiles)
