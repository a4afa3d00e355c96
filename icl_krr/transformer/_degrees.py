"""In which powers of y the slots of a model scale: models that may run on y in other units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from .._core.devices import Axes, pmax
from .._core.rescaling import power_of_two_scale
from ..residual import Read
from ..tasks import Task
from ..tasks._task import support_mask
from ._weights import Heads, Transformer, Unit

Degrees = dict[str, int]
"""{slot: d}: if y is multiplied by c > 0, the slot is multiplied by c^d. Slots that stay 0 have
no entry."""


class Mixed(Exception):
    """A sum of terms with different degrees, or a function that is not a power."""


def degrees(model: Transformer) -> Degrees | None:
    r"""Return the degree of homogeneity in y of all slots, or None if some slot has none.

    Only the structure of the weights counts, not their values. So the result holds for all values,
    also after training. Slots that mix y with x or with constants have no degree: the stream of a
    trained transformer, tables of $\mathrm{ReLU}$ units, the evidence of an average.

    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=1.0, steps=1)
    >>> found = degrees(model)
    >>> [found[slot] for slot in ("x", "alpha", "rr", "prediction")]
    [0, 1, 2, 1]
    """
    if any(block.attention_norm or block.mlp_norm for block in model.blocks):
        return None
    if model.weights.final_norm:
        return None
    found: Degrees = {}
    try:
        for slot, read in model.weights.embedding.items():
            note(found, slot, degree(read, FIELDS))
        for slot in model.weights.positions:
            note(found, slot, 0)
        before = None
        while before != found:
            before = dict(found)
            for slot, power in writes(model, before):
                note(found, slot, power)
        for read in (model.weights.readout, *model.weights.readouts.values()):
            degree(read, found)
    except Mixed:
        return None
    return found


FIELDS = {"x": 0, "y": 1, "aggregator": 0, "support": 0, "query": 0, "one": 0}


def degrees_of_results(
    model: Transformer, names: tuple[str, ...], points: bool, every: bool
) -> Any:
    """The degrees of what `evaluate_once` returns, or None; points stay in the units of the run."""
    known = degrees(model)
    if known is None:
        return None
    reads = {"prediction": model.weights.readout, **(model.weights.readouts if every else {})}
    found = {name: degree(read, known) or 0 for name, read in reads.items()}
    slots = {name: {**known, **found}.get(name, 0) for name in names}
    return found if every else found["prediction"], (slots, 1 - points)


def unit_of_task(task: Task, axes: Axes) -> jax.Array:
    """The unit of all y at unmasked supports, a scalar."""
    y = jnp.where(support_mask(task)[:, None], task.y.reshape(task.num_supports, -1), 0)
    return power_of_two_scale(pmax(jnp.max(jnp.abs(jax.lax.stop_gradient(y)), initial=0), axes))


def writes(model: Transformer, known: Degrees) -> Iterator[tuple[str, int | None]]:
    """The slots that the blocks write, each with the degree of what is written."""
    for block in model.blocks:
        for heads in block.attention:
            pattern = degree_of_pattern(heads, known, model.spec.attention)
            for write in heads.writes:
                yield write.to, product(pattern, degree(write.value, known))
        for unit in block.mlp:
            yield unit.to, degree_of_unit(unit, known)


def degree_of_pattern(heads: Heads, known: Degrees, attention: str) -> int | None:
    if heads.log_gate is not None:
        only_zero(degree(heads.log_gate, known))
    logits = product(degree(heads.query, known), degree(heads.key, known))
    return logits if attention == "linear" else only_zero(logits)


def degree_of_unit(unit: Unit, known: Degrees) -> int | None:
    up = 0 if unit.up is None else degree(unit.up, known)
    if unit.gate is None:
        return up
    gate = degree(unit.gate, known)
    if unit.activation in ("reciprocal", "inverse"):
        return product(up, None if gate is None else -gate)
    linear = unit.activation in ("identity", "relu")
    return product(up, gate if linear else only_zero(gate))


def degree(read: Read, known: Degrees) -> int | None:
    """The degree of a sum of slots; None if all of them are always zero."""
    powers = {known[slot] for slot in read.slots if slot in known}
    if len(powers) > 1:
        raise Mixed
    return next(iter(powers), None)


def product(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def only_zero(power: int | None) -> int:
    """The degree of a function that is no power, such as exp: 0 if its argument has degree 0."""
    if power:
        raise Mixed
    return 0


def note(found: Degrees, slot: str, power: int | None) -> None:
    if power is not None and found.setdefault(slot, power) != power:
        raise Mixed
