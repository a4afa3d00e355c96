"""Merge all slots into one stream, so that a construction has ordinary weight matrices."""

from __future__ import annotations

from functools import partial
from itertools import groupby

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from .. import capacity
from ..numerics import matmul
from ..residual import Layout, Read
from ..residual.reads import one_hot
from .tying import untie
from .weights import Block, Heads, Transformer, Unit, Weights, Write, check_model


def dense(model: Transformer) -> Transformer:
    """Merge the slots of a model into one slot `stream` [T, d_model] with ordinary weight matrices.

    The merged model computes the same stream with the same `forward`, and every entry of its
    matrices can be trained. d_model is `model.layout.width`. A block has one group of heads with
    matrices [d_model, heads * d_k] and [heads * d_v, d_model]. Zeros pad all heads to a common d_k
    and d_v. A block has one group of units for each kind of MLP unit. The merged model keeps the
    layout, so `run_with_cache` still finds the slots by name.

    Args:
        model: the model to merge. A model that already has a single slot is returned unchanged.

    Returns:
        A `Transformer` with separate weights for each step (see `untie`).

    Raises:
        ValueError: the model has LayerNorm, which would act differently on the merged stream.
        MemoryError: the merged weights do not fit into memory.

    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=3, ridge=0.1, steps=2)
    >>> d_model = model.layout.width
    >>> ik.dense(model).weights.readout.blocks["stream"].shape == (d_model, 1)
    True
    """
    check_model(model)
    layout = model.layout
    if set(model.weights.embedding) == {"stream"}:
        return model
    some = jax.tree.leaves(model.weights)[0]
    numbers = layout.width * (model.carried + sum(map(channels, model.weights.prologue)))
    numbers += layout.width * model.steps * sum(map(channels, model.weights.steps))
    capacity.check("merged weights", numbers, some, "use fewer features or steps")
    weights = model.weights
    if weights.final_norm or any(b.attention_norm or b.mlp_norm for b in weights.steps):
        raise ValueError(
            "model must have no LayerNorm to be merged, got a model with LayerNorm; "
            "use the model without merging it"
        )
    return model.replace(weights=merge(model))


@jax.jit
def merge(model: Transformer) -> Weights:
    layout, weights = model.layout, untie(model).weights
    embedding = [
        read @ one_hot(layout.channels(slot).start, read.width, layout.width, model.dtype)
        for slot, read in weights.embedding.items()
    ]
    positions = [
        matmul(
            table, one_hot(layout.channels(slot).start, table.shape[1], layout.width, table.dtype)
        )
        for slot, table in weights.positions.items()
    ]
    merge_one = partial(merge_block, layout, model.dtype)
    merged = Weights(
        embedding={"stream": sum(embedding[1:], embedding[0])},
        positions={"stream": jnp.sum(jnp.stack(positions), 0)} if positions else {},
        prologue=tuple(map(merge_one, weights.prologue)),
        steps=tuple(jax.vmap(merge_one)(block) for block in weights.steps),
        readout=merge_read(layout, model.dtype, weights.readout),
        readouts={
            name: merge_read(layout, model.dtype, read) for name, read in weights.readouts.items()
        },
    )
    return jax.tree.map(lambda weight: weight.astype(model.dtype), merged)


def channels(block: Block) -> int:
    """The number of channels that a block reads or writes: columns and rows of its matrices."""
    heads = [sum(read.width for read in heads.reads) for heads in block.attention]
    values = [2 * write.value.width for heads in block.attention for write in heads.writes]
    reads = [read.width for unit in block.mlp for read in (unit.up, unit.gate) if read is not None]
    return sum(heads) + sum(values) + sum(reads)


def merge_block(layout: Layout, dtype: DTypeLike, block: Block) -> Block:
    kinds = sorted(block.mlp, key=kind)
    plain = tuple(heads for heads in block.attention if heads.log_gate is None)
    gated = [(heads,) for heads in block.attention if heads.log_gate is not None]
    return Block(
        attention=tuple(merge_heads(layout, dtype, group) for group in (plain, *gated) if group),
        mlp=tuple(merge_units(layout, dtype, list(units)) for _, units in groupby(kinds, kind)),
    )


