"""Replace slots of the stream before a block, and continue the forward pass from there."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..residual import Stream
from ..residual.tokens import slot_of_stream, tokens_of_role
from ..tasks import Task
from ..transformer import Transformer, resume, run_with_cache
from ..transformer.evaluate import check_compatible
from ..transformer.resume import check_block


def transplant(
    model: Transformer, task: Task, block: int, slots: dict[str, jax.Array]
) -> Float[Array, " q"]:
    """Predict with other values in some slots of the stream before a block.

    Args:
        model: constructed or trained model.
        task: one task.
        block: number of the block, 0 to `model.depth`; `model.depth` means the stream after the
            last block.
        slots: {name: value} with floating-point values, such as those of another task or model. The
            shapes are those of `run_with_cache`: [tokens, width]. If a slot exists at one role
            only, its tokens are those of this role. An axis of width 1 may be left out.

    Returns:
        The prediction [q] or [q, r].

    Raises:
        ValueError: a slot is unknown or its value has another shape, the block does not exist, or
            the task does not fit the model.
        TypeError: a value is not floating point, or the dtype of the task is too wide.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> transplant(model, task, 0, {"r": jnp.array([6.0]), "p": jnp.array([6.0])}).tolist()
    [2.0]
    """
    check_compatible(model, task)
    if task.num_outputs != model.spec.num_outputs:
        raise ValueError(
            f"task must have num_outputs = {model.spec.num_outputs} like the model, "
            f"got {task.num_outputs}"
        )
    check_block(model, block)
    checks.instance("slots", slots, dict, "{name: value}")
    for name, value in slots.items():
        checks.floating(name, value)
    cut = min(block, model.depth - 1)
    point = "resid_pre" if cut == block else "resid_post"
    stream = run_with_cache(model, task, names=(), points=(point,))[1][f"blocks.{cut}.{point}"]
    for name, value in slots.items():
        slot = model.layout[name]
        at = tokens_of_role(slot.at, task, model.spec.tokens)
        own = slot_of_stream(stream, model.layout, name)
        wanted = jnp.shape(own[at])
        if jnp.shape(value) not in (wanted, wanted[:1] if wanted[1:] == (1,) else wanted):
            raise ValueError(
                f"slot {name} must have shape {list(wanted)}, got {list(jnp.shape(value))}"
            )
        stream = put_slot(stream, model, name, own.at[at].set(jnp.reshape(value, wanted)))
    return resume(model, task, stream, block)


def put_slot(stream: Stream, model: Transformer, name: str, value: jax.Array) -> Stream:
    if set(stream) != {"stream"}:
        return {**stream, name: value}
    at = model.layout.channels(name)
    return {"stream": stream["stream"].at[:, at].set(value)}
