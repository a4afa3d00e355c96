"""How the slots of a model scale with y: models that may run on y of another size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp

from .._core.devices import Axes, pmax
from .._core.rescaling import power_of_two_scale
from ..residual import Read
from ..tasks import Task
from ..tasks._task import support_mask
from ._hook_points import Request
from ._weights import Heads, Transformer, Unit

Degrees = dict[str, int]
"""{slot: d}: if y is multiplied by c > 0, the slot is multiplied by c^d. Slots that stay 0 have
no entry."""

DEGREES: WeakKeyDictionary[Transformer, Degrees | None] = WeakKeyDictionary()
"""The degrees of models that have run."""


class Mixed(Exception):
    """A sum of terms with different degrees, or a function that is not a power."""


def homogeneity(model: Transformer) -> Degrees | None:
    r"""Return the degree of homogeneity in y of all slots, or None if some slot has none.

    Only the structure of the weights counts, not their values. So the result holds for all values,
    also after training. Slots that mix y with x or with constants have no degree: the stream of a
    trained transformer, tables of $\mathrm{ReLU}$ units, the evidence of an average.

    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=1.0, steps=1)
    >>> degrees = homogeneity(model)
    >>> [degrees[slot] for slot in ("x", "alpha", "rr", "prediction")]
    [0, 1, 2, 1]
    """
    if model not in DEGREES:
        try:
            DEGREES[model] = degrees_of_slots(model)
        except Mixed:
            DEGREES[model] = None
    return DEGREES[model]


FIELDS = {"x": 0, "y": 1, "aggregator": 0, "support": 0, "query": 0, "one": 0}


def degrees_of_slots(model: Transformer) -> Degrees:
    norms = [norm for block in model.blocks for norm in (block.attention_norm, block.mlp_norm)]
    if any(norms) or model.weights.final_norm:
        raise Mixed
    degrees: Degrees = {}
    for slot, read in model.weights.embedding.items():
        add_degree(degrees, slot, degree(read, FIELDS))
    for slot in model.weights.positions:
        add_degree(degrees, slot, 0)
    before = None
    while before != degrees:
        before = dict(degrees)
        for slot, power in writes(model, before):
            add_degree(degrees, slot, power)
    for read in (model.weights.readout, *model.weights.readouts.values()):
        degree(read, degrees)
    return degrees


def result_degrees(model: Transformer, request: Request) -> Any:
    """The degrees of what `evaluate` returns, or None; points stay in the scale of the run."""
    degrees, every = homogeneity(model), request.answer is not None
    if degrees is None:
        return None
    reads = {"prediction": model.weights.readout, **(model.weights.readouts if every else {})}
    readouts = {name: degree(read, degrees) or 0 for name, read in reads.items()}
    slots = {name: {**degrees, **readouts}.get(name, 0) for name in request.names}
    return readouts if every else readouts["prediction"], (slots, 0 if request.keep else 1)


def task_scale(task: Task, axes: Axes) -> jax.Array:
    """The scale of all y at unmasked supports, a scalar."""
    y = jnp.where(support_mask(task)[:, None], task.y.reshape(task.num_supports, -1), 0)
    return power_of_two_scale(pmax(jnp.max(jnp.abs(jax.lax.stop_gradient(y)), initial=0), axes))


def writes(model: Transformer, degrees: Degrees) -> Iterator[tuple[str, int | None]]:
    """The slots that the blocks write, each with the degree of what is written."""
    for block in model.blocks:
        for heads in block.attention:
            pattern = pattern_degree(heads, degrees, model.spec.attention)
            for write in heads.writes:
                yield write.to, product(pattern, degree(write.value, degrees))
        for unit in block.mlp:
            yield unit.to, unit_degree(unit, degrees)


def pattern_degree(heads: Heads, degrees: Degrees, attention: str) -> int | None:
    if heads.log_gate is not None:
        only_zero(degree(heads.log_gate, degrees))
    logits = product(degree(heads.query, degrees), degree(heads.key, degrees))
    return logits if attention == "linear" else only_zero(logits)


def unit_degree(unit: Unit, degrees: Degrees) -> int | None:
    up = 0 if unit.up is None else degree(unit.up, degrees)
    if unit.gate is None:
        return up
    gate = degree(unit.gate, degrees)
    if unit.activation in ("reciprocal", "inverse"):
        return product(up, None if gate is None else -gate)
    return product(up, gate if unit.activation in ("identity", "relu") else only_zero(gate))


def degree(read: Read, degrees: Degrees) -> int | None:
    """The degree of a sum of slots; None if all of them are always zero."""
    powers = {degrees[slot] for slot in read.slots if slot in degrees}
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


def add_degree(degrees: Degrees, slot: str, power: int | None) -> None:
    if power is not None and degrees.setdefault(slot, power) != power:
        raise Mixed
