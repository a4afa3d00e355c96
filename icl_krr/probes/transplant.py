"""Slots of the stream that are given, and a forward that goes on from there."""

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
    """The prediction if slots held other values before a block: [q] or [q, r].

    `slots` is {name: value}, each as `run_with_cache` gives the slot (at the tokens of its role if
    it lives at one only), from another task or another model; `block` = depth is after the last.

    Raises ValueError for unknown slots and values of other shapes, and as `predict` does.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> transplant(model, task, 0, {"r": jnp.array([6.0]), "p": jnp.array([6.0])}).tolist()
    [2.0]
    """
    check_compatible(model, task)
    if task.num_outputs != model.spec.num_outputs:
        raise ValueError(
            f"task must have the model's {model.spec.num_outputs} outputs, got {task.num_outputs}"
        )
    check_block(model, block)
    cut = min(block, model.depth - 1)
    point = "resid_pre" if cut == block else "resid_post"
    stream = run_with_cache(model, task, names=(), points=(point,))[1][f"blocks.{cut}.{point}"]
    for name, value in slots.items():
        checks.floating(name, value)
        slot = model.layout[name]
        at = tokens_of_role(slot.at, task, model.spec.tokens)
        own = slot_of_stream(stream, model.layout, name)
        wanted = jnp.shape(own[at])
        if jnp.shape(value) not in (wanted, wanted[:1] if wanted[1:] == (1,) else wanted):
            raise ValueError(
                f"slot {name} must be given as {list(wanted)}, got {list(jnp.shape(value))}"
            )
        stream = put_slot(stream, model, name, own.at[at].set(jnp.reshape(value, wanted)))
    return resume(model, task, stream, block)


def put_slot(stream: Stream, model: Transformer, name: str, value: jax.Array) -> Stream:
    if set(stream) != {"stream"}:
        return {**stream, name: value}
    at = model.layout.channels(name)
    return {"stream": stream["stream"].at[:, at].set(value)}
