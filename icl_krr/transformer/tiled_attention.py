"""Softmax attention in tiles, with memory linear in the number of tokens."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..numerics import accumulator, matmul

LARGEST_PATTERN = 2**22
"""Largest number of entries of a pattern that is computed as a whole: that of 2048 tokens."""

TILE_SIDES = {"cpu": 1024}
"""Tokens on a side of a tile, by platform; otherwise 4096. CPU tiles should fit the caches."""

HIDDEN_LOGIT = -1e30
"""A logit whose softmax weight is 0, within the range of every dtype but float16."""


def uses_tiles(tokens: int, wanted: bool | None) -> bool:
    """Whether to compute patterns in tiles; if `wanted` is None, this depends on their size."""
    return tokens * tokens > LARGEST_PATTERN if wanted is None else wanted


def tiled_softmax(
    q: Float[Array, "T k"],
    k: Float[Array, "T k"],
    v: Float[Array, "T d"],
    visible: Bool[Array, " T"],
    causal: bool,
) -> tuple[Float[Array, "T d"], Float[Array, " T"]]:
    """Compute softmax(q k^T) v over the visible keys, and the logarithms of the denominators.

    No array of logits is larger than [tile, tile]. For every tile of queries, a scan over tiles of
    keys keeps the largest logit so far, rounded up to an integer. Logits are in base two, so
    earlier sums are rescaled by powers of two, without rounding. The backward pass computes every
    tile again. Forward-mode derivatives are not implemented. k and v must be zero at hidden tokens.
    For inputs in bfloat16 only the results are rounded: the tiles and their sums are in float32.

    Source: Milakov, Gimelshein, Online normalizer calculation for softmax, 2018; Dao et al.,
    FlashAttention, 2022.
    """
    wide = (part.astype(accumulator(q.dtype)) for part in (q, k, v))
    out, log_total = wide_softmax(*wide, visible, causal)  # pyright: ignore[reportGeneralTypeIssues]
    return out.astype(v.dtype), log_total.astype(q.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def wide_softmax(q, k, v, visible, causal):
    out, shift, total = forward_tiles(q, k, v, visible, causal)
    return out, logarithm(shift, total)


class Tiles(NamedTuple):
    """Keys, values and positions in tiles.

    An additional channel of the keys masks hidden tokens.
    """

    k: jax.Array
    v: jax.Array
    positions: jax.Array


def into_tiles(rows: jax.Array, tile: int) -> jax.Array:
    """[T, ...] as [tiles, tile, ...], padded with zeros."""
    padding = [(0, -len(rows) % tile)] + [(0, 0)] * (rows.ndim - 1)
    return jnp.pad(rows, padding).reshape(-1, tile, *rows.shape[1:])


def from_tiles(tiles: jax.Array, tokens: int) -> jax.Array:
    return tiles.reshape(-1, *tiles.shape[2:])[:tokens]


def tile_side(tokens: int) -> int:
    return min(TILE_SIDES.get(jax.default_backend(), 4096), tokens)


def tiles_of_keys(k: jax.Array, v: jax.Array, visible: jax.Array, tile: int) -> Tiles:
    hidden = jnp.where(visible, 0, HIDDEN_LOGIT).astype(k.dtype)
    padding = -len(k) % tile
    keys = jnp.concatenate([k, hidden[:, None]], axis=1)
    keys = jnp.pad(keys, ((0, padding), (0, 0)))
    keys = keys.at[len(k) :, -1].set(HIDDEN_LOGIT)
    return Tiles(
        into_tiles(keys, tile), into_tiles(v, tile), into_tiles(jnp.arange(len(keys)), tile)
    )


def logits(
    q: jax.Array, positions: jax.Array, keys: Tiles, causal: bool
) -> Float[Array, "keys queries"]:
    """Logits with the queries on the last axis, along which a CPU vectorises."""
    made = matmul(keys.k, q.T)
    if not causal:
        return made
    earlier = (keys.positions[:, None] < positions[None, :]) | (keys.positions[:, None] == 0)
    return jnp.where(earlier, made, HIDDEN_LOGIT)


def with_one(q: jax.Array) -> jax.Array:
    return jnp.concatenate([q, jnp.ones((len(q), 1), q.dtype)], axis=1)


def in_base_two(q: jax.Array) -> jax.Array:
    """Queries whose logits are in base two, so that shifts by integers are exact."""
    return with_one(q * np.log2(np.e).astype(q.dtype))


def logarithm(shift: jax.Array, total: jax.Array) -> jax.Array:
    """The natural logarithm of 2^shift times total."""
    return shift * np.log(2).astype(shift.dtype) + jnp.log(total)


def forward_tiles(q, k, v, visible, causal):
    """The output, and for every query the shift of its logits and the total of its weights."""
    tokens, tile = len(q), tile_side(len(q))
    keys = tiles_of_keys(
        k, jnp.concatenate([v, visible[:, None].astype(v.dtype)], 1), visible, tile
    )

    def queries(tile_of: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        q, positions = tile_of

        def take(state, keys: Tiles):
            shift, sums = state
            made = logits(q, positions, keys, causal)
            larger = jnp.maximum(shift, jnp.ceil(jnp.max(made, axis=0)))
            weights = jnp.exp2(made - larger[None])
            sums = sums * power_of_two(shift - larger)[None] + matmul(keys.v.T, weights)
            return (larger, sums), None

        start = (
            jnp.full(len(q), HIDDEN_LOGIT, q.dtype),
            jnp.zeros((v.shape[1] + 1, len(q)), v.dtype),
        )
        (shift, sums), _ = jax.lax.scan(take, start, keys)
        return (sums[:-1] / sums[-1:]).T, shift, sums[-1]

    tiles = into_tiles(in_base_two(q), tile), into_tiles(jnp.arange(tokens), tile)
    return tuple(from_tiles(part, tokens) for part in jax.lax.map(queries, tiles))


def power_of_two(exponent: jax.Array) -> jax.Array:
    """2^exponent for an integer exponent <= 0, exactly; 0 far below the range of the dtype."""
    lowest = jnp.finfo(exponent.dtype).minexp
    inside = jnp.maximum(exponent, lowest).astype(jnp.int32)
    return jnp.where(exponent < lowest, 0, jnp.ldexp(jnp.ones((), exponent.dtype), inside))


def forward_and_keep(q, k, v, visible, causal):
    out, shift, total = forward_tiles(q, k, v, visible, causal)
    return (out, logarithm(shift, total)), (q, k, v, visible, out, shift, total)


def backward_tiles(causal, kept, cotangents):
    """Gradients with respect to q, k and v, computed tile by tile.

    d logits_ij = pattern_ij (d out_i . v_j - d out_i . out_i + d log_total_i). The logits and their
    shifts are those of the forward pass, so the pattern is the same to the last bit.
    """
    q, k, v, visible, out, shift, total = kept
    d_out, d_log_total = cotangents
    tokens, tile = len(q), tile_side(len(q))
    keys = tiles_of_keys(k, v, visible, tile)
    offset = (d_log_total - jnp.sum(d_out * out, axis=1)) / total
    queries = (in_base_two(q), jnp.arange(tokens), shift, d_out / total[:, None], offset)

    def of_queries(sums, tile_of):
        q, positions, shift, d_out, offset = tile_of

        def of_keys(d_q, taken):
            keys, d_k, d_v = taken
            weights = jnp.exp2(logits(q, positions, keys, causal) - shift[None])
            d_logits = weights * (matmul(keys.v, d_out.T) + offset[None])
            d_q += matmul(d_logits.T, keys.k)
            return d_q, (d_k + matmul(d_logits, q), d_v + matmul(weights, d_out))

        d_q, sums = jax.lax.scan(of_keys, jnp.zeros_like(q), (keys, *sums))
        return sums, d_q

    start = jnp.zeros_like(keys.k), jnp.zeros_like(keys.v)
    (d_k, d_v), d_q = jax.lax.scan(
        of_queries, start, tuple(into_tiles(part, tile) for part in queries)
    )
    d_q, d_k, d_v = (from_tiles(tiles, tokens) for tiles in (d_q, d_k, d_v))
    return d_q[:, :-1], d_k[:, :-1] * np.log(2).astype(k.dtype), d_v, None


wide_softmax.defvjp(forward_and_keep, backward_tiles)
