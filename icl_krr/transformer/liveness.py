"""Which slots the blocks of a model write, and which of them they leave at zero."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..residual import Fixed, Stream
from .weights import Block, Transformer, Unit


def written_slots(blocks: Iterable[Block]) -> set[str]:
    return {layer.to for block in blocks for layer in (*head_writes(block), *block.mlp)}


def lasting_slots(blocks: Iterable[Block]) -> set[str]:
    """The slots that the blocks write and may leave at values other than zero."""
    lasting: set[str] = set()
    for block in blocks:
        erased = erased_slots(block)
        lasting |= {write.to for write in head_writes(block)}
        lasting -= erased
        lasting |= {unit.to for unit in block.mlp if not (erases(unit) and unit.to in erased)}
    return lasting


def wanted_slots(model: Transformer, names: Iterable[str] = ()) -> set[str]:
    """The slots on which the prediction or the slots `names` depend."""
    wanted, before = {*model.weights.readout.blocks, *names}, set()
    while wanted != before:
        before = set(wanted)
        for block in model.blocks:
            for heads in block.attention:
                writes = [write for write in heads.writes if write.to in wanted]
                reads = [*heads.reads, *(write.value for write in writes)]
                wanted |= {slot for read in reads for slot in read.blocks if writes}
            for unit in block.mlp:
                reads = [read for read in (unit.up, unit.gate) if read and unit.to in wanted]
                wanted |= {slot for read in reads for slot in read.blocks}
    return wanted


def erased_slots(block: Block) -> set[str]:
    """The slots from which the MLP subtracts exactly what they hold."""
    return {unit.to for unit in block.mlp if erases(unit)} - set(block.mlp_norm)


def erases(unit: Unit) -> bool:
    """Whether a unit sets its slot to zero: it adds -h, and the coefficient is no weight."""
    if unit.gate is not None or unit.out is not None or unit.up is None:
        return False
    coefficients = unit.up.blocks
    block = coefficients.get(unit.to)
    return len(coefficients) == 1 and isinstance(block, Fixed) and block == -1


def head_writes(block: Block) -> list[Any]:
    return [write for heads in block.attention for write in heads.writes]


def carried_slots(blocks: Iterable[Block], stream: Stream) -> Stream:
    """The slots whose values one step passes to the next; `stream` is the one before the first."""
    blocks = tuple(blocks)
    written, lasting = written_slots(blocks), lasting_slots(blocks)
    return {
        slot: value
        for slot, value in stream.items()
        if slot in lasting or (slot in written and not is_known_zero(value))
    }


def known_zeros(like: Any) -> Any:
    """Zeros that are known while JAX traces: a NumPy array is a constant of the program."""
    return np.zeros(like.shape, like.dtype)


def is_known_zero(value: Any) -> bool:
    return isinstance(value, np.ndarray) and not np.any(value)
