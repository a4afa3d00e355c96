"""The weights of a transformer, constructed or trained, as one pytree."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property, partial
from inspect import signature
from typing import Any, NamedTuple

import jax
from flax import serialization, struct

from .. import checks
from ..readable import readable
from ..residual import Layout, Read
from .spec import Spec as Spec
from .summary import summary


@readable
@struct.dataclass
class Write:
    """A value and the slot to which a group of heads adds it.

    Args:
        value: `Read` that computes the values from the stream, [T, heads * d_v].
        out: output matrix [heads * d_v, width of `to`]; default None: the mixed values are added to
            the slot unchanged.
        to: slot to write to, "stream" by default.

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
    pattern and applies it to its channels of every value. The results are concatenated before they
    are written.

    Args:
        query: `Read` that returns the queries of all heads, [T, heads * d_k]; None with `pattern`.
        key: `Read` that returns the keys of all heads, [T, heads * d_k]; None with `pattern`.
        writes: values and their target slots, one `Write` for each slot.
        heads: number of heads H, 1 by default.
        log_gate: `Read` that returns the cumulative log gates G of all heads, [T, heads]. The
            pattern is multiplied by exp(G_i - G_j), so that a gate below 1 forgets earlier tokens.
            Only causal linear attention takes it; default None: no gate.
        pattern: name of the heads in `Weights.patterns` that have the queries, keys and gates of
            these heads; default None: they have their own.

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
        gate: `Read` that returns $v^T h$, [T, hidden]; default None: the units are linear, $u^T h$.
        out: output matrix [hidden, width of `to`]; default None: the hidden units are added to the
            slot unchanged.
        to: slot to write to, "stream" by default.
        activation: function $g$ of the gate, "identity" (default), "relu", "gelu", "exp", "log",
            "cos", "normal_cdf" (the standard normal distribution function), "inverse" ($1 / x$) or
            "reciprocal" ($1 / x$, but 0 where $x$ is 0 or close to underflow). Not used without a
            gate.

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
        scale: factor of every channel after normalisation, [width].
        bias: offset of every channel after the scale, [width].

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


