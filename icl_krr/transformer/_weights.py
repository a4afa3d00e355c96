"""The weights of a transformer, constructed or trained, as one pytree."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property, partial
from inspect import signature
from typing import Any, NamedTuple

import jax
from flax import serialization, struct

from .._core import checks
from .._core.readable import readable
from ..residual import Layout, Read
from ._parts import Block, Heads, Norm, Spec, Unit, Write, expressions, width, widths, with_patterns  # noqa: F401


@readable
@struct.dataclass
class Weights:
    """All trainable parameters of a transformer.

    Args:
        embedding: {slot: `Read` of the token fields} (see `icl_krr.residual.fields`).
        steps: blocks of one solver step. Every leaf has the L steps as its first axis, or a first
            axis of length 1 if all steps share it.
        readout: `Read` that returns the prediction from the final stream at the queries.
        prologue: blocks that run once, before the first step.
        positions: {slot: [max_tokens, width]}, added to the embedding.
        final_norm: {slot: `Norm`} applied to the stream before the readout.
        readouts: {name: `Read`} of further numbers that the final stream holds at the same tokens,
            such as the variance of the prediction (see `icl_krr.readouts`).
        patterns: {name: `Heads` without writes}, whose queries and keys are those of all heads with
            this `pattern`, in the prologue and in all steps.

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
        sharpness: exponent of the evidence in the weights of an average.
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

    The fields `problem` and `construction` belong to the object that a construction returned. JAX
    drops them whenever it creates the model again, because the weights may have changed: in
    `jax.tree.map`, in training, in files, and in arguments of a jitted or vmapped function.

    Args:
        weights: the trainable parameters.
        spec: static settings of the forward pass.
        layout: slots of the residual stream; static.
        problem: kernel and ridge of the regression that the model solves, or of those that it
            averages, for `icl_krr.check`.
        construction: the construction with its arguments, for `rebuild`.

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
    construction: partial[Transformer] | None = dataclasses.field(
        default=None, repr=False, metadata={"dropped": True}
    )

    def __post_init__(self):  # JAX makes models too: with any leaves, but with these steps
        checks.count("steps", self.steps, minimum=0)

    def replace(self, **changes: Any) -> Transformer:
        """Return a copy of the model with other values of some fields.

        Args:
            **changes: new values by field name.
        """
        for name, cls in (("weights", Weights), ("spec", Spec), ("layout", Layout)):
            if name in changes:
                checks.instance(name, changes[name], cls, f"an icl_krr {cls.__name__}")
        if not changes.keys() <= {"steps", "problem"}:
            changes = {"construction": None, **changes}
        return dataclasses.replace(self, **changes)

    def rebuild(self, **changes: Any) -> Transformer:
        """Call the construction of the model again, with other values of some arguments.

        Args:
            **changes: new values of arguments of the construction, such as `ridge` or `steps`.

        >>> import icl_krr as ik
        >>> model = ik.constructions.richardson(ik.Gaussian(), num_features=3, ridge=0.1, steps=4)
        >>> again = model.rebuild(steps=8, ridge=0.5)
        >>> again.steps, again.problem.ridge
        (8, 0.5)
        """
        if self.construction is None:
            raise ValueError(
                "model must be as a construction returned it to be built again, got one that was "
                "trained, loaded, changed, passed through JAX or built by a function of your own; "
                "call the construction"
            )
        steps = {"steps": self.steps} if self.takes("steps") else {}
        return self.construction(**{**steps, **changes})

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that the construction was given; empty if `construction` is unknown."""
        return {} if self.construction is None else self.construction.keywords

    def takes(self, name: str) -> bool:
        """Whether the construction of the model takes this argument; False if unknown.

        Args:
            name: the argument, such as "spectrum".
        """
        build = self.construction
        return build is not None and name in signature(build.func).parameters

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

        Heads that share a pattern have its queries and keys here, without an axis of steps.
        """
        weights = self.weights
        return with_patterns((*weights.prologue, *weights.steps), weights.patterns)

    @cached_property
    def dtype(self) -> Any:
        """The dtype of the weights."""
        return jax.tree.leaves(self.weights)[0].dtype

    def summary(self) -> str:
        """Summarise depth, heads, channels, blocks and layout in a text table.

        >>> import icl_krr as ik
        >>> model = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=3)
        >>> print(model.summary().split("heads")[0].rstrip())
        attention  softmax
        depth      1 blocks: 1 a step for 1 steps
        """
        prologue = len(self.weights.prologue)
        lines = [
            f"attention  {self.spec.attention}",
            f"depth      {self.depth} blocks: {self.blocks_per_step} a step for "
            f"{self.steps} steps" + (f", after {prologue}" if prologue else ""),
            f"heads      {self.num_heads} in a block",
            f"MLP width  {self.mlp_width} units in a block",
            f"channels   {self.layout.width} = {self.carried} features + {self.overhead}",
        ]
        for i, block in enumerate(self.blocks):
            heads = [write.to for group in block.attention for write in group.writes]
            units = ", ".join(dict.fromkeys(unit.to for unit in block.mlp)) or "-"
            lines.append(f"block {i:<4} heads: {', '.join(heads) or '-'}; units: {units}")
        return "\n".join([*lines, "layout", str(self.layout)])


jax.tree_util.register_dataclass(
    Transformer, ["weights"], ["spec", "layout", "steps"], drop_fields=["problem", "construction"]
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
