"""Record the attention pattern of every head and the size of every slot in one forward pass."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .. import Task, Transformer, run_with_cache
from ..residual._tokens import TOKENS
from ..transformer._cache import Cache


class Pattern(NamedTuple):
    """Attention weights [T, T] of one head: one row per query token, one column per key token."""

    block: int
    name: str
    weights: np.ndarray


class Snapshot(NamedTuple):
    """Patterns of the heads, and root mean squares of the residual stream."""

    patterns: list[Pattern]
    roles: list[tuple[str, int]]  # the tokens in order, as (role, count)
    # root mean squares [depth + 1], before the first block and after every block
    slots: dict[str, np.ndarray]
    tokens: dict[str, np.ndarray]


def take_snapshot(model: Transformer, task: Task, *, blocks: int | None = None) -> Snapshot:
    """Run the model once; keep the patterns of the first `blocks` blocks, by default of all."""
    _, cache = run_with_cache(model, task, everything=True)
    patterns = [
        Pattern(block, name, weights)
        for block in range(model.depth if blocks is None else blocks)
        for name, weights in head_patterns(model, cache, block)
    ]
    stream = [cache["blocks.0.resid_pre"]]
    stream += [cache[f"blocks.{block}.resid_post"] for block in range(model.depth)]
    squares = {
        slot: np.stack([np.asarray(after[slot], float) ** 2 for after in stream])
        for slot in sorted(stream[0], key=model.layout.names.index)
    }
    supports = [("support", task.num_supports)]
    if model.spec.tokens == TOKENS[1]:
        supports = [("x, y in turns", 2 * task.num_supports)]
    roles = [("aggregator", 1), *supports, ("query", task.num_queries)]
    each = ((role, count, i) for role, count in roles for i in range(count))
    named = [f"{role} {i + 1}" if count > 1 else role for role, count, i in each]
    slots = {slot: np.sqrt(part.mean(axis=(1, 2))) for slot, part in squares.items()}
    every = np.concatenate([*squares.values()], axis=-1)
    tokens = dict(zip(named, np.sqrt(every.mean(axis=-1)).T, strict=True))
    return Snapshot(patterns, roles, slots, tokens)


def head_patterns(model: Transformer, cache: Cache, block: int) -> list[tuple[str, np.ndarray]]:
    """Name and pattern of every head of a block; a head is named by the slots it writes."""
    first = len(model.weights.prologue)
    at = block if block < first else first + (block - first) % model.blocks_per_step
    patterns = []
    for j, heads in enumerate(model.blocks[at].attention):
        writes = ", ".join(write.to for write in heads.writes)
        weights = np.asarray(cache[f"blocks.{block}.heads.{j}.pattern"])
        has_heads = len(weights) > 1
        patterns += [(f"head {h}" if has_heads else writes, one) for h, one in enumerate(weights)]
    return patterns