@readable
@struct.dataclass
class Weights:
    """All trainable parameters of a transformer.

    Args:
        embedding: {slot: `Read` of the token fields} (see `icl_krr.residual.fields`).
        steps: blocks of one solver step. Every leaf has the L steps as its first axis, or a first
            axis of length 1 if all steps share it.
        readout: `Read` that returns the prediction from the final stream at the queries.
        prologue: blocks that run once, before the first step; default (): none.
        positions: {slot: [max_tokens, width]}, added to the embedding; default: no positions.
        final_norm: {slot: `Norm`} applied to the stream before the read-out; default: no norm.
        readouts: {name: `Read`} of further numbers that the final stream holds at the same tokens,
            such as the variance of the prediction (see `icl_krr.read_outs`); default: none. The
            name "prediction" is that of `readout`.
        patterns: {name: `Heads` without writes}, whose queries and keys are those of all heads with
            this `pattern`, in the prologue and in all steps; default: none.

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
    readouts: dict[str, Read] = struct.field(default_factory=dict)
    patterns: dict[str, Heads] = struct.field(default_factory=dict)


@readable
class Problem(NamedTuple):
    """The regression that a construction solves, or the G regressions that it averages.

    Attributes:
        kernel: kernel of the regression, after sketching, or a tuple of G kernels.
        ridge: ridge > 0, a number or a traced scalar, or G ridges [G].
        sharpness: exponent of the evidence in the weights of an average; default 1.
    """

    kernel: Any
    ridge: Any
    sharpness: Any = 1.0


@readable
@dataclass(frozen=True, eq=False)
class Transformer:
    """A transformer: a pytree whose leaves are the weights.

    You can differentiate with respect to the model, update it with optax and pass it to `jax.jit`.
    Constructions and `init` make models; `icl_krr.predict` runs them. If all steps share their
    weights, `model.replace(steps=...)` runs the same algorithm for another number of steps.

    The fields `problem` and `made` belong to the object that a construction returned, not to the
    weights. JAX drops them whenever it makes the model anew, because the weights may then be
    others: in `jax.tree.map`, in training, in files, and if the model is an argument of a jitted or
    vmapped function.

    Args:
        weights: the trainable parameters.
        spec: static settings of the forward pass.
        layout: slots of the residual stream; static.
        steps: number of solver steps, >= 0 and < 2^31; static.
        problem: kernel and ridge of the regression that the model solves, or of those that it
            averages, for `icl_krr.check`; default None: unknown.
        made: the construction with its arguments, for `rebuild`; default None: unknown. Lost if
            weights, spec or layout are replaced.

    Raises:
        ValueError: `steps` is out of range.
        TypeError: `steps` is not an integer.

    >>> import icl_krr as ik
    >>> model = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=2)
    >>> model.depth, model.num_heads, model.carried, model.overhead
    (1, 1, 2, 4)
    """

    weights: Weights
    spec: Spec
    layout: Layout
    steps: int
    problem: Problem | None = dataclasses.field(default=None, metadata={"dropped": True})
    made: partial[Transformer] | None = dataclasses.field(
        default=None, repr=False, metadata={"dropped": True}
    )

    def __post_init__(self):  # JAX makes models too: with any leaves, but with these steps
        checks.count("steps", self.steps, minimum=0)

    def replace(self, **changes: Any) -> Transformer:
        """Return a copy of the model with other values of some fields.

        Args:
            **changes: new values by field name.

        Raises:
            TypeError: a value has the wrong type.
        """
        for name, wanted in (("weights", Weights), ("spec", Spec), ("layout", Layout)):
            if name in changes:
                checks.instance(name, changes[name], wanted, f"an icl_krr {wanted.__name__}")
        if not changes.keys() <= {"steps", "problem"}:
            changes = {"made": None, **changes}
        return dataclasses.replace(self, **changes)

    def rebuild(self, **changes: Any) -> Transformer:
        """Call the construction that made the model again, with other values of some arguments.

        Args:
            **changes: new values of arguments of the construction, such as `kernel`, `ridge`,
                `steps` or `dtype`.

        Raises:
            ValueError: the model is not as a construction returned it, or the construction refuses
                a value.
            TypeError: the construction does not take an argument, or a value has the wrong type.

        >>> import icl_krr as ik
        >>> model = ik.constructions.richardson(ik.Gaussian(), num_features=3, ridge=0.1, steps=4)
        >>> again = model.rebuild(steps=8, ridge=0.5)
        >>> again.steps, again.problem.ridge
        (8, 0.5)
        """
        if self.made is None:
            raise ValueError(
                "model must be as a construction returned it to be built again, got one that was "
                "trained, loaded, changed or passed through JAX; call the construction"
            )
        steps = {"steps": self.steps} if self.takes("steps") else {}
        return self.made(**{**steps, **changes})

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that the construction was given; empty if `made` is unknown."""
        return {} if self.made is None else self.made.keywords

    def takes(self, name: str) -> bool:
        """Whether the construction that made the model takes this argument; False if unknown.

        Args:
            name: name of the argument, such as "spectrum".
        """
        return self.made is not None and name in signature(self.made.func).parameters

    @property
    def blocks_per_step(self) -> int:
        """The number of blocks of one solver step."""
        return len(self.weights.steps)

    @property
    def depth(self) -> int:
        """The total number of blocks: those of the prologue and of all steps."""
        return len(self.weights.prologue) + self.steps * self.blocks_per_step

    @property
    def num_heads(self) -> int:
        """The largest number of heads in a block."""
        return max(sum(heads.heads for heads in block.attention) for block in self.blocks)

    @property
    def mlp_width(self) -> int:
        """The largest number of hidden units in a block."""
        return max(sum(width(unit) for unit in block.mlp) for block in self.blocks)

    @property
    def overhead(self) -> int:
        """The number c of channels that do not store x, of p + c, or m + c with a sketch."""
        return self.layout.width - self.carried

    @property
    def carried(self) -> int:
        """The number of channels that store x: p features, or m features of a sketch."""
        return self.layout["x"].width if "x" in self.layout.names else self.spec.num_features

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the prologue, followed by the blocks of one step.

        Heads that share queries and keys have them here, without an axis of steps.
        """
        weights = self.weights
        return with_patterns((*weights.prologue, *weights.steps), weights.patterns)

    @cached_property
    def dtype(self) -> Any:
        """The dtype of the weights."""
        return jax.tree.leaves(self.weights)[0].dtype

    @cached_property
    def flat(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The weights in one tuple, and everything else: what a pytree consists of."""
        leaves, structure = jax.tree.flatten(self.weights)
        return tuple(leaves), (structure, self.spec, self.layout, self.steps)

    def summary(self, memory: Any = None) -> str:
        """Summarise depth, heads, channels, blocks and layout in a text table.

        Args:
            memory: the `icl_krr.memory` of this model and a task; the table then also states the
                memory of that run and the work of one step. Default None: it states neither.

        Raises:
            TypeError: `memory` is not a result of `icl_krr.memory`.

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
        >>> x = jax.numpy.ones((5, 3))
        >>> task = ik.Task(x=x, y=x[:, 0], x_query=x[:2])
        >>> print(model.summary(ik.memory(model, task)).splitlines()[6])
        step       240 FLOPs, 416 bytes
        """
        return summary(self, memory)


@dataclass(frozen=True)
class Place:
    """The path from a transformer to one of its weights, such as weights.readout.blocks.stream."""

    path: tuple[Any, ...]

    def __str__(self) -> str:
        return jax.tree_util.keystr(self.path, simple=True, separator=".")


def with_places(model: Transformer) -> tuple[list[tuple[Place, Any]], Any]:
    weights = jax.tree_util.GetAttrKey("weights")
    leaves = jax.tree_util.tree_leaves_with_path(model.weights)
    return [(Place((weights, *path)), leaf) for path, leaf in leaves], model.flat[1]


def from_leaves(structure: tuple[Any, ...], leaves: Any) -> Transformer:
    weights, *settings = structure
    return Transformer(weights.unflatten(leaves), *settings)


# a model remembers its leaves, because to find them takes longer than to run it on a small task
jax.tree_util.register_pytree_with_keys(
    Transformer, with_places, from_leaves, lambda model: model.flat
)
serialization.register_serialization_state(
    Transformer,
    lambda model: {"weights": serialization.to_state_dict(model.weights)},
    lambda model, state: model.replace(
        weights=serialization.from_state_dict(model.weights, state["weights"])
    ),
)


def check_model(model: Transformer, name: str = "model") -> None:
    checks.instance(name, model, Transformer, "an icl_krr.Transformer")


def with_patterns(blocks: tuple[Block, ...], patterns: dict[str, Heads]) -> tuple[Block, ...]:
    """The blocks, in which heads that share queries and keys have them themselves."""

    def own(heads: Heads) -> Heads:
        if heads.pattern is None:
            return heads
        return dataclasses.replace(patterns[heads.pattern], writes=heads.writes)

    return tuple(
        dataclasses.replace(block, attention=tuple(map(own, block.attention))) for block in blocks
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
