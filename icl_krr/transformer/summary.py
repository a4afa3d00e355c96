"""The text of `Transformer.summary`."""

from __future__ import annotations

from typing import Any


def summary(model: Any, memory: Any) -> str:
    prologue = len(model.weights.prologue)
    after = f", after {prologue}" if prologue else ""
    lines = [
        f"attention  {model.spec.attention}",
        f"depth      {model.depth} blocks: {model.blocks_per_step} a step for "
        f"{model.steps} steps{after}",
        f"heads      {model.num_heads} in a block",
        f"MLP width  {model.mlp_width} units in a block",
        f"channels   {model.layout.width} = {model.carried} features + {model.overhead}",
    ]
    if memory is not None:
        work = f"{memory.flops:,} FLOPs, {memory.moved:,} bytes moved"
        lines += [f"memory     {memory.peak:,} bytes", f"work       {work}, each loop once"]
    for i, block in enumerate(model.blocks):
        heads = [write.to for group in block.attention for write in group.writes]
        units = dict.fromkeys(unit.to for unit in block.mlp)
        lines.append(
            f"block {i:<4} heads: {', '.join(heads) or '-'}; units: {', '.join(units) or '-'}"
        )
    return "\n".join([*lines, "layout", str(model.layout)])
