"""A transformer of `ik.transformer.init` in plain JAX and PyTorch, with the same weights."""

# pyright: reportMissingImports=false

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.contests import Programs
from icl_krr import Task, Transformer

Weights = dict[str, Any]


def plain_weights(model: Transformer) -> Weights:
    """The weights of a model, or their gradients, by name; biases are vectors."""
    (block,), (heads,) = model.weights.steps, model.weights.steps[0].attention
    (write,), (unit, bias) = heads.writes, block.mlp
    assert unit.gate is not None
    assert bias.up is not None

    def affine(read: Any) -> tuple[jax.Array, jax.Array]:
        return read.blocks["stream"], read.blocks["one"][..., 0, :]

    return {
        "embedding": dict(model.weights.embedding["stream"].blocks),
        "positions": model.weights.positions["stream"],
        "blocks": {
            "attention norm": tuple(jax.tree.leaves(block.attention_norm["stream"])),
            "query": affine(heads.query),
            "key": affine(heads.key),
            "value": affine(write.value),
            "out": write.out,
            "MLP norm": tuple(jax.tree.leaves(block.mlp_norm["stream"])),
            "up": affine(unit.gate),
            "down": (unit.out, bias.up.blocks["one"][..., 0, :]),
        },
        "norm": tuple(jax.tree.leaves(model.weights.final_norm["stream"])),
        "readout": affine(model.weights.readout),
    }


def predict(weights: Weights, tasks: Task, *, heads: int, remat: bool = False) -> jax.Array:
    """The predictions [b, q] for a batch of tasks; with `remat`, a gradient recomputes blocks."""
    n, width = tasks.num_supports, weights["positions"].shape[1]
    embedding = weights["embedding"]
    supports = tasks.x @ embedding["x"] + tasks.y[..., None] * embedding["y"] + embedding["support"]
    queries = tasks.x_query @ embedding["x"] + embedding["query"]
    first = jnp.broadcast_to(embedding["aggregator"], (len(tasks.x), 1, width))
    h = jnp.concatenate([first, supports, queries], axis=1)
    at = jnp.arange(h.shape[1])
    h = h + weights["positions"][jnp.minimum(at, n + 1)]
    mask = ((at < at[:, None]) & (at <= n)).at[0, 0].set(True)

    def split(channels: jax.Array) -> jax.Array:
        return channels.reshape(*channels.shape[:-1], heads, width // heads)

    def block(h: jax.Array, w: Weights) -> tuple[jax.Array, None]:
        z = norm(h, *w["attention norm"])
        q, k, v = (split(affine(z, *w[name])) for name in ("query", "key", "value"))
        logits = jnp.where(mask, jnp.einsum("bihd,bjhd->bhij", q, k), -jnp.inf)
        mixed = jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(logits), v)
        h = h + mixed.reshape(h.shape) @ w["out"]
        hidden = jax.nn.gelu(affine(norm(h, *w["MLP norm"]), *w["up"]))
        return h + affine(hidden, *w["down"]), None

    h, _ = jax.lax.scan(jax.checkpoint(block) if remat else block, h, weights["blocks"])
    return affine(norm(h[:, n + 1 :], *weights["norm"]), *weights["readout"])[..., 0]


def affine(h: Any, matrix: Any, bias: Any) -> Any:
    return h @ matrix + bias


def norm(h: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    h = h - jnp.mean(h, axis=-1, keepdims=True)
    return h * jax.lax.rsqrt(jnp.mean(h * h, axis=-1, keepdims=True) + 1e-5) * scale + bias


Ways = dict[str, Callable[[Weights, Task], Any]]
"""Programs of the same result, by name: all tasks at once, and in microbatches."""


def predictions(heads: int, batch: int) -> Ways:
    whole = partial(predict, heads=heads)

    def by(size: int, weights: Weights, tasks: Task) -> jax.Array:
        return jax.lax.map(partial(whole, weights), parts(tasks, size)).reshape(batch, -1)

    return {"scan": whole, **{microbatches(size): partial(by, size) for size in sizes(batch)}}


def gradients(heads: int, batch: int) -> Ways:
    """The squared error and its gradient."""

    def loss(weights: Weights, tasks: Task, remat: bool = False) -> jax.Array:
        predictions = predict(weights, tasks, heads=heads, remat=remat)
        return jnp.mean((predictions - tasks.y_query) ** 2)

    whole = jax.value_and_grad(loss)

    def by(size: int, weights: Weights, tasks: Task) -> Any:
        def add(sums: Any, part: Task) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, sums, whole(weights, part)), None

        zeros = jnp.zeros(()), jax.tree.map(jnp.zeros_like, weights)
        sums, _ = jax.lax.scan(add, zeros, parts(tasks, size))
        return jax.tree.map(lambda total: total * (size / batch), sums)

    ways = {"scan": whole, "scan, remat": jax.value_and_grad(partial(loss, remat=True))}
    return ways | {microbatches(size): partial(by, size) for size in sizes(batch)}


