"""Split a forward pass at a block, or put one model on top of the blocks of another."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from .._core import checks
from ..residual import Layout, Read, Slot, Stream
from ..tasks import Task
from ._evaluate import embed_task
from ._run_plan import prepare_run
from ._tying import split_steps
from ._weights import Block, Transformer, Unit, check_model


def tail(model: Transformer, block: int) -> Transformer:
    """Cut off the first blocks of a model: keep block number `block` and all later blocks.

    The remaining model continues from the stream before that block (see `resume`). Do not call
    `predict` on it, because `predict` starts from the embedding of a task. If the cut goes through
    a step, the rest of that step becomes the new prologue.

    Args:
        block: number of the first block to keep; at `model.depth` only the readout remains.

    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=0.1, steps=4)
    >>> rest = tail(model, 8)
    >>> (model.depth, model.steps), (rest.depth, rest.steps, len(rest.weights.prologue))
    ((21, 4), (13, 2, 3))
    """
    check_block(model, block)
    first, per_step = len(model.weights.prologue), model.blocks_per_step
    if block <= first:
        rest = model.weights.replace(prologue=model.weights.prologue[block:])  # pyright: ignore[reportAttributeAccessIssue]
        return model.replace(weights=rest)  # pyright: ignore[reportAttributeAccessIssue]
    done = -(-(block - first) // per_step)
    cut = step_blocks(model, done - 1)[(block - first) - (done - 1) * per_step :]
    later: tuple[Block, ...] = ()
    if done < model.steps:
        later = jax.tree.map(lambda w: w if len(w) == 1 else w[done:], model.weights.steps)
    weights = model.weights.replace(prologue=cut, steps=later)  # pyright: ignore[reportAttributeAccessIssue]
    return model.replace(weights=weights, steps=model.steps - done)  # pyright: ignore[reportAttributeAccessIssue]


@jax.jit
def step_blocks(model: Transformer, step: int) -> tuple[Block, ...]:
    """The blocks of one step, without the axis of steps."""
    scanned, blocks = split_steps(model)
    return blocks([None if leaf is None else leaf[step] for leaf in scanned])


def unrolled_blocks(model: Transformer) -> list[Block]:
    """All blocks one by one: those of the prologue, then those of every step."""
    steps = (step_blocks(model, step) for step in range(model.steps))
    first = model.blocks[: len(model.weights.prologue)]
    return [*first, *(block for step in steps for block in step)]


def check_block(model: Transformer, block: int) -> None:
    check_model(model)
    checks.count("block", block, minimum=0)
    if block > model.depth:
        raise ValueError(f"block must be <= depth = {model.depth}, got {block}")


def resume(model: Transformer, task: Task, stream: Stream, block: int) -> jax.Array:
    """Predict from a given stream before a block, and run only the blocks from there on.

    Args:
        task: the task of the stream. Only its shapes, its mask and the size of its y are used.
        stream: the stream before the block, {slot: [T, width]}, such as
            `cache["blocks.3.resid_pre"]` or a modified copy. For a model with one output and a task
            with y [n, r], the stream has r as an additional last axis.
        block: number of the first block to run; at `model.depth` only the readout runs.

    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> _, cache = ik.run_with_cache(model, task, points=("resid_pre",))
    >>> resume(model, task, cache["blocks.3.resid_pre"], 3).tolist()
    [1.0]
    """
    rest = tail(model, block)
    checks.instance("stream", stream, dict, "a dict {slot: [T, width]}")
    for slot, value in stream.items():
        checks.floating(f"slot {slot}", value)
    plan = prepare_run(rest, task, stream=stream)
    together = task.num_outputs == model.spec.num_outputs
    one, outputs = (task, []) if together else (task.replace(y=task.y[..., 0]), [task.num_outputs])
    embedded = jax.eval_shape(lambda: embed_task(model, one))
    needed = {slot: [*value.shape, *outputs] for slot, value in embedded.items()}
    got = {slot: list(value.shape) for slot, value in stream.items()}
    if got != needed:
        raise ValueError(f"stream must have the slots and shapes {needed}, got {got}")
    return plan.program(rest, plan.task, **plan.options)[0]


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
