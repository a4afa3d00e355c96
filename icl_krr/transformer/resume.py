"""A forward pass in two: up to a block, and on from there."""

from __future__ import annotations

import jax

from .. import checks
from ..residual import Stream
from ..tasks import Task
from .evaluate import check_compatible, embed_task, evaluate
from .tying import split_steps
from .weights import Block, Transformer


def tail(model: Transformer, block: int) -> Transformer:
    """The blocks from number `block` on, as a model: it reads the stream that came before them.

    A step that the cut goes through is finished by the new prologue. `block` is 0 to the depth;
    `predict` would give it the embedding of a task, `resume` gives it any stream.

    Raises ValueError for a block that the model does not have.

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
    later = () if done == model.steps else model.weights.steps
    later = jax.tree.map(lambda leaf: leaf if leaf.shape[0] == 1 else leaf[done:], later)
    weights = model.weights.replace(prologue=cut, steps=later)  # pyright: ignore[reportAttributeAccessIssue]
    return model.replace(weights=weights, steps=model.steps - done)  # pyright: ignore[reportAttributeAccessIssue]


def step_blocks(model: Transformer, step: int) -> tuple[Block, ...]:
    """The blocks of one step, no longer stacked."""
    scanned, blocks = split_steps(model)
    return blocks([None if leaf is None else leaf[step] for leaf in scanned])


def unrolled_blocks(model: Transformer) -> list[Block]:
    """Every block by itself: those of the prologue, then those of every step."""
    steps = (step_blocks(model, step) for step in range(model.steps))
    return [*model.weights.prologue, *(block for step in steps for block in step)]


def check_block(model: Transformer, block: int) -> None:
    checks.count("block", block, minimum=0)
    if block > model.depth:
        raise ValueError(f"block must be <= depth = {model.depth}, got {block}")


def resume(model: Transformer, task: Task, stream: Stream, block: int) -> jax.Array:
    """The prediction from a stream that is given before a block: [q] or [q, r].

    `stream` is {slot: [T, width]}, such as `cache["blocks.3.resid_pre"]` for `block` 3 or what
    was made of it, `block` = depth is the read-out alone; `task` tells the tokens apart. In the
    task's dtype.

    Raises as `predict` does, and ValueError for a stream of other slots or widths.

    >>> import jax.numpy as jnp
    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> _, cache = ik.run_with_cache(model, task, points=("resid_pre",))
    >>> resume(model, task, cache["blocks.3.resid_pre"], 3).tolist()
    [1.0]
    """
    check_compatible(model, task)
    rest = tail(model, block)
    if not isinstance(stream, dict):
        raise TypeError(f"stream must be a dict of slots, got {type(stream).__name__}")
    together = task.num_outputs == model.spec.num_outputs
    one, outputs = (task, []) if together else (task.replace(y=task.y[..., 0]), [task.num_outputs])
    own = jax.eval_shape(lambda: embed_task(model, one))
    needed = {slot: [*value.shape, *outputs] for slot, value in own.items()}
    got = {slot: list(value.shape) for slot, value in stream.items()}
    if got != needed:
        raise ValueError(f"stream must be {needed}, got {got}")
    return evaluate(rest, task, stream=stream)[0]
