"""The weights of a transformer, constructed or trained: one pytree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
from flax import struct

from .. import checks
from ..residual import TOKENS, Layout, Read


@dataclass(frozen=True)
class Spec:
    """What the forward must know beside the weights; hashable, part of the structure.

    `attention` is "linear" (no softmax, no scale) or "softmax" (no scale either: it stands in
    the query's weights). `causal` lets a token read only the aggregator and earlier ones: not
    itself either, so that a support whose output is asked for is as a query. `tokens` is "pairs",
    a token for each support, or "interleaved", one for its x and after it one for its y.
    `num_features` and `num_outputs` are p and r of the tasks that the model takes. `streaming`
    says whether softmax patterns are made tile by tile, in memory linear in context, and anew in
    every block; by default they are from 2048 tokens on (`tiled_attention.LARGEST_PATTERN`).

    Raises ValueError for an unknown attention or kind of tokens and a count < 1.

    >>> Spec(num_features=3, attention="linear").causal
    False
    """

    num_features: int
    num_outputs: int = 1
    attention: str = "softmax"
    causal: bool = False
    tokens: str = "pairs"
    streaming: bool | None = None

    def __post_init__(self):
        checks.count("num_features", self.num_features)
        checks.count("num_outputs", self.num_outputs)
        checks.choice("attention", self.attention, ("linear", "softmax"))
        checks.choice("tokens", self.tokens, TOKENS)


@struct.dataclass
class Write:
    """A value and where it goes: the slot `to`, through the matrix `out` if there is one.

    >>> Write(Read({"y": jax.numpy.ones(())}, 1), to="alpha").out is None
    True
    """

    value: Read
    out: Any = None
    to: str = struct.field(pytree_node=False, default="stream")


@struct.dataclass
class Heads:
    """`heads` attention heads side by side that share what they write.

    `query` and `key` are [T, heads * d_k], cut into heads as ever; each write's value is
    [T, heads * d_v], weighed by the head's one pattern, laid side by side again and written.

    >>> x = Read({"x": jax.numpy.ones(())}, 3)
    >>> Heads(query=x, key=x, writes=(Write(x, to="K_x"),)).heads
    1
    """

    query: Read
    key: Read
    writes: tuple[Write, ...]
    heads: int = struct.field(pytree_node=False, default=1)


@struct.dataclass
class Unit:
    r"""MLP units $(u^T h) \, g(v^T h)$, written to the slot `to`, through `out` if there is one.

    `up` reads $u^T h$ and `gate` $v^T h$, `activation` names $g$ (see `mlp.ACTIVATIONS`). Without a
    gate the units are linear, without an up they are $g(v^T h)$, the plain MLP.

    >>> r = Read({"r": jax.numpy.ones(())}, 1)
    >>> Unit(up=r, gate=r, to="square").activation
    'identity'
    """

    up: Read | None
    gate: Read | None = None
    out: Any = None
    to: str = struct.field(pytree_node=False, default="stream")
    activation: str = struct.field(pytree_node=False, default="identity")


@struct.dataclass
class Norm:
    """LayerNorm of one slot: `scale` and `bias` [width].

    >>> Norm(scale=jax.numpy.ones(8), bias=jax.numpy.zeros(8)).scale.shape
    (8,)
    """

    scale: jax.Array
    bias: jax.Array


@struct.dataclass
class Block:
    """One attention sublayer, then one MLP sublayer; either may be empty.

    The norms, {slot: Norm}, are applied to what the sublayer reads (pre-norm).

    >>> len(Block(mlp=(Unit(up=Read({"y": jax.numpy.ones(())}, 1), to="r"),)).attention)
    0
    """

    attention: tuple[Heads, ...] = ()
    mlp: tuple[Unit, ...] = ()
    attention_norm: dict[str, Norm] = struct.field(default_factory=dict)
    mlp_norm: dict[str, Norm] = struct.field(default_factory=dict)


@struct.dataclass
class Weights:
    """Everything that can be learned.

    `embedding` {slot: Read of the tokens' fields}; `positions` {slot: [max tokens, width]};
    `prologue`, blocks that run once; `steps`, the blocks of one solver step, every leaf
    stacked over the L steps along its first axis, or [1, ...] if they share it;
    `final_norm` {slot: Norm} and `readout`, the read of the queries' stream that is the
    prediction.

    >>> x = Read({"x": jax.numpy.ones(())}, 3)
    >>> Weights(embedding={"x": x}, steps=(Block(),), readout=x).readout.width
    3
    """

    embedding: dict[str, Read]
    steps: tuple[Block, ...]
    readout: Read
    prologue: tuple[Block, ...] = ()
    positions: dict[str, jax.Array] = struct.field(default_factory=dict)
    final_norm: dict[str, Norm] = struct.field(default_factory=dict)


@struct.dataclass
class Transformer:
    """Weights with their spec and layout: a pytree whose leaves are the weights.

    Differentiate with respect to it, update it with optax, pass it through jit; `spec`,
    `layout` and `steps`, the number of solver steps, are static. Where all weights are shared
    by the steps, `model.replace(steps=...)` is the same algorithm at another depth.
    Constructions and `init` make them, `icl_krr.predict` runs them.

    >>> import icl_krr as ik
    >>> model = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=2)
    >>> model.depth, model.num_heads, model.carried, model.overhead
    (1, 1, 2, 4)
    """

    weights: Weights
    spec: Spec = struct.field(pytree_node=False)
    layout: Layout = struct.field(pytree_node=False)
    steps: int = struct.field(pytree_node=False)

    @property
    def blocks_per_step(self) -> int:
        """Blocks of one solver step."""
        return len(self.weights.steps)

    @property
    def depth(self) -> int:
        """Blocks in all: the prologue's, and every step's."""
        return len(self.weights.prologue) + self.steps * self.blocks_per_step

    @property
    def num_heads(self) -> int:
        """Heads of the block that has most of them."""
        return max(sum(heads.heads for heads in block.attention) for block in self.blocks)

    @property
    def mlp_width(self) -> int:
        """Hidden units of the block that has most of them."""
        return max(sum(width(unit) for unit in block.mlp) for block in self.blocks)

    @property
    def overhead(self) -> int:
        """Channels beside those of x: c, where p + c or m + c channels hold the algorithm."""
        return self.layout.width - self.carried

    @property
    def carried(self) -> int:
        """Channels that carry x: all its p features, or m of a sketch."""
        return self.layout["x"].width if "x" in self.layout.names else self.spec.num_features

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Those of the prologue, then those of one step."""
        return (*self.weights.prologue, *self.weights.steps)

    @property
    def dtype(self) -> Any:
        """The dtype of the weights."""
        return jax.tree.leaves(self.weights)[0].dtype

    def summary(self) -> str:
        """What the model costs, line by line, then block by block, then its layout.

        >>> import icl_krr as ik
        >>> model = ik.constructions.gradient_descent(
        ...     ik.Linear(), num_features=3, ridge=0.1, steps=16, step_size=0.1
        ... )
        >>> print(model.summary().split("layout")[0].rstrip())
        attention  linear
        depth      16 blocks: 1 a step for 16 steps
        heads      1 in a block
        MLP width  4 units in a block
        channels   9 = 3 features + 6
        block 0    heads: K_r; units: alpha, prediction, r, K_r
        """
        prologue = len(self.weights.prologue)
        after = f", after {prologue}" if prologue else ""
        features = self.carried
        lines = [
            f"attention  {self.spec.attention}",
            f"depth      {self.depth} blocks: {self.blocks_per_step} a step for "
            f"{self.steps} steps{after}",
            f"heads      {self.num_heads} in a block",
            f"MLP width  {self.mlp_width} units in a block",
            f"channels   {self.layout.width} = {features} features + {self.overhead}",
        ]
        for i, block in enumerate(self.blocks):
            heads = [write.to for group in block.attention for write in group.writes]
            units = dict.fromkeys(unit.to for unit in block.mlp)
            lines.append(
                f"block {i:<4} heads: {', '.join(heads) or '-'}; units: {', '.join(units) or '-'}"
            )
        return "\n".join([*lines, "layout", str(self.layout)])


def width(unit: Unit) -> int:
    """Hidden units."""
    read = unit.up if unit.gate is None else unit.gate
    assert read is not None
    return read.width
