"""Change the weights of a model and not its algorithm: rotate, superpose, add noise, train."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ... import Layout, Read, Slot, Task, Transformer, map_tasks
from ..._core.numerics import matmul
from ...probes import layerwise
from ...transformer import Block, Heads, Unit, Weights, Write, dense, run_with_cache, untie


@jax.jit
def _change_channels(model: Transformer, read: jax.Array, write: jax.Array) -> Transformer:
    r"""The model with the stream $h$ in other channels, $h W$, which it reads as $h W R$.

    With an orthogonal matrix $W$ [d_model, m] (`write`) and $R = W^T$ (`read`) the model computes
    the same. Its slots are merged first (`icl_krr.dense`), because no channel belongs to one slot
    any longer. It must have no LayerNorm.
    """
    merged = dense(model)
    width = write.shape[1]
    reads = partial(jax.tree.map, partial(_change_read, read), is_leaf=is_read)

    def block(one: Block) -> Block:
        return Block(tuple(map(heads, one.attention)), tuple(map(unit, one.mlp)))

    def heads(group: Heads) -> Heads:
        writes = tuple(Write(reads(w.value), matmul(w.out, write), "stream") for w in group.writes)
        query, key, gate = map(reads, (group.query, group.key, group.log_gate))
        return Heads(query, key, writes, group.heads, gate, window=group.window)

    def unit(one: Unit) -> Unit:
        up, gate = map(reads, (one.up, one.gate))
        return Unit(up, gate, matmul(one.out, write), "stream", one.activation)

    weights = merged.weights
    changed = Weights(
        embedding={"stream": weights.embedding["stream"] @ write},
        prologue=tuple(map(block, weights.prologue)),
        steps=tuple(jax.vmap(block)(one) for one in weights.steps),
        readout=_change_read(read, weights.readout),
        readouts=reads(weights.readouts),
    )
    return Transformer(changed, model.spec, Layout((Slot("stream", width),)), model.steps)


def is_read(part: Any) -> bool:
    return isinstance(part, Read)


def _change_read(read: jax.Array, part: Any) -> Any:
    if not is_read(part):
        return part
    return Read({"stream": matmul(read, part.blocks["stream"])}, part.width)


@jax.jit
def rotated(model: Transformer, key: jax.Array) -> Transformer:
    """The model, without LayerNorm, with its merged stream rotated by a random orthogonal matrix.

    Slots that only the aggregator has keep their channels. They hold divisors, which are exactly 0
    at all other tokens; after a rotation they would be rounding errors there.
    """
    slots = model.layout.slots
    is_rotated = np.concatenate([np.full(s.width, s.at != ("aggregator",)) for s in slots])
    places = np.flatnonzero(is_rotated)
    eye, turn = jnp.eye(len(is_rotated)), jax.random.orthogonal(key, len(places))
    rotation = eye.at[jnp.ix_(places, places)].set(turn)
    return _change_channels(model, rotation.T, rotation)


@jax.jit
def perturbed(model: Transformer, key: jax.Array, level: float) -> Transformer:
    """Every weight of every step, multiplied by its own 1 + level z, z standard normal."""
    leaves, structure = jax.tree.flatten(untie(model))
    keys = jax.random.split(key, len(leaves))
    noisy = [
        leaf * (1 + level * jax.random.normal(one, leaf.shape, leaf.dtype))
        for one, leaf in zip(keys, leaves, strict=True)
    ]
    return structure.unflatten(noisy)


def superposed(
    model: Transformer, tasks: Task, key: jax.Array, width: int, updates: int = 2000
) -> Transformer:
    """The model in `width` channels, fewer than it has, so that its slots cannot stay orthogonal.

    The stream is projected to its `width` principal directions on the tasks, in which the channels
    are rotated. Adam then trains all weights until the predictions after every layer are those of
    the model, which must have no LayerNorm.
    """
    plain = _change_channels(model, *2 * (jnp.eye(model.layout.width),))
    points = ("resid_pre.stream", "resid_mid.stream", "resid_post.stream")

    def moments(task: Task) -> jax.Array:
        cache = run_with_cache(plain, task, points=points)[1]
        h = jnp.stack([cache.stack(point) for point in points]).reshape(-1, model.layout.width)
        return matmul(h.T, h)

    _, directions = jnp.linalg.eigh(jnp.sum(map_tasks(moments, tasks), axis=0))
    projection = matmul(directions[:, -width:], jax.random.orthogonal(key, width))
    targets = jax.jit(partial(map_tasks, partial(layerwise, model)))(tasks)
    size = jnp.mean(targets[:, 1:] ** 2, axis=(0, 2))

    def error(model: Transformer) -> jax.Array:
        gap = jax.vmap(partial(layerwise, model))(tasks) - targets
        return jnp.mean(jnp.mean(gap[:, 1:] ** 2, axis=(0, 2)) / size)

    return descend(_change_channels(plain, projection.T, projection), error, updates, 3e-3)


def descend(
    model: Transformer,
    error: Callable[[Transformer], jax.Array],
    updates: int,
    learning_rate: float,
) -> Transformer:
    """The model after updates of Adam on all its weights, with a learning rate that falls to 0."""
    rate = optax.cosine_decay_schedule(learning_rate, updates)
    adam = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(rate))

    def update(state: tuple, _: None) -> tuple[tuple, None]:
        model, memory = state
        moved, memory = adam.update(jax.grad(error)(model), memory, model)
        return (optax.apply_updates(model, moved), memory), None

    run = jax.jit(lambda model: jax.lax.scan(update, (model, adam.init(model)), length=updates)[0])
    return run(model)[0]
