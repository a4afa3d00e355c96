"""The weights of a construction as weights of an unmodified T5 encoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from .._core import checks
from ..residual import Layout
from ..transformer import Block, Transformer, Unit, dense
from ..transformer._resume import unrolled_blocks

CONSTANT = 2.0**40
"""Value of the constant channel of every token, which makes RMSNorm the identity."""

HIDDEN_LOGIT_OFFSET = 2.0**20
"""Amount that is subtracted from the logits of hidden tokens (queries and padding)."""


CONFIG: dict[str, Any] = {
    "architectures": ["T5EncoderModel"],
    "model_type": "t5",
    "feed_forward_proj": "relu",
    "dropout_rate": 0.0,
    "is_encoder_decoder": False,
    "use_cache": False,
    "vocab_size": 1,
    "pad_token_id": 0,
    "eos_token_id": 0,
    "relative_attention_num_buckets": 32,
}


class Channels(NamedTuple):
    """Channels of a token: the slots, a flag of queries and padding, the constant, and zeros.

    `d_model` is a power of 4, so that its square root is a power of 2 and RMSNorm is exact.
    """

    width: int
    hidden: int
    constant: int
    d_model: int

    @classmethod
    def of(cls, layout: Layout) -> Channels:
        width = layout.width
        d_model = 4
        while d_model < width + 2:
            d_model *= 4
        return cls(width, width, width + 1, d_model)


class Layer(NamedTuple):
    """A layer: heads (query, key, value [d, .], out [., d]), ReLU units (wi [d, .], wo [., d])."""

    heads: list[tuple[np.ndarray, ...]]
    wi: np.ndarray
    wo: np.ndarray


def check_stock(model: Transformer) -> None:
    """Raise an error if a T5 encoder cannot represent the model."""
    if not isinstance(model, Transformer):
        raise TypeError(f"model must be an icl_krr.Transformer, got {type(model).__name__}")
    checks.factorable("model", model)
    if not jax.config.jax_enable_x64 and model.dtype == np.float64:  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError("model must be float32 if x64 is not enabled, got float64; enable x64")
    weights, spec = model.weights, model.spec
    normed = weights.final_norm or any(b.attention_norm or b.mlp_norm for b in model.blocks)
    kinds = {kind(unit) for block in model.blocks for unit in block.mlp}
    linear, interleaved = spec.attention == "linear", spec.tokens == "interleaved"
    gated = sorted(kinds - {"linear", "relu", "gelu"})
    refused = {
        "softmax attention, got linear; build it with attention='softmax'": linear,
        "attention in both directions, got causal; draw it with causal=False": spec.causal,
        "one token per support, got interleaved tokens; draw it with tokens='pairs'": interleaved,
        "no LayerNorm, got a model with LayerNorm; draw it with layer_norm=False": normed,
        "no positions, got learned positions; draw it with max_tokens=None": weights.positions,
        "ReLU units, got GELU; draw it with activation='relu'": "gelu" in kinds,
        f"ReLU units, got {', '.join(gated)}; build it with arithmetic=icl_krr.ReLU(width, bound), "
        "with bound=icl_krr.operand_bounds(model, task)": gated,
    }
    for rule, broken in refused.items():
        if broken:
            raise ValueError(f"model must have {rule}")


def kind(unit: Unit) -> str:
    """The kind of a unit: "linear", an activation such as "relu", or "units gated by ..."."""
    if unit.gate is None or (unit.up is None and unit.activation == "identity"):
        return "linear"
    return unit.activation if unit.up is None else f"units gated by {unit.activation}"


def layers(model: Transformer) -> list[Layer]:
    """All blocks, those of the prologue and of every step, as ordinary matrices."""
    merged = jax.tree.map(np.asarray, jax.jit(dense)(model))  # one compiled program
    width = model.layout.width
    return [Layer([*heads(block)], *units(block, width)) for block in unrolled_blocks(merged)]


def heads(block: Block) -> Iterator[tuple[np.ndarray, ...]]:
    for group in block.attention:
        (write,) = group.writes
        reads = [read.blocks["stream"] for read in (group.query, group.key, write.value)]
        each = [np.split(read, group.heads, axis=1) for read in reads]
        yield from zip(*each, np.split(write.out, group.heads), strict=True)


def units(block: Block, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The matrices of ReLU units; a linear unit v becomes relu(v) - relu(-v)."""
    wi, wo = [np.zeros((width, 0))], [np.zeros((0, width))]
    for unit in block.mlp:
        read = unit.up if unit.gate is None else unit.gate
        assert read is not None
        for sign in (1, -1) if kind(unit) == "linear" else (1,):
            wi.append(sign * read.blocks["stream"])
            wo.append(sign * unit.out)
    return np.concatenate(wi, 1), np.concatenate(wo)


