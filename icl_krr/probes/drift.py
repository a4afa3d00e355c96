"""How far weights have moved, slot by slot and head by head."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..numerics import matmul
from ..residual import ROLES
from ..transformer import Block, Transformer, dense
from ..transformer.mlp import activate, project
from ..transformer.resume import unrolled_blocks

LinearMaps = dict[str, jax.Array]
"""Linear maps [d_model, d_model] from what is read to what is matched or written, by part."""


def drift(model: Transformer, start: Transformer) -> list[dict[str, Any]]:
    """The change of what every head and MLP moves from slot to slot: one row for each pair.

    Of the blocks alone: embedding, positions and read-out have no row.

    `part` is one of `linear_maps`, `from` and `to` are slots of the layout that both models must
    share. `change` is $|M' - M|$ of the pair's entries and `now` is $|M'|$, both relative to $|M|$
    of the whole map at the start. Pairs that are zero in both have no row.

    Raises ValueError for models of another layout, depth or number of heads, and for LayerNorm.

    >>> import icl_krr as ik
    >>> start, model = (
    ...     ik.constructions.gradient_descent(
    ...         ik.Linear(), num_features=2, ridge=0.1, steps=1, step_size=eta
    ...     )
    ...     for eta in (0.1, 0.2)
    ... )
    >>> {row["to"] for row in drift(model, start) if row["change"]} == {"alpha", "r", "prediction"}
    True
    """
    for one in (model, start):
        if not isinstance(one, Transformer):
            raise TypeError(f"model must be an icl_krr.Transformer, got {type(one).__name__}")
        if any(block.attention_norm or block.mlp_norm for block in one.blocks):
            raise ValueError(
                "model must have no LayerNorm, through which weights are no maps between slots, "
                "got one that has; compare its predictions"
            )
    if model.layout != start.layout or model.depth != start.depth:
        raise ValueError(
            f"model must have the layout and the depth of the start, {start.depth} blocks, got "
            f"{model.depth}{'' if model.layout == start.layout else ' and another layout'}"
        )
    layout, rows = model.layout, []
    for number, (now, before) in enumerate(zip(*map(linear_maps, (model, start)), strict=True)):
        if now.keys() != before.keys():
            raise ValueError(
                f"model must have the heads of the start in block {number}, "
                f"got {', '.join(now)} and {', '.join(before)}"
            )
        for part, whole in before.items():
            size = np.linalg.norm(whole) or 1.0
            for a, b in product(layout.names, layout.names):
                at = layout.channels(a), layout.channels(b)
                new, old = np.asarray(now[part])[at], np.asarray(whole)[at]
                if new.any() or old.any():
                    moved = float(np.linalg.norm(new - old) / size)
                    row = {"block": number, "part": part, "from": a, "to": b}
                    rows.append({**row, "change": moved, "now": float(np.linalg.norm(new) / size)})
    return rows


def linear_maps(model: Transformer) -> list[LinearMaps]:
    """Every block as linear maps between the slots.

    A head is "head 0, query-key", $Q K^T$ of unit norm, and "head 0, value-output", $V O$ times the
    norm that $Q K^T$ had: the scale that one can lend the other. An MLP is "mlp, support" and so
    on, its derivative at a token of that role that holds nothing but its flags.

    >>> import icl_krr as ik
    >>> model = ik.constructions.gradient_descent(
    ...     ik.Linear(), num_features=2, ridge=0.1, steps=3, step_size=0.1
    ... )
    >>> [*linear_maps(model)[0]][:2], len(linear_maps(model))
    (['head 0, query-key', 'head 0, value-output'], 3)
    """
    merged = dense(model)
    tokens = {role: role_stream(merged, role) for role in ROLES}
    return [block_maps(block, tokens) for block in unrolled_blocks(merged)]


def role_stream(merged: Transformer, role: str) -> jax.Array:
    """The stream [d_model] of a token that is told its role and nothing else."""
    spec = merged.spec
    told = {"x": spec.num_features, "y": spec.num_outputs, **dict.fromkeys([*ROLES, "one"], 1)}
    fields = {
        name: jnp.full((1, width), name in (role, "one"), merged.dtype)
        for name, width in told.items()
    }
    return merged.weights.embedding["stream"](fields)[0]


@jax.jit
def block_maps(block: Block, tokens: dict[str, jax.Array]) -> LinearMaps:
    found: LinearMaps = {}
    for group in block.attention:
        (write,) = group.writes
        reads = (group.query, group.key, write.value)
        query, key, value = (jnp.split(r.blocks["stream"], group.heads, axis=1) for r in reads)
        out = jnp.split(write.out, group.heads)
        for h, (q, k, v, o) in enumerate(zip(query, key, value, out, strict=True)):
            match = matmul(q, k.T)
            size = jnp.linalg.norm(match)
            found[f"head {h}, query-key"] = match / jnp.where(size == 0, 1, size)
            found[f"head {h}, value-output"] = size * matmul(v, o)

    def mlp(h: jax.Array) -> jax.Array:
        stream = {"stream": h[None]}
        return sum((project(activate(u, stream), u.out)[0] for u in block.mlp), 0 * h)

    return found | {f"mlp, {role}": jax.jacobian(mlp)(h).T for role, h in tokens.items()}
