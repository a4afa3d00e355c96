"""One model on top of another: it reads what the blocks below compute as its x."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from ..residual import Layout, Read, Slot
from ._resume import unrolled_blocks
from ._weights import Block, Transformer, Unit, check_model

ALIKE = ("num_outputs", "attention", "causal", "inclusive", "aggregator", "tokens")


def stack(below: Transformer, above: Transformer) -> Transformer:
    r"""Put a construction on top of the blocks of a model, whose last stream becomes its x.

    All blocks of `below` run first. One more MLP copies their slot `stream` [T, d] to the slot x of
    `above`, at supports and queries. Then `above` runs as on a task with d features $\phi(x)$. The
    final norm and the readouts of `below` are left out. Gradients reach the weights of both.

    Args:
        below: model of `icl_krr.init`, random or trained, with one token per support.
        above: construction with `num_features` = d, with the same attention, mask and dtype.

    >>> import jax
    >>> import icl_krr as ik
    >>> below = ik.init(jax.random.key(0), ik.Architecture(num_features=2, width=8, depth=3))
    >>> above = ik.constructions.richardson(ik.Gaussian(4.0), num_features=8, ridge=0.1, steps=16)
    >>> model = stack(below, above)
    >>> model.spec.num_features, model.depth - above.depth
    (2, 4)
    """
    check_model(below, "below")
    check_model(above, "above")
    if {*below.layout.names} != {"stream", "one"} or below.spec.tokens != "pairs":
        raise ValueError("below must be a model of icl_krr.init with one token per support")
    pairs = [(name, getattr(below.spec, name), getattr(above.spec, name)) for name in ALIKE]
    for name, theirs, ours in (*pairs, ("dtype", below.dtype, above.dtype)):
        if theirs != ours:
            raise ValueError(f"{name} of below and above must agree, got {theirs!r} and {ours!r}")
    width = below.layout["stream"].width
    if above.spec.num_features != width:
        raise ValueError(
            f"num_features of above must be {width}, the width of the stream of below, "
            f"got {above.spec.num_features}"
        )
    theirs, ours = below.weights, above.weights
    point = Read({role: np.ones((), above.dtype) for role in ("support", "query")}, 1)
    embedding = {"stream": theirs.embedding["stream"], "bias": theirs.embedding["one"]}
    copies, slots = [], {slot.name: slot for slot in above.layout.slots}
    for name, read in ours.embedding.items():
        rest = {field: block for field, block in read.blocks.items() if field != "x"}
        embedding[name] = Read(rest, read.width)
        if "x" in read.blocks:
            gate = Read({"point": np.ones((1, read.width), above.dtype)}, read.width)
            value = Read({"stream": read.matrix("x", width)}, read.width)
            copies.append(Unit(value, gate, to=name))
            slots[name] = dataclasses.replace(slots[name], kind="state")
    first = jax.tree.map(renamed, unrolled_blocks(below), is_leaf=lambda part: type(part) is Read)
    weights = dataclasses.replace(
        ours,
        embedding={**embedding, "point": point},
        prologue=(*first, Block(mlp=tuple(copies)), *ours.prologue),
        positions={**theirs.positions, **ours.positions},
    )
    sizes = {name: getattr(below.spec, name) for name in ("num_features", "centred")}
    new = Slot("bias", 1, "data"), Slot("point", 1, "data", ("support", "query"), "flag")
    layout = Layout((below.layout["stream"], *new, *slots.values()))
    return Transformer(weights, dataclasses.replace(above.spec, **sizes), layout, above.steps)


def renamed(part: Any) -> Any:
    """A read of the slot `one` reads `bias`, because training may have changed what it holds."""
    if not isinstance(part, Read):
        return part
    names = {"one": "bias"}
    return Read({names.get(slot, slot): block for slot, block in part.blocks.items()}, part.width)
