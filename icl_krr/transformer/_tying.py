"""Shared weights of all steps (leaves [1, ...]) and separate weights (leaves [steps, ...])."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..residual import Fixed, Stream
from . import _weights


def written_slots(blocks: Iterable[_weights.Block]) -> set[str]:
    return {slot for block in blocks for layer in block.layers for slot in _weights.widths(layer)}


def live_slots(blocks: Iterable[_weights.Block]) -> set[str]:
    """The slots that the blocks write and may leave at values other than zero."""
    lasting: set[str] = set()
    for block in blocks:
        erased = erased_slots(block)
        lasting |= {write.to for heads in block.attention for write in heads.writes}
        lasting -= erased
        lasting |= {unit.to for unit in block.mlp if not (erases(unit) and unit.to in erased)}
    return lasting


def erased_slots(block: _weights.Block) -> set[str]:
    """The slots from which the MLP subtracts exactly what they hold."""
    return {unit.to for unit in block.mlp if erases(unit)} - set(block.mlp_norm)


def erases(unit: _weights.Unit) -> bool:
    """Whether a unit sets its slot to zero: it adds -h, and the coefficient is no weight."""
    if unit.gate is not None or unit.out is not None or unit.up is None:
        return False
    coefficients = unit.up.blocks
    block = coefficients.get(unit.to)
    return len(coefficients) == 1 and isinstance(block, Fixed) and block == -1


def loop_carried_slots(blocks: Iterable[_weights.Block], stream: Stream) -> Stream:
    """The slots whose values one step passes to the next; `stream` is the one before the first."""
    blocks = tuple(blocks)
    written, lasting = written_slots(blocks), live_slots(blocks)
    zeros = {s for s, value in stream.items() if isinstance(value, np.ndarray) and not value.any()}
    return {s: value for s, value in stream.items() if s in lasting | (written - zeros)}


def known_zeros(like: Any) -> Any:
    """Zeros that are known while JAX traces: a NumPy array is a constant of the program."""
    return np.zeros(like.shape, like.dtype)


def untie(model: _weights.Transformer) -> _weights.Transformer:
    """Give every step its own copy of the weights; the predictions stay the same.

    Each leaf of `weights.steps` becomes [steps, ...], so that each step can be fine-tuned
    separately. Constructions share the weights that are the same in every step: a gradient changes
    all steps alike, and constant attention patterns are computed once.

    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=3, ridge=0.1, steps=4)
    >>> query = lambda model: model.weights.steps[0].attention[0].query.blocks["x"]
    >>> query(model).shape, query(untie(model)).shape
    ((1,), (4,))
    """
    _weights.check_model(model)

    def spread(leaf: jax.Array) -> jax.Array:
        return jnp.broadcast_to(leaf, (model.steps, *leaf.shape[1:]))

    weights = model.weights
    patterns = {name: replace(heads, pattern=None) for name, heads in weights.patterns.items()}
    first = _weights.with_patterns(weights.prologue, patterns)
    steps = _weights.with_patterns(weights.steps, jax.tree.map(lambda leaf: leaf[None], patterns))
    steps = jax.tree.map(spread, steps)
    return model.replace(weights=replace(weights, prologue=first, steps=steps, patterns={}))


def split_steps(
    model: _weights.Transformer,
) -> tuple[list[Any], Callable[[list[Any]], tuple[_weights.Block, ...]]]:
    """The leaves that differ between steps, for the scan, and a function from them to blocks."""
    leaves, structure = jax.tree.flatten(model.weights.steps)
    for leaf in leaves:
        if leaf.shape[0] not in (1, model.steps):
            raise ValueError(
                f"steps must be {leaf.shape[0]}, the number of steps in the weights, "
                f"got {model.steps}"
            )
    tied = [leaf[0] if leaf.shape[0] == 1 else None for leaf in leaves]
    scanned = [leaf if shared is None else None for leaf, shared in zip(leaves, tied, strict=True)]

    def blocks(now: list[Any]) -> tuple[_weights.Block, ...]:
        pairs = zip(now, tied, strict=True)
        merged = structure.unflatten([leaf if shared is None else shared for leaf, shared in pairs])
        return _weights.with_patterns(merged, model.weights.patterns)

    return scanned, blocks


def token_invariant_slots(model: _weights.Transformer) -> frozenset[str]:
    """The slots that are the same at all tokens: those of means and of units of such slots."""
    embedding = model.weights.embedding
    slots = {s for s in embedding if embedding[s].slots <= {"one"}} - set(model.weights.positions)
    before = None
    while before != slots:
        before = set(slots)
        for block in model.blocks:
            for heads in block.attention:
                if not is_mean(heads, model.spec):
                    slots -= set(_weights.widths(heads))
            for unit in block.mlp:
                reads = _weights.expressions(unit)
                if not all(read.blocks and read.slots <= slots for read in reads):
                    slots.discard(unit.to)
    return frozenset(slots)


def is_mean(heads: _weights.Heads, spec: _weights.Spec) -> bool:
    """Whether queries or keys read no slot, so that softmax weighs all visible tokens alike."""
    nothing = not (heads.query.blocks and heads.key.blocks)
    return nothing and spec.attention == "softmax" and not spec.causal


def constant_heads(model: _weights.Transformer) -> list[tuple[int, int]]:
    """The pairs (block, group of heads) whose pattern is the same in every step.

    They read only slots that no step (in the prologue: no block after them) writes, with weights
    that all steps share.
    """
    blocks, first = model.blocks, len(model.weights.prologue)

    def constant(at: int, block: _weights.Block, heads: _weights.Heads) -> bool:
        read = heads.query.slots | heads.key.slots
        weights = jax.tree.leaves((heads.query, heads.key, block.attention_norm))
        if heads.pattern is None:
            same = at >= first and all(leaf.shape[0] == 1 for leaf in weights)
        else:
            same = not block.attention_norm
        return same and not read & written_slots(blocks[min(at, first) :])

    pairs = [(at, j) for at, block in enumerate(blocks) for j in range(len(block.attention))]
    return [(at, j) for at, j in pairs if constant(at, blocks[at], blocks[at].attention[j])]
