"""The machine that algorithms are written for: slots to name, verbs to say, blocks to get."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from .. import checks
from ..residual import ROLES, Layout, Read, Slot
from ..transformer.weights import Block, Heads, Spec, Transformer, Unit, Weights, Write
from .schedule import Operation, schedule

SUPPORTS, AGGREGATOR = ("support",), ("aggregator",)
SUPPORTS_AND_QUERIES = ("support", "query")


class Machine:
    """Records verbs as heads and units over named slots, and returns the transformer.

    Verbs say `to=` where their result is added: a slot (its read), or a new name, which
    declares a scratch slot. Reads are expressions such as `Kp + ridge * p`. A program means
    what its verbs mean one after the other; the schedule keeps that meaning. Scratch slots are
    erased as soon as they were last read, so every step starts from zeros.

    `x`, `y` and the flags are reads of what the embedding writes. This class has the verbs
    that are local to a token and the same for every kind of attention; `scalars_at` is where
    sums over tokens and their quotients live.
    """

    scalars_at: tuple[str, ...] = ROLES

    def __init__(
        self, attention: str, num_features: int, num_outputs: int, dtype: DTypeLike | None = None
    ):
        self.spec = Spec(num_features, num_outputs, attention)
        self.dtype = checks.dtype(dtype)
        self.slots: list[Slot] = []
        self.embedding: dict[str, Read] = {}
        self.program: list[Operation] = []
        self.x = self.data("x", num_features, SUPPORTS_AND_QUERIES, "features")
        self.y = self.data("y", num_outputs, SUPPORTS, "outputs")
        self.aggregator = self.data("aggregator", 1, AGGREGATOR, "flag")
        self.support = self.data("support", 1, SUPPORTS, "flag")
        self.one = self.data("one", 1, ROLES, "constant 1")

    def data(self, field: str, width: int, at: tuple[str, ...], about: str) -> Read:
        """A slot that holds a field of the tokens and is never written."""
        return self.declare(Slot(field, width, "data", at, about), starts_as=field)

    def state(
        self,
        name: str,
        at: tuple[str, ...],
        about: str,
        starts_as: str | None = None,
    ) -> Read:
        """A slot of one channel per output that steps hand on, zero or a field at first."""
        return self.declare(Slot(name, self.spec.num_outputs, "state", at, about), starts_as)

    def scalar(self, name: str, about: str) -> Read:
        """A state that holds one sum over tokens per output."""
        return self.state(name, self.scalars_at, about)

    def declare(self, slot: Slot, starts_as: str | None = None) -> Read:
        self.slots.append(slot)
        blocks = {} if starts_as is None else {starts_as: jnp.ones((), self.dtype)}
        self.embedding[slot.name] = Read(blocks, slot.width)
        return Layout((slot,)).read(slot.name, self.dtype)

    def target(self, to: str | Read, at: tuple[str, ...], about: str) -> Read:
        """The slot that a verb writes: an existing one, or new scratch of that name."""
        if isinstance(to, Read):
            return to
        return self.declare(Slot(to, self.spec.num_outputs, "scratch", at, about))

    def per_output(self, flag: Read) -> Read:
        """A flag of one channel, repeated for every output."""
        outputs = self.spec.num_outputs
        return flag if outputs == 1 else flag @ jnp.ones((1, outputs), self.dtype)

    def head(self, query: Read, key: Read, value: Read, to: Read, heads: int = 1) -> None:
        """Add sum_j pattern(query_i, key_j) value_j to a slot."""
        self.emit(Heads(query, key, (Write(value, None, to.slot),), heads))

    def add(self, value: Read, to: str | Read, where: Read | None = None) -> Read:
        """Add a read to a slot; only at the tokens of the flag `where`, if there is one."""
        at = SUPPORTS_AND_QUERIES if where is None else self.layout[where.slot].at
        to = self.target(to, at, f"combines {label(value)}")
        gate = None if where is None else self.per_output(where)
        self.emit(Unit(value, gate, None, to.slot, "identity"))
        return to

    def divide(self, dividend: Read, divisor: Read, to: str | Read) -> Read:
        """Add the quotient, token by token and output by output, to a slot; 0 / 0 is 0."""
        to = self.target(to, self.scalars_at, f"{label(dividend)} / {label(divisor)}")
        self.emit(Unit(dividend, divisor, None, to.slot, "reciprocal"))
        return to

    def erase(self, slot: Read) -> None:
        """Make a slot zero."""
        self.emit(Unit(-slot, None, None, slot.slot, "identity"), erases=True)

    def move(self, slot: Read, to: str) -> Read:
        """Empty a slot into a new scratch, so that it can be written afresh without rounding."""
        moved = self.target(to, self.layout[slot.slot].at, f"{slot.slot} before")
        self.add(slot, to=moved)
        self.erase(slot)
        return moved

    def emit(self, layer: Heads | Unit, erases: bool = False) -> None:
        operation = Operation(layer, erases)
        pair = operation.expressions[:2]
        if len({read.width for read in pair}) > 1:
            raise ValueError(
                f"reads must have one width to be multiplied, got {pair[0].width} of "
                f"{label(pair[0])} and {pair[1].width} of {label(pair[1])}"
            )
        for read in operation.expressions:
            for slot in read.slots:
                read.matrix(slot, self.layout[slot].width)
        for slot, width in operation.widths.items():
            if width != self.layout[slot].width:
                raise ValueError(
                    f"slot {slot} must be written with width {self.layout[slot].width}, got {width}"
                )
        self.program.append(operation)

    @property
    def layout(self) -> Layout:
        return Layout(tuple(self.slots))

    def record(self, body: Callable[[], None]) -> tuple[Block, ...]:
        """The blocks of a program, its scratch erased behind it."""
        self.program = []
        body()
        written = frozenset().union(*(operation.writes for operation in self.program))
        for slot in self.slots:
            if slot.kind == "scratch" and slot.name in written:
                self.erase(Layout((slot,)).read(slot.name, self.dtype))
        return schedule(self.program)

    def forget_unread_flags(self, blocks: tuple[Block, ...]) -> None:
        layers = [layer for block in blocks for layer in (*block.attention, *block.mlp)]
        read = frozenset().union(*(Operation(layer).reads for layer in layers))
        flags = {"aggregator", "support", "one"} - read
        self.slots = [slot for slot in self.slots if slot.name not in flags]
        self.embedding = {k: v for k, v in self.embedding.items() if k not in flags}

    def transformer(
        self,
        step: Callable[[], None],
        *,
        steps: int,
        readout: Read,
        prologue: Callable[[], None] = lambda: None,
    ) -> Transformer:
        """The prologue once, then the step `steps` times, as stacked weights."""
        checks.count("steps", steps)
        first, blocks = self.record(prologue), self.record(step)
        self.forget_unread_flags((*first, *blocks))
        weights = Weights(
            embedding=self.embedding,
            prologue=first,
            steps=jax.tree.map(lambda w: jnp.broadcast_to(w, (steps, *w.shape)), blocks),
            readout=readout,
        )
        weights = jax.tree.map(lambda weight: weight.astype(self.dtype), weights)
        return Transformer(weights, self.spec, self.layout)


def label(read: Read) -> str:
    """The slots of a read; their coefficients may be traced and have no name."""
    return ", ".join(read.blocks)
