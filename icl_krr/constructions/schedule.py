"""Pack a straight-line program of heads and MLP units into as few blocks as it allows."""

from __future__ import annotations

from dataclasses import dataclass

from ..residual import Read
from ..transformer.weights import Block, Heads, Unit


@dataclass(frozen=True)
class Operation:
    """One group of heads or units, to be placed in some attention or MLP sublayer."""

    layer: Heads | Unit
    erases: bool = False

    @property
    def expressions(self) -> list[Read]:
        if isinstance(self.layer, Heads):
            return [self.layer.query, self.layer.key, *(w.value for w in self.layer.writes)]
        return [read for read in (self.layer.up, self.layer.gate) if read is not None]

    @property
    def reads(self) -> frozenset[str]:
        return frozenset().union(*(read.slots for read in self.expressions))

    @property
    def widths(self) -> dict[str, int]:
        """The slots that are written, with the width of what is written."""
        if isinstance(self.layer, Heads):
            return {write.to: write.value.width for write in self.layer.writes}
        return {self.layer.to: max(read.width for read in self.expressions)}

    @property
    def writes(self) -> frozenset[str]:
        return frozenset(self.widths)


def schedule(program: list[Operation]) -> tuple[Block, ...]:
    """Blocks that do what the operations do one after the other, each as early as it can be.

    Sublayers 0, 2, 4, ... are attention, 1, 3, 5, ... MLPs. All operations of a sublayer read
    the stream as it was before; their sum is added to it. So an operation must come
    - after one that wrote a slot it reads,
    - not before one that read a slot it writes,
    - not before one that wrote a slot it writes too, and after it if that one erased the slot:
      were both in one sublayer, the new value would be rounded together with the old one.
    """
    places: list[int] = []
    for i, operation in enumerate(program):
        earliest = 0
        for earlier, place in zip(program[:i], places, strict=True):
            if earlier.writes & operation.reads or (
                earlier.erases and earlier.writes & operation.writes
            ):
                earliest = max(earliest, place + 1)
            elif (earlier.reads | earlier.writes) & operation.writes:
                earliest = max(earliest, place)
        parity = isinstance(operation.layer, Unit)
        places.append(earliest + (earliest % 2 != parity))
    blocks = []
    for attention in range(0, max(places, default=-1) + 1, 2):
        blocks.append(
            Block(
                attention=tuple(at(program, places, attention)),
                mlp=tuple(at(program, places, attention + 1)),
            )
        )
    return tuple(blocks)


def at(program: list[Operation], places: list[int], sublayer: int) -> list:
    pairs = zip(program, places, strict=True)
    return [operation.layer for operation, place in pairs if place == sublayer]
