"""One model on top of another: it reads what the blocks below compute as its x."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from ..residual import Layout, Read, Slot
from .resume import unrolled_blocks
from .weights import Block, Transformer, Unit, check_model

ALIKE = ("attention", "causal", "inclusive", "aggregator", "tokens")


def stack(below: Transformer, above: Transformer) -> Transformer:
    r"""Put a construction on top of the blocks of a model, whose last stream becomes its x.

    All blocks of `below` run first. One more MLP copies their slot `stream` [T, d] to the slot x of
    `above`, at supports and queries, and then `above` runs as on a task with d features. So a
    solver of kernel ridge regression takes the features $\Phi$ [n, d] of the supports from lower
    layers, and a kernel with a projection $U$ uses $U \phi(x)$. The final norm and the read-outs of
    `below` are left out. Gradients reach the weights of both.

    Args:
        below: model of `icl_krr.init`, random or trained, with the slots `stream` and `one`.
        above: construction with `num_features` = d.

    Raises:
        ValueError: `below` has other slots, the models differ in their attention, mask or dtype,
            `tokens` is "interleaved", or `above` does not have d features.
        TypeError: an argument is not a model.

    >>> import jax
    >>> import icl_krr as ik
    >>> below = ik.init(jax.random.key(0), ik.Architecture(num_features=2, width=8, depth=3))
    >>> above = ik.constructions.richardson(
    ...     ik.Exponential(8.0), num_features=8, ridge=0.1, steps=16
    ... )
    >>> model = stack(below, above)
    >>> model.spec.num_features, model.depth - above.depth
    (2, 4)
    """
    check_model(below, "below")
    check_model(above, "above")
    if set(below.layout.names) != {"stream", "one"}:
        raise ValueError(
            "below must be a model of icl_krr.init, with the slots stream and one, "
            f"got the slots {', '.join(below.layout.names)}"
        )
    pairs = [(name, getattr(below.spec, name), getattr(above.spec, name)) for name in ALIKE]
    for name, theirs, ours in (*pairs, ("dtype", below.dtype, above.dtype)):
        if theirs != ours:
            raise ValueError(
                f"{name} of below and above must be the same, got {theirs!r} and {ours!r}"
            )
    if above.spec.tokens != "pairs":
        raise ValueError(f"tokens must be 'pairs' to stack models, got {above.spec.tokens!r}")
    d = below.layout["stream"].width
    if above.spec.num_features != d:
        raise ValueError(
            f"above must have num_features = {d}, the width of the stream of below, "
            f"got {above.spec.num_features}"
        )
    theirs, ours = below.weights, above.weights
    one = np.ones((), above.dtype)
    point = Read({"support": one, "query": one}, 1)
    embedding = {"stream": theirs.embedding["stream"], "bias": theirs.embedding["one"]}
    embedding["point"] = point
    copies, slots = [], {slot.name: slot for slot in above.layout.slots}
    for name, read in ours.embedding.items():
        rest = {field: block for field, block in read.blocks.items() if field != "x"}
        embedding[name] = Read(rest, read.width)
        if "x" in read.blocks:
            gate = Read({"point": np.ones((1, read.width), above.dtype)}, read.width)
            copies.append(Unit(Read({"stream": read.matrix("x", d)}, read.width), gate, to=name))
            slots[name] = dataclasses.replace(slots[name], kind="state")
    first = jax.tree.map(renamed, unrolled_blocks(below), is_leaf=lambda part: type(part) is Read)
    spec = dataclasses.replace(
        above.spec, num_features=below.spec.num_features, centred=below.spec.centred
    )
    weights = ours.replace(
        embedding=embedding,
        prologue=(*first, Block(mlp=tuple(copies)), *ours.prologue),
        positions={**theirs.positions, **ours.positions},
    )
    new = (
        Slot("bias", 1, "data", about="one of the blocks below, which training may have changed"),
        Slot("point", 1, "data", ("support", "query"), "flag of tokens with an x"),
    )
    layout = Layout((below.layout["stream"], *new, *slots.values()))
    return Transformer(weights, spec, layout, above.steps)


def renamed(part: Any) -> Any:
    """A read that has the slot `bias` for the slot `one`; other leaves stay as they are."""
    if not isinstance(part, Read) or "one" not in part.blocks:
        return part
    blocks = {"bias" if slot == "one" else slot: block for slot, block in part.blocks.items()}
    return Read(blocks, part.width)