def sizes(batch: int) -> list[int]:
    return [size for size in (8, 16) if size < batch]


def microbatches(size: int) -> str:
    return f"microbatches of {size}"


def parts(tasks: Task, size: int) -> Task:
    return jax.tree.map(lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]), tasks)


def torch_transformer(weights: Weights, tasks: Task, heads: int, gradient: bool) -> Programs:
    """The predictions [b, q], or the squared error and its gradient; {} without PyTorch."""
    try:
        import torch
    except ImportError:
        return {}
    from torch.nn import functional as F

    def tensor(array: Any) -> Any:
        return torch.from_numpy(np.array(array))

    fields = [tensor(field) for field in (tasks.x, tasks.y, tasks.x_query, tasks.y_query)]
    weights = jax.tree.map(lambda leaf: tensor(leaf).requires_grad_(gradient), weights)
    n, width = tasks.num_supports, weights["positions"].shape[1]
    at = torch.arange(1 + n + tasks.num_queries)
    mask = (at < at[:, None]) & (at <= n)
    mask[0, 0] = True

    def norm(h: Any, scale: Any, bias: Any) -> Any:
        return F.layer_norm(h, (width,), scale, bias)

    def split(h: Any) -> Any:
        return h.reshape(*h.shape[:-1], heads, -1).transpose(1, 2)

    def predict(x: Any, y: Any, x_query: Any) -> Any:
        embedding = weights["embedding"]
        supports = x @ embedding["x"] + y[..., None] * embedding["y"] + embedding["support"]
        queries = x_query @ embedding["x"] + embedding["query"]
        first = embedding["aggregator"].expand(len(x), 1, width)
        h = torch.cat([first, supports, queries], 1) + weights["positions"][at.clamp(max=n + 1)]
        leaves, structure = jax.tree.flatten(weights["blocks"])
        # not by indexing, whose gradient fills a whole stack with zeros for every block
        for of_block in zip(*(leaf.unbind(0) for leaf in leaves), strict=True):
            w = jax.tree.unflatten(structure, of_block)
            z = norm(h, *w["attention norm"])
            q, k, v = (split(affine(z, *w[name])) for name in ("query", "key", "value"))
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)
            h = h + mixed.transpose(1, 2).reshape(h.shape) @ w["out"]
            hidden = F.gelu(affine(norm(h, *w["MLP norm"]), *w["up"]), approximate="tanh")
            h = h + affine(hidden, *w["down"])
        return affine(norm(h[:, n + 1 :], *weights["norm"]), *weights["readout"])[..., 0]

    def forward(size: int) -> Any:
        with torch.inference_mode():
            batches = zip(*(field.split(size) for field in fields), strict=True)
            return torch.cat([predict(*part[:3]) for part in batches]).numpy()

    def backward(size: int) -> Any:
        total = 0.0
        for *part, targets in zip(*(field.split(size) for field in fields), strict=True):
            loss = ((predict(*part) - targets) ** 2).sum() / fields[-1].numel()
            loss.backward()
            total += loss.item()
        slopes = jax.tree.map(lambda leaf: leaf.grad.numpy(), weights)
        for leaf in jax.tree.leaves(weights):
            leaf.grad = None
        return np.float32(total), slopes

    run, batch = backward if gradient else forward, len(tasks.x)
    in_parts = {f"torch, {microbatches(size)}": partial(run, size) for size in sizes(batch)[-1:]}
    return {"torch": partial(run, batch), **in_parts}