def t5_config_and_tensors(model: Transformer) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The config of the T5 encoder and its tensors, with zeros where the model has no weight."""
    at, all_layers = Channels.of(model.layout), layers(model)
    each = [head for layer in all_layers for head in layer.heads]
    sizes = {
        "d_model": at.d_model,
        # queries and keys have one additional channel: the flag of hidden tokens
        "d_kv": max([1] + [max(q.shape[1] + 1, v.shape[1]) for q, _, v, _ in each]),
        "d_ff": max([1] + [layer.wi.shape[1] for layer in all_layers]),
        "num_heads": max([1] + [len(layer.heads) for layer in all_layers]),
        "num_layers": len(all_layers),
    }
    tensors: dict[str, np.ndarray] = {"shared.weight": np.zeros((1, at.d_model))}
    # the weight w of RMSNorm for which w h / sqrt(CONSTANT^2 / d_model) is h
    norm = np.full(at.d_model, CONSTANT / at.d_model**0.5)
    for i, layer in enumerate(all_layers):
        attention, mlp = f"encoder.block.{i}.layer.0", f"encoder.block.{i}.layer.1"
        for name, tensor in attention_tensors(layer, at, sizes).items():
            tensors[f"{attention}.SelfAttention.{name}.weight"] = tensor
        for name, tensor in mlp_tensors(layer, at, sizes).items():
            tensors[f"{mlp}.DenseReluDense.{name}.weight"] = tensor
        for sublayer in (attention, mlp):
            tensors[f"{sublayer}.layer_norm.weight"] = norm
    bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    tensors[bias] = np.zeros((CONFIG["relative_attention_num_buckets"], sizes["num_heads"]))
    tensors["encoder.final_layer_norm.weight"] = norm
    config = CONFIG | sizes | {"torch_dtype": str(model.dtype)}
    return config, {name: tensor.astype(model.dtype) for name, tensor in tensors.items()}


def attention_tensors(layer: Layer, at: Channels, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """The projections [out, in]; each head has logits <q_i, k_j> - HIDDEN_LOGIT_OFFSET hidden_j."""
    q, k, v, o = (np.zeros((sizes["num_heads"], sizes["d_kv"], at.d_model)) for _ in range(4))
    q[:, -1, at.constant] = 1 / CONSTANT
    k[:, -1, at.hidden] = -HIDDEN_LOGIT_OFFSET
    for h, (query, key, value, out) in enumerate(layer.heads):
        for into, matrix in ((q, query), (k, key), (v, value), (o, out.T)):
            into[h, : matrix.shape[1], : at.width] = matrix.T
    flat = {name: m.reshape(-1, at.d_model) for name, m in zip("qkvo", (q, k, v, o), strict=True)}
    return flat | {"o": flat["o"].T}


def mlp_tensors(layer: Layer, at: Channels, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    wi, wo = (np.zeros((sizes["d_ff"], at.d_model)) for _ in range(2))
    wi[: layer.wi.shape[1], : at.width] = layer.wi.T
    wo[: len(layer.wo), : at.width] = layer.wo
    return {"wi": wi, "wo": wo.T}
