"""Split a forward pass in two: up to a block, and from that block on."""

from __future__ import annotations

import jax

from .._core import checks
from ..residual import Stream
from ..tasks import Task
from ._evaluate import embed_task
from ._run_plan import prepare_run
from ._tying import split_steps
from ._weights import Block, Transformer, check_model


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
        later = jax.tree.map(
            lambda leaf: leaf if len(leaf) == 1 else leaf[done:], model.weights.steps
        )
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
