"""The machine that algorithms are written for: slots to name, verbs to say, blocks to get."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from ... import checks
from ...residual import ROLES, Read
from ...transformer.weights import Block, Heads, Spec, Transformer, Weights, Write
from .arithmetic import Arithmetic
from .packing import Operation, pack
from .recorder import Recorder
from .slots import label


class Machine(Recorder, ABC):
    """Records verbs as heads and units over named slots, and returns the transformer.

    Verbs say `to=` where their result is added: a slot (its read), or a new name, which
    declares a scratch slot. Reads are expressions such as `Kp + ridge * p`. A program means
    what its verbs mean one after the other; the packing keeps that meaning. Scratch slots are
    erased as soon as they were last read, so every step starts from zeros. A slot declares the
    roles where it lives, and a verb whose result would reach further is gated by their flags.

    This class has the verbs that are local to a token, in the `arithmetic` of choice; a kind of
    attention adds those that read other tokens. `kernel_times` applies K' = `scale` K.
    """

    scale: Any = 1.0

    def __init__(
        self,
        attention: str,
        num_features: int,
        num_outputs: int,
        dtype: DTypeLike | None,
        arithmetic: Arithmetic,
        sketch: jax.Array | None,
    ):
        dtype = checks.dtype(dtype)
        sketch = None if sketch is None else jnp.asarray(sketch, dtype)
        super().__init__(Spec(num_features, num_outputs, attention), dtype, sketch)
        self.arithmetic = arithmetic

    @abstractmethod
    def kernel_times(self, v: Read) -> Any:
        """K' v, at supports and queries alike: an expression that `add` and `finish` take."""

    @abstractmethod
    def finish(self, product: Any, to: str) -> Read:
        """Such an expression as a slot that everything can read, a scratch if one is needed."""

    @abstractmethod
    def kernel_diagonal(self, to: Read) -> None:
        """Add the diagonal of K', at the supports, to a slot of one channel."""

    @abstractmethod
    def dot(self, a: Read, b: Read, to: str | Read) -> Read:
        """A multiple of sum_j a_j b_j over the supports, for each output; the same for all."""

    @abstractmethod
    def add_scaled(self, value: Read, by: Read | tuple[Read, Read], to: Read) -> None:
        """Add a value times a scalar that `dot` or `divide` made, or times two of them."""

    def start(self) -> None:
        """What the attention needs before the first step, and then the states that need it."""
        for slot, value in self.late:
            self.add(value, to=slot)

    def projected(self, kernel: Any) -> Read:
        """U x, for the projection U [d, p] of a kernel or a feature map."""
        projection = kernel.projection
        if projection is None:
            return self.x
        if jnp.shape(projection)[1:] != (self.x.width,):
            raise ValueError(
                f"projection must be [d, p] with p = {self.x.width}, the width of x, "
                f"got shape {list(jnp.shape(projection))}"
            )
        return self.x @ jnp.asarray(projection, self.dtype).T

    def head(self, query: Read, key: Read, value: Read, to: Read, heads: int = 1) -> None:
        """Add sum_j pattern(query_i, key_j) value_j to a slot."""
        reach = self.at(query) if self.spec.attention == "linear" else ROLES
        if not set(reach) <= set(self.layout[to.slot].at):
            raise ValueError(
                f"slot {to.slot} must live at {', '.join(reach)} to be written by a head there, "
                f"got {', '.join(self.layout[to.slot].at)}"
            )
        self.emit(Heads(query, key, (Write(value, None, to.slot),), heads))

    def add(self, value: Any, to: str | Read, at: tuple[str, ...] | None = None) -> Read:
        """Add an expression to a slot, at the tokens where the slot lives, or only `at` some."""
        to = self.written_slot(to, self.at(value), f"combines {label(value)}")
        self.arithmetic.add(self, value, to, self.layout[to.slot].at if at is None else at)
        return to

    def multiply(
        self,
        a: Read,
        b: Read,
        to: str | Read,
        out: jax.Array | None = None,
        size: float | frozenset[str] | None = None,
    ) -> Read:
        """Add the product, token by token and channel by channel, through `out`, to a slot.

        `size` is a bound on |b| if one is known, or the slots whose bounds bound it.
        """
        to = self.written_slot(to, self.at(a, b), f"({label(a)}) x ({label(b)})")
        self.arithmetic.multiply(self, a, b, to, out, size)
        return to

    def divide(self, dividend: Read, divisor: Read, to: str | Read) -> Read:
        """Add the quotient, token by token and output by output, to a slot; 0 / 0 is 0."""
        to = self.written_slot(to, self.at(dividend), f"{label(dividend)} / {label(divisor)}")
        self.arithmetic.divide(self, dividend, divisor, to)
        return to

    def invert(self, divisor: Read, to: Read) -> None:
        """Add 1 / divisor to a slot, where it lives: a divisor in (0, 1]; 1 / 0 is no number."""
        self.arithmetic.invert(self, divisor, to)

    def activate(self, function: str, value: Read, by: Read, to: Read, out: Any = None) -> None:
        """Add by x function(value), token by token and channel by channel, through `out`."""
        self.arithmetic.activate(self, function, value, by, to, out)

    def erase(self, slot: Read) -> None:
        """Make a slot zero."""
        self.arithmetic.add(self, -slot, slot, self.layout[slot.slot].at, erases=True)

    def move(self, slot: Read, to: str) -> Read:
        """Empty a slot into a new scratch, so that it can be written afresh without rounding."""
        moved = self.add(slot, to=to)
        self.erase(slot)
        return moved

    def record(self, body: Callable[[], None]) -> tuple[Block, ...]:
        """The blocks of a program, its scratch erased behind it."""
        self.program = []
        body()
        written = frozenset().union(*(operation.writes for operation in self.program))
        for slot in [slot for slot in self.slots if slot.kind == "scratch"]:
            if slot.name in written:
                self.erase(self.layout.read(slot.name, self.dtype))
        return pack(self.program)

    def forget_unread_flags(self, blocks: tuple[Block, ...]) -> None:
        layers = [layer for block in blocks for layer in (*block.attention, *block.mlp)]
        read = Operation(tuple(layers)).reads
        unread = self.flags - read
        self.slots = [slot for slot in self.slots if slot.name not in unread]
        self.embedding = {k: v for k, v in self.embedding.items() if k not in unread}

    def transformer(
        self,
        step: Callable[..., None],
        *,
        steps: int,
        readout: Read,
        prologue: Callable[[], None] = lambda: None,
        coefficients: tuple[jax.Array, ...] = (),
    ) -> Transformer:
        """The prologue once, then the step `steps` times, as stacked weights.

        A step takes its own entries of the `coefficients`, [steps] each, as scalars; the
        weights that use none of them are shared by all steps.
        """
        checks.count("steps", steps)
        blocks = stack(lambda *own: self.record(lambda: step(*own)), coefficients)
        first = self.record(lambda: (self.start(), prologue())[-1])
        self.forget_unread_flags((*first, *blocks))
        weights = Weights(embedding=self.embedding, prologue=first, steps=blocks, readout=readout)
        weights = jax.tree.map(lambda weight: weight.astype(self.dtype), weights)
        return Transformer(weights, self.spec, self.layout, steps)


def stack(
    record: Callable[..., tuple[Block, ...]], coefficients: tuple[jax.Array, ...]
) -> tuple[Block, ...]:
    """Blocks whose leaves are [steps, ...] if they depend on the coefficients, else [1, ...]."""
    if not coefficients:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], record())
    shared, structure = [], None

    def vary(coefficients: tuple[jax.Array, ...]) -> list[jax.Array | None]:
        nonlocal shared, structure
        leaves, structure = jax.tree.flatten(record(*coefficients))
        own = [isinstance(leaf, type(coefficients[0])) for leaf in leaves]
        shared = [None if o else leaf for leaf, o in zip(leaves, own, strict=True)]
        return [leaf if o else None for leaf, o in zip(leaves, own, strict=True)]

    varying = jax.vmap(vary)(coefficients)
    assert structure is not None
    pairs = zip(varying, shared, strict=True)
    return structure.unflatten(
        [own if common is None else jnp.asarray(common)[None] for own, common in pairs]
    )
