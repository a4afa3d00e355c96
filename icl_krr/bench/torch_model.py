"""A transformer of `icl_krr.transformer.init` in PyTorch, with the same weights."""

# pyright: reportMissingImports=false
# the other libraries may be missing

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from ..tasks import Task
from .peers import Programs, installed
from .plain_transformer import Weights, microbatches, sizes


def torch_transformer(weights: Weights, tasks: Task, heads: int, gradient: bool) -> Programs:
    """The predictions [b, q], or the squared error and its gradient in all weights.

    All tasks at once, and in microbatches.
    """
    if not installed("torch"):
        return {}
    import torch
    from torch.nn import functional as F

    def tensor(array: Any) -> Any:
        return torch.from_numpy(np.array(array))

    fields = [tensor(field) for field in (tasks.x, tasks.y, tasks.x_query, tasks.y_query)]
    weights = jax.tree.map(lambda leaf: tensor(leaf).requires_grad_(gradient), weights)
    n, width = tasks.num_supports, weights["positions"].shape[1]
    at = torch.arange(1 + n + tasks.num_queries)
    mask = (at < at[:, None]) & (at <= n)
    mask[0, 0] = True

    def affine(h: Any, matrix: Any, bias: Any) -> Any:
        return h @ matrix + bias

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
            parts = zip(*(field.split(size) for field in fields), strict=True)
            return torch.cat([predict(*part[:3]) for part in parts]).numpy()

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
