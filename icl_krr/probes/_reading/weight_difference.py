"""How much the weights of a model have changed, for every head and every pair of slots."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._core.numerics import matmul
from ...residual import ROLES
from ...transformer import Block, Transformer, dense
from ...transformer._block import activate
from ...transformer._heads import project
from ...transformer._resume import unrolled_blocks
from ...transformer._weights import check_model

LinearMaps = dict[str, jax.Array]
"""Linear maps [d_model, d_model] between slots, by name of the head or MLP that computes them."""


def weight_difference(model: Transformer, start: Transformer) -> list[dict[str, Any]]:
    """Measure how much each head and MLP has changed, for every pair of slots.

    Only blocks are compared. Embedding, positions and readout are left out.

    Args:
        model: trained model, without LayerNorm.
        start: model before training, with the same layout, depth and heads.

    Returns:
        A list of rows, one for each pair of slots where one of the models has a non-zero entry.
        With the map $M$ of `start` and the map $M'$ of `model`, a row contains "block" (its
        number), "part" (name of the map, as in `linear_maps`), the slots "from" and "to", "change"
        (Frobenius norm of the entries of $M' - M$ for this pair, divided by the norm of the whole
        $M$) and "now" (norm of the entries of $M'$ for this pair, divided by the same norm).

    >>> import icl_krr as ik
    >>> start, model = (
    ...     ik.constructions.gradient_descent(
    ...         ik.Linear(), num_features=2, ridge=0.1, steps=1, step_size=eta
    ...     )
    ...     for eta in (0.1, 0.2)
    ... )
    >>> rows = weight_difference(model, start)
    >>> sorted({row["to"] for row in rows if row["change"]})
    ['alpha', 'prediction', 'r']
    """
    _check_linear("model", model)
    _check_linear("start", start)
    if model.layout != start.layout or model.depth != start.depth:
        raise ValueError(
            f"model must have the layout and the depth of start, {start.depth} blocks, got "
            f"{model.depth} blocks{'' if model.layout == start.layout else ' and another layout'}"
        )
    layout, rows = model.layout, []
    pairs = zip(linear_maps(model), linear_maps(start), strict=True)
    for number, (after, before) in enumerate(pairs):
        if after.keys() != before.keys():
            raise ValueError(
                f"model must have the same parts as start in block {number}, which are "
                f"{', '.join(before)}; got {', '.join(after)}"
            )
        for part, whole in before.items():
            size = np.linalg.norm(whole) or 1.0
            for a, b in product(layout.names, layout.names):
                at = layout.channels(a), layout.channels(b)
                new, old = np.asarray(after[part])[at], np.asarray(whole)[at]
                if new.any() or old.any():
                    change = float(np.linalg.norm(new - old) / size)
                    row = {"block": number, "part": part, "from": a, "to": b}
                    rows.append({**row, "change": change, "now": float(np.linalg.norm(new) / size)})
    return rows


def linear_maps(model: Transformer) -> list[LinearMaps]:
    """Express every block of a model without LayerNorm as {part: map [d_model, d_model] of slots}.

    - "head 0, query-key" is $Q K^T$, scaled to norm 1. "head 0, value-output" is $V O$ times the
      norm of $Q K^T$. Linear attention computes the same output if $Q K^T$ is multiplied
      by a positive factor and $V O$ is divided by it. The two maps do not depend on this factor.
    - "mlp, support", "mlp, query" and "mlp, aggregator" are the derivatives of the MLP at a token
      of that role with zero x and y.

    >>> import icl_krr as ik
    >>> model = ik.constructions.gradient_descent(
    ...     ik.Linear(), num_features=2, ridge=0.1, steps=3, step_size=0.1
    ... )
    >>> [*linear_maps(model)[0]][:2], len(linear_maps(model))
    (['head 0, query-key', 'head 0, value-output'], 3)
    """
    _check_linear("model", model)
    merged = dense(model)
    tokens = {role: _role_stream(merged, role) for role in ROLES}
    return [_block_maps(block, tokens) for block in unrolled_blocks(merged)]


def _check_linear(name: str, model: Transformer) -> None:
    check_model(model, name)
    if any(block.attention_norm or block.mlp_norm for block in model.blocks):
        raise ValueError(
            f"{name} must have no LayerNorm, because LayerNorm is not a linear map between "
            "slots; compare predictions instead"
        )


def _role_stream(merged: Transformer, role: str) -> jax.Array:
    """The stream [d_model] of a token with the flags of its role and zero x and y."""
    spec = merged.spec
    widths = {"x": spec.num_features, "y": spec.num_outputs, **dict.fromkeys([*ROLES, "one"], 1)}
    flags = (role, "one")
    fields = {name: jnp.full((1, n), name in flags, merged.dtype) for name, n in widths.items()}
    return merged.weights.embedding["stream"](fields)[0]


@jax.jit
def _block_maps(block: Block, tokens: dict[str, jax.Array]) -> LinearMaps:
    maps: LinearMaps = {}
    for group in block.attention:
        (write,) = group.writes
        reads = (group.query, group.key, write.value)
        query, key, value = (jnp.split(r.blocks["stream"], group.heads, axis=1) for r in reads)
        out = jnp.split(write.out, group.heads)
        for h, (q, k, v, o) in enumerate(zip(query, key, value, out, strict=True)):
            match = matmul(q, k.T)
            size = jnp.linalg.norm(match)
            maps[f"head {h}, query-key"] = match / jnp.where(size == 0, 1, size)
            maps[f"head {h}, value-output"] = size * matmul(v, o)

    def mlp(h: jax.Array) -> jax.Array:
        stream = {"stream": h[None]}
        return sum((project(activate(u, stream), u.out)[0] for u in block.mlp), 0 * h)

    return maps | {f"mlp, {role}": jax.jacobian(mlp)(h).T for role, h in tokens.items()}
