"""Packs the program of a construction, heads and MLP units, into few blocks."""

from dataclasses import dataclass, replace
from functools import cached_property

from ...residual import Layout
from ...transformer._weights import Block, Heads, Unit, expressions, widths


@dataclass(frozen=True)
class Operation:
    """Heads or units that must be in the same attention or MLP sublayer."""

    layers: tuple[Heads | Unit, ...]
    erases: bool = False

    @property
    def local(self) -> bool:
        """Whether the layers are MLP units, not heads."""
        return isinstance(self.layers[0], Unit)

    @cached_property
    def reads(self) -> frozenset[str]:
        return frozenset().union(*(r.slots for layer in self.layers for r in expressions(layer)))

    @cached_property
    def writes(self) -> frozenset[str]:
        return frozenset().union(*(widths(layer) for layer in self.layers))


def check(layer: Heads | Unit, layout: Layout) -> None:
    """Check that the widths of reads and writes fit each other and the layout."""
    pair = expressions(layer)[:2]
    if len({read.width for read in pair}) > 1:
        got = " and ".join(f"{read.width} for {', '.join(read.blocks)}" for read in pair)
        raise ValueError(f"reads must have the same width to be multiplied, got {got}")
    for read in expressions(layer):
        for slot in read.slots:
            read.check_width(slot, layout[slot].width)
    for slot, width in widths(layer).items():
        if width != layout[slot].width:
            rule = f"slot {slot} must be written with width {layout[slot].width}, got {width}"
            raise ValueError(rule)


def pack(program: list[Operation]) -> tuple[Block, ...]:
    """Return blocks with the same result as the operations in order, each as early as possible.

    Sublayers 0, 2, 4, ... are attention and 1, 3, 5, ... are MLPs. All operations of a sublayer
    read the stream before it, and add to it. So an operation comes after every earlier one that
    writes what it reads or erases what it writes (the new value would be rounded together with the
    old one), and not before an earlier one that reads or writes what it writes.
    """
    places: list[int] = []
    for i, op in enumerate(program):
        earliest = 0
        for earlier, place in zip(program[:i], places, strict=True):
            if earlier.writes & op.reads or (earlier.erases and earlier.writes & op.writes):
                earliest = max(earliest, place + 1)
            elif (earlier.reads | earlier.writes) & op.writes:
                earliest = max(earliest, place)
        places.append(earliest + (earliest % 2 != op.local))

    def layers_of(sublayer: int) -> list:
        group = [op for op, i in zip(program, places, strict=True) if i == sublayer]
        return [layer for op in group for layer in op.layers]

    return tuple(
        Block(tuple(_share_patterns(layers_of(attention))), tuple(layers_of(attention + 1)))
        for attention in range(0, max(places, default=-1) + 1, 2)
    )


def name_patterns(*parts: tuple[Block, ...]) -> tuple[dict[str, Heads], list[tuple[Block, ...]]]:
    """Return the patterns that heads of all parts of a model share, by name, and the parts.

    In the parts, these heads have the name in place of query and key.
    """
    groups = [{_pattern_key(h): h for block in part for h in block.attention} for part in parts]
    common = [
        (key, heads)
        for key, heads in groups[0].items()
        if heads.query.blocks and heads.key.blocks and all(key in group for group in groups)
    ]
    names = {key: f"pattern_{i}" for i, (key, _) in enumerate(common)}

    def named(heads: Heads) -> Heads:
        name = names.get(_pattern_key(heads))
        return heads if name is None else Heads(None, None, heads.writes, heads.heads, None, name)

    patterns = {names[key]: replace(h, writes=(), pattern=names[key]) for key, h in common}
    new = [[replace(b, attention=tuple(map(named, b.attention))) for b in part] for part in parts]
    return patterns, [*map(tuple, new)]


def _pattern_key(heads: Heads) -> tuple[int | None, ...]:
    """The window and the reads, which are equal for heads that share a pattern."""
    return heads.window, *map(id, heads.reads)


def _share_patterns(heads: list) -> list[Heads]:
    """Merge single heads with the same query, key and window into one head with several values."""
    groups: dict[object, list[Heads]] = {}
    for i, one in enumerate(heads):
        groups.setdefault(_pattern_key(one) if one.heads == 1 else i, []).append(one)
    return [
        group[0].replace(writes=tuple(write for one in group for write in one.writes))  # pyright: ignore[reportAttributeAccessIssue]
        for group in groups.values()
    ]