def merge_read(layout: Layout, dtype: DTypeLike, read: Read) -> Read:
    """The matrix [d_model, width]: the blocks of all slots, stacked along the rows."""
    blocks = [
        jnp.asarray(read.matrix(slot.name, slot.width), dtype)
        if slot.name in read.slots
        else jnp.zeros((slot.width, read.width), dtype)
        for slot in layout.slots
    ]
    return Read({"stream": jnp.concatenate(blocks)}, read.width)


def merge_out(
    layout: Layout, dtype: DTypeLike, slot: str, width: int, out: jax.Array | None
) -> jax.Array | np.ndarray:
    """The output matrix [width, d_model], with its columns at the channels of the slot."""
    at = layout.channels(slot)
    place = one_hot(at.start, at.stop - at.start, layout.width, dtype)
    return place if out is None else matmul(out, place)


def merge_heads(layout: Layout, dtype: DTypeLike, attention: tuple[Heads, ...]) -> Heads:
    def by_head(matrix: jax.Array, heads: int, width: int) -> jax.Array:
        """Reshape [rows, heads * d] to [rows, heads, width], padded with zeros."""
        split = matrix.reshape(len(matrix), heads, -1)
        return jnp.pad(split, ((0, 0), (0, 0), (0, width - split.shape[-1])))

    d_k = max(group.query.width // group.heads for group in attention)
    d_v = max(sum(w.value.width for w in group.writes) // group.heads for group in attention)
    queries, keys, values, outs = [], [], [], []
    for group in attention:
        h = group.heads
        for read, into in ((group.query, queries), (group.key, keys)):
            into.append(by_head(merge_read(layout, dtype, read).blocks["stream"], h, d_k))
        value = [
            merge_read(layout, dtype, write.value).blocks["stream"].reshape(layout.width, h, -1)
            for write in group.writes
        ]
        out = [
            merge_out(layout, dtype, write.to, write.value.width, write.out).reshape(
                h, -1, layout.width
            )
            for write in group.writes
        ]
        values.append(by_head(jnp.concatenate(value, -1).reshape(layout.width, -1), h, d_v))
        stacked = jnp.concatenate(out, 1)
        outs.append(jnp.pad(stacked, ((0, 0), (0, d_v - stacked.shape[1]), (0, 0))))
    heads = sum(group.heads for group in attention)

    def merged(parts: list[jax.Array], width: int) -> Read:
        matrix = jnp.concatenate(parts, 1).reshape(layout.width, heads * width)
        return Read({"stream": matrix}, heads * width)

    out = jnp.concatenate(outs).reshape(heads * d_v, layout.width)
    write = Write(merged(values, d_v), out, "stream")
    gate = attention[0].log_gate
    gate = None if gate is None else merge_read(layout, dtype, gate)
    return Heads(merged(queries, d_k), merged(keys, d_k), (write,), heads, gate)


def kind(unit: Unit) -> tuple[bool, bool, str]:
    return unit.up is not None, unit.gate is not None, unit.activation


def merge_units(layout: Layout, dtype: DTypeLike, units: list[Unit]) -> Unit:
    def side_by_side(reads: list[Read]) -> Read:
        blocks = [merge_read(layout, dtype, read).blocks["stream"] for read in reads]
        return Read({"stream": jnp.concatenate(blocks, 1)}, sum(read.width for read in reads))

    ups = [unit.up for unit in units if unit.up is not None]
    gates = [unit.gate for unit in units if unit.gate is not None]
    outs = [
        merge_out(layout, dtype, unit.to, (unit.up or unit.gate).width, unit.out)  # pyright: ignore
        for unit in units
    ]
    return Unit(
        up=side_by_side(ups) if ups else None,
        gate=side_by_side(gates) if gates else None,
        out=jnp.concatenate(outs),
        to="stream",
        activation=units[0].activation,
    )
