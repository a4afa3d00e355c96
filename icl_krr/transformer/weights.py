"""The weights of a transformer, constructed or trained: one pytree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
from flax import struct

from .. import checks
from ..residual import Layout, Read


@dataclass(frozen=True)
class Spec:
    """What the forward must know beside the weights; hashable, part of the structure.

    `attention` is "linear" (no softmax, no scale) or "softmax" (no scale either: it stands in
    the query's weights). `causal` forbids tokens to read later ones. `num_features` and
    `num_outputs` are p and r of the tasks that the model takes.

    Raises ValueError for an unknown attention or a count < 1.

    >>> Spec(num_features=3, attention="linear").causal
    False
    """

    num_features: int
    num_outputs: int = 1
    attention: str = "softmax"
    causal: bool = False

    def __post_init__(self):
        checks.count("num_features", self.num_features)
        checks.count("num_outputs", self.num_outputs)
        checks.choice("attention", self.attention, ("linear", "softmax"))


@struct.dataclass
class Write:
    """A value and where it goes: the slot `to`, through the matrix `out` if there is one."""

    value: Read
    out: Any = None
    to: str = struct.field(pytree_node=False, default="stream")


@struct.dataclass
class Heads:
    """`heads` attention heads side by side that share what they write.

    `query` and `key` are [T, heads * d_k], cut into heads as ever; each write's value is
    [T, heads * d_v], weighed by the head's one pattern, laid side by side again and written.
    """

    query: Read
    key: Read
    writes: tuple[Write, ...]
    heads: int = struct.field(pytree_node=False, default=1)


@struct.dataclass
class Unit:
    """MLP units (up . h) * g(gate . h), written to the slot `to`, through `out` if there is one.

    `activation` names g (see `mlp.ACTIVATIONS`). Without a gate the units are linear, without
    an up they are g(gate . h), the plain MLP.
    """

    up: Read | None
    gate: Read | None = None
    out: Any = None
    to: str = struct.field(pytree_node=False, default="stream")
    activation: str = struct.field(pytree_node=False, default="identity")


@struct.dataclass
class Norm:
    """LayerNorm of one slot: `scale` and `bias` [width]."""

    scale: jax.Array
    bias: jax.Array


@struct.dataclass
class Block:
    """One attention sublayer, then one MLP sublayer; either may be empty.

    The norms, {slot: Norm}, are applied to what the sublayer reads (pre-norm).
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
    stacked over the L steps along its first axis; `final_norm` {slot: Norm} and `readout`, the
    read of the queries' stream that is the prediction.
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

    Differentiate with respect to it, update it with optax, pass it through jit; `spec` and
    `layout` are static. Constructions and `init` make them, `icl_krr.predict` runs them.
    """

    weights: Weights
    spec: Spec = struct.field(pytree_node=False)
    layout: Layout = struct.field(pytree_node=False)

    @property
    def steps(self) -> int:
        """Solver steps, the length of the scan."""
        leaves = jax.tree.leaves(self.weights.steps)
        return leaves[0].shape[0]

    @property
    def blocks_per_step(self) -> int:
        return len(self.weights.steps)

    @property
    def depth(self) -> int:
        """Blocks in all: the prologue's, and every step's."""
        return len(self.weights.prologue) + self.steps * self.blocks_per_step

    @property
    def dtype(self) -> Any:
        return jax.tree.leaves(self.weights)[0].dtype
