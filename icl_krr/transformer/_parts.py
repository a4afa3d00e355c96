"""The static settings of a model, and the parts of a block: groups of heads and MLP units."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, fields
from typing import Any

import jax
from flax import struct

from .._core import checks
from .._core.readable import readable
from ..residual import TOKENS, Read


@dataclass(frozen=True)
class Spec:
    r"""Static settings of the forward pass: hashable, and part of the structure of the pytree.

    Args:
        num_outputs: number of outputs r of a task. A model with one output also takes tasks with
            more outputs and predicts each output separately.
        attention: "softmax" or "linear" (no softmax). The logits are not scaled in either case: a
            factor such as $1 / \sqrt{d_k}$ belongs to the query weights.
        causal: whether a token attends only to the aggregator (the first token) and to earlier
            tokens.
        inclusive: whether a causal token also attends to itself.
        tokens: "pairs" has one token per support; "interleaved" has one token for the x of a
            support, followed by one token for its y.
        streaming: whether softmax attention is computed in tiles: its memory is then linear in the
            number of tokens, and every block recomputes its patterns. None uses them above 2048
            tokens.
        centred: whether the embedding subtracts the mean of the unmasked supports' x from every x
            (see `icl_krr.residual.embed`).
        max_supports: largest number of supports for which the model has enough steps.
        aggregator: whether every token attends to the aggregator. With False, no token attends to
            it, and a query attends to itself, as in GPT-2; `inclusive` must then be True.

    >>> Spec(num_features=3, attention="linear").causal
    False
    """

    num_features: int
    num_outputs: int = 1
    attention: str = "softmax"
    causal: bool = False
    tokens: str = "pairs"
    streaming: bool | None = None
    centred: bool = False
    inclusive: bool = False
    max_supports: int | None = None
    aggregator: bool = True

    def __post_init__(self):
        for field in fields(self):
            if field.type == "bool":
                checks.flag(field.name, getattr(self, field.name))
        checks.count("num_features", self.num_features)
        checks.count("num_outputs", self.num_outputs)
        if self.max_supports is not None:
            checks.count("max_supports", self.max_supports)
        checks.choice("attention", self.attention, ("linear", "softmax"))
        checks.choice("tokens", self.tokens, TOKENS)
        if self.inclusive and not self.causal:
            raise ValueError("causal must be True if inclusive is True, got False; set causal=True")
        if not (self.aggregator or self.inclusive):
            raise ValueError(
                "inclusive must be True if aggregator is False, got False; set inclusive=True"
            )

    @property
    def order(self) -> str:
        """The causal mask: "" (none), "exclusive" (earlier tokens) or "inclusive" (itself, too).

        With "own", tokens that no other token reads read themselves, too.
        """
        if not self.aggregator:
            return "own"
        return ("inclusive" if self.inclusive else "exclusive") if self.causal else ""


@readable
@struct.dataclass
class Write:
    """A value and the slot to which a group of heads adds it.

    Args:
        value: `Read` that computes the values from the stream, [T, heads * d_v].
        out: output matrix [heads * d_v, width of `to`]; None adds the mixed values unchanged.
        to: slot to write to.

    >>> Write(Read({"y": jax.numpy.ones(())}, 1), to="alpha").out is None
    True
    """

    value: Read
    out: Any = None
    to: str = struct.field(pytree_node=False, default="stream")


@readable
@struct.dataclass
class Heads:
    """A group of attention heads that write to the same slots.

    Every `Read` returns the concatenated channels of all heads. Each head computes one attention
    pattern and applies it to its channels of every value.

    Args:
        query: `Read` that returns the queries of all heads, [T, heads * d_k]; None with `pattern`.
        key: `Read` that returns the keys of all heads, [T, heads * d_k]; None with `pattern`.
        writes: values and their target slots, one `Write` for each slot.
        heads: number of heads H.
        log_gate: `Read` that returns the cumulative log gates G of all heads, [T, heads]. The
            pattern is multiplied by exp(G_i - G_j), so that a gate below 1 forgets earlier tokens.
            Only causal linear attention takes it.
        pattern: name of the heads in `Weights.patterns` that have the queries, keys and gates of
            these heads; None: they have their own.
        window: number w >= 1 of tokens that a token of a causal model reads, beside the aggregator:
            the last w visible ones of its mask; None: all of them.

    >>> x = Read({"x": jax.numpy.ones(())}, 3)
    >>> Heads(query=x, key=x, writes=(Write(x, to="K_x"),)).heads
    1
    """

    query: Any
    key: Any
    writes: tuple[Write, ...]
    heads: int = struct.field(pytree_node=False, default=1)
    log_gate: Read | None = None
    pattern: str | None = struct.field(pytree_node=False, default=None)
    window: int | None = struct.field(pytree_node=False, default=None)

    @property
    def reads(self) -> tuple[Read, ...]:
        """The reads that determine the patterns."""
        return tuple(r for r in (self.query, self.key, self.log_gate) if r is not None)


@readable
@struct.dataclass
class Unit:
    r"""MLP units $(u^T h) \, g(v^T h)$ of the stream $h$, added to one slot.

    Args:
        up: `Read` that returns $u^T h$, [T, hidden]. None leaves this factor out: the units are
            $g(v^T h)$, as in a plain MLP.
        gate: `Read` that returns $v^T h$, [T, hidden]; None: the units are linear, $u^T h$.
        out: output matrix [hidden, width of `to`]; None adds the hidden units unchanged.
        to: slot to write to.
        activation: function $g$ of the gate, "identity", "relu", "gelu", "exp", "log", "cos",
            "normal_cdf" (the standard normal distribution function), "inverse" ($1 / x$) or
            "reciprocal" ($1 / x$, but 0 where $x$ is 0 or close to underflow).

    >>> r = Read({"r": jax.numpy.ones(())}, 1)
    >>> Unit(up=r, gate=r, to="square").activation
    'identity'
    """

    up: Read | None
    gate: Read | None = None
    out: Any = None
    to: str = struct.field(pytree_node=False, default="stream")
    activation: str = struct.field(pytree_node=False, default="identity")


@readable
@struct.dataclass
class Norm:
    """LayerNorm of one slot.

    Args:
        scale: factor of every channel [width] after normalisation.
        bias: offset of every channel [width].

    >>> Norm(scale=jax.numpy.ones(8), bias=jax.numpy.zeros(8)).scale.shape
    (8,)
    """

    scale: jax.Array
    bias: jax.Array


@readable
@struct.dataclass
class Block:
    """One attention sublayer, then one MLP sublayer; either sublayer may be empty.

    Args:
        attention: groups of heads, which all read the same stream; default (): no attention.
        mlp: groups of MLP units, which all read the stream after attention; default (): no MLP.
        attention_norm: {slot: `Norm`} applied to the stream before attention reads it (pre-norm);
            default: no norm.
        mlp_norm: {slot: `Norm`} applied to the stream before the MLP reads it; default: no norm.

    >>> len(Block(mlp=(Unit(up=Read({"y": jax.numpy.ones(())}, 1), to="r"),)).attention)
    0
    """

    attention: tuple[Heads, ...] = ()
    mlp: tuple[Unit, ...] = ()
    attention_norm: dict[str, Norm] = struct.field(default_factory=dict)
    mlp_norm: dict[str, Norm] = struct.field(default_factory=dict)

    @property
    def layers(self) -> tuple[Heads | Unit, ...]:
        """All groups of heads, then all groups of MLP units."""
        return (*self.attention, *self.mlp)


def with_patterns(blocks: tuple[Block, ...], patterns: dict[str, Heads]) -> tuple[Block, ...]:
    """The blocks, in which heads that share queries and keys have them themselves."""

    def with_pattern(heads: Heads) -> Heads:
        if heads.pattern is None:
            return heads
        return dataclasses.replace(patterns[heads.pattern], writes=heads.writes)

    return tuple(
        dataclasses.replace(block, attention=tuple(map(with_pattern, block.attention)))
        for block in blocks
    )


def expressions(layer: Heads | Unit) -> list[Read]:
    """All reads of a group of heads, those of its patterns first, or of MLP units."""
    if isinstance(layer, Heads):
        return [*layer.reads, *(write.value for write in layer.writes)]
    return [read for read in (layer.up, layer.gate) if read is not None]


def widths(layer: Heads | Unit) -> dict[str, int]:
    """Return {slot: width} for the slots that a layer writes."""
    if isinstance(layer, Heads):
        return {w.to: w.value.width if w.out is None else w.out.shape[-1] for w in layer.writes}
    return {layer.to: width(layer) if layer.out is None else layer.out.shape[-1]}


def width(unit: Unit) -> int:
    """The number of hidden units."""
    return expressions(unit)[0].width
