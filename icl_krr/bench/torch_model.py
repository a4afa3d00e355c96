"""A transformer of `icl_krr.transformer.init` in PyTorch, with the same weights."""

# pyright: reportMissingImports=false
# the other libraries may be missing

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..transformer import Transformer
from .peers import Programs, installed


def torch_gradient(model: Transformer, stream: Any, seen: Any, targets: Any) -> Programs:
    """The gradient of the squared error in all weights; returns the gradient of the read-out."""
    if not installed("torch"):
        return {}
    import torch
    from torch.nn import functional as F

    weights = jax.tree.map(
        lambda leaf: torch.from_numpy(np.array(leaf)).requires_grad_(), model.weights
    )
    (block,), (heads,) = weights.steps, weights.steps[0].attention
    unit, bias = block.mlp
    stream, targets = torch.from_numpy(np.array(stream)), torch.from_numpy(np.array(targets))
    tokens, width = stream.shape[1:]
    earlier = np.tril(np.ones((tokens, tokens), bool), -1)
    earlier[0, 0] = True
    mask = torch.from_numpy(earlier & np.array(seen))

    def norm(at: Any, h: Any) -> Any:
        return F.layer_norm(h, (width,), at.scale, at.bias)

    def affine(read: Any, h: Any, layer: Any) -> Any:
        return h @ read.blocks["stream"][layer] + read.blocks["one"][layer]

    def split(h: Any) -> Any:
        return h.reshape(*h.shape[:-1], heads.heads, -1).transpose(1, 2)

    def loss() -> Any:
        h = stream + weights.positions["stream"][:tokens]
        for layer in range(model.steps):
            at = jax.tree.map(lambda leaf: leaf[layer], block.attention_norm["stream"])  # noqa: B023
            z = norm(at, h)
            (write,) = heads.writes
            parts = (
                split(affine(read, z, layer)) for read in (heads.query, heads.key, write.value)
            )
            mixed = F.scaled_dot_product_attention(*parts, attn_mask=mask, scale=1.0)
            h = h + mixed.transpose(1, 2).reshape(h.shape) @ write.out[layer]
            at = jax.tree.map(lambda leaf: leaf[layer], block.mlp_norm["stream"])  # noqa: B023
            hidden = F.gelu(affine(unit.gate, norm(at, h), layer), approximate="tanh")
            h = h + hidden @ unit.out[layer] + bias.up.blocks["one"][layer]
        last = norm(weights.final_norm["stream"], h[:, -1:])
        out = last @ weights.readout.blocks["stream"] + weights.readout.blocks["one"]
        return ((out[..., 0] - targets) ** 2).mean()

    parameters = [leaf for leaf in jax.tree.leaves(weights) if leaf.requires_grad]

    def program() -> Any:
        slopes = torch.autograd.grad(loss(), parameters, allow_unused=True)
        which = next(i for i, p in enumerate(parameters) if p is weights.readout.blocks["stream"])
        return slopes[which].numpy()

    return {"torch": program}
