"""Merge all slots into one stream, so that a construction has ordinary weight matrices."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from .._core.numerics import matmul
from ..residual import Layout, Read
from ..residual._reads import one_hot
from ._tying import untie
from ._weights import Block, Heads, Transformer, Unit, Weights, Write, check_model


def dense(model: Transformer) -> Transformer:
    """Merge the slots of a model into one slot `stream` [T, d_model] with ordinary weight matrices.

    The merged model computes the same stream, and every entry of its matrices can be trained.
    d_model is `model.layout.width`. A block has one group of heads, or one for each log gate and
    each window, with matrices [d_model, heads * d_k] and [heads * d_v, d_model], and one group of
    units for each kind of MLP unit. Zeros pad all heads to a common d_k and d_v. Each step has
    separate weights (see `untie`). `run_with_cache` still finds the slots by name.

    A model that already has a single slot is returned unchanged. One with LayerNorm is refused,
    because that would act differently on the merged stream.

    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=3, ridge=0.1, steps=2)
    >>> d_model = model.layout.width
    >>> ik.dense(model).weights.readout.blocks["stream"].shape == (d_model, 1)
    True
    """
    check_model(model)
    if set(model.weights.embedding) == {"stream"}:
        return model
    weights = model.weights
    if weights.final_norm or any(b.attention_norm or b.mlp_norm for b in weights.steps):
        raise ValueError(
            "model must have no LayerNorm to be merged, got a model with LayerNorm; "
            "use the model without merging it"
        )
    return model.replace(weights=merge(model))


@jax.jit
def merge(model: Transformer) -> Weights:
    weights, merger = untie(model).weights, Merger(model.layout, model.dtype)
    embedding = [read @ merger.place(slot) for slot, read in weights.embedding.items()]
    positions = [matmul(table, merger.place(slot)) for slot, table in weights.positions.items()]
    merged = Weights(
        embedding={"stream": sum(embedding[1:], embedding[0])},
        positions={"stream": jnp.sum(jnp.stack(positions), 0)} if positions else {},
        prologue=tuple(map(merger.block, weights.prologue)),
        steps=tuple(jax.vmap(merger.block)(block) for block in weights.steps),
        readout=merger.read(weights.readout),
        readouts={name: merger.read(read) for name, read in weights.readouts.items()},
    )
    return jax.tree.map(lambda weight: weight.astype(model.dtype), merged)


def kind(unit: Unit) -> tuple[bool, bool, str]:
    return unit.up is not None, unit.gate is not None, unit.activation


@dataclass(frozen=True)
class Merger:
    """Merges reads, heads and units of a layout into ones of the slot `stream`."""

    layout: Layout
    dtype: DTypeLike

    def place(self, slot: str) -> np.ndarray:
        """The matrix [width of the slot, d_model] that copies a slot to its channels."""
        at = self.layout.channels(slot)
        return one_hot(at.start, at.stop - at.start, self.layout.width, self.dtype)

    def block(self, block: Block) -> Block:
        kinds = sorted(block.mlp, key=kind)
        plain: dict[int | None, tuple[Heads, ...]] = {}
        for heads in block.attention:
            if heads.log_gate is None:
                plain[heads.window] = (*plain.get(heads.window, ()), heads)
        gated = [(heads,) for heads in block.attention if heads.log_gate is not None]
        return Block(
            attention=tuple(self.heads(group) for group in (*plain.values(), *gated)),
            mlp=tuple(self.units(list(units)) for _, units in groupby(kinds, kind)),
        )

    def matrix(self, read: Read) -> jax.Array:
        """The matrix [d_model, width]: the blocks of all slots, stacked along the rows."""
        blocks = [
            jnp.asarray(read.matrix(slot.name, slot.width), self.dtype)
            if slot.name in read.slots
            else jnp.zeros((slot.width, read.width), self.dtype)
            for slot in self.layout.slots
        ]
        return jnp.concatenate(blocks)

    def read(self, *reads: Read) -> Read:
        """The outputs of reads, side by side."""
        matrix = jnp.concatenate([self.matrix(read) for read in reads], 1)
        return Read({"stream": matrix}, matrix.shape[1])

    def out(self, layer: Write | Unit) -> jax.Array | np.ndarray:
        """The output matrix [hidden, d_model], with its columns at the channels of the slot."""
        place = self.place(layer.to)
        return place if layer.out is None else matmul(layer.out, place)

    def heads(self, attention: tuple[Heads, ...]) -> Heads:
        d_model = self.layout.width
        d_k = max(group.query.width // group.heads for group in attention)
        d_v = max(sum(w.value.width for w in group.writes) // group.heads for group in attention)
        queries, keys, values, outs = [], [], [], []

        def by_head(matrix: jax.Array, heads: int, width: int) -> jax.Array:
            """Reshape [rows, heads * d] to [rows, heads, width], padded with zeros."""
            split = matrix.reshape(len(matrix), heads, -1)
            return jnp.pad(split, ((0, 0), (0, 0), (0, width - split.shape[-1])))

        for group in attention:
            h = group.heads
            queries.append(by_head(self.matrix(group.query), h, d_k))
            keys.append(by_head(self.matrix(group.key), h, d_k))
            value = [self.matrix(write.value).reshape(d_model, h, -1) for write in group.writes]
            values.append(by_head(jnp.concatenate(value, -1).reshape(d_model, -1), h, d_v))
            out = [self.out(write).reshape(h, -1, d_model) for write in group.writes]
            stacked = jnp.concatenate(out, 1)
            outs.append(jnp.pad(stacked, ((0, 0), (0, d_v - stacked.shape[1]), (0, 0))))
        heads = sum(group.heads for group in attention)

        def merged(parts: list[jax.Array], width: int) -> Read:
            matrix = jnp.concatenate(parts, 1).reshape(d_model, heads * width)
            return Read({"stream": matrix}, heads * width)

        out = jnp.concatenate(outs).reshape(heads * d_v, d_model)
        write = Write(merged(values, d_v), out, "stream")
        gate = attention[0].log_gate
        gate = None if gate is None else self.read(gate)
        window = attention[0].window
        return Heads(merged(queries, d_k), merged(keys, d_k), (write,), heads, gate, window=window)

    def units(self, units: list[Unit]) -> Unit:
        ups = [unit.up for unit in units if unit.up is not None]
        gates = [unit.gate for unit in units if unit.gate is not None]
        up, gate = (self.read(*reads) if reads else None for reads in (ups, gates))
        out = jnp.concatenate([self.out(unit) for unit in units])
        return Unit(up, gate, out, "stream", units[0].activation)
