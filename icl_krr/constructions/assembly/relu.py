"""Arithmetic with a bounded error by piecewise-linear tables in a ReLU MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax
import numpy as np

from ... import checks
from ...constants import xp
from ...readable import readable
from ...residual import ROLES, Read, join
from ...transformer.weights import Unit
from .arithmetic import Arithmetic, Out, Size, repeat
from .packing import Recorder


@readable
@dataclass(frozen=True, eq=False)
class ReLU(Arithmetic):
    r"""Arithmetic by piecewise-linear tables, which are the weights of a plain ReLU MLP.

    A product is $xz = ((x + z)^2 - (x - z)^2) / 4$. The tables scale $|x| \leq b$ and $|z| \leq c$
    to $[-1, 1]$ and interpolate the squares on $w$ equal segments. The error of the product is at
    most $bc / w^2$. A reciprocal is interpolated on $w$ segments between knots in geometric
    progression. Values outside the range of a table are extrapolated; the state `overrun` sums
    their excess, as a fraction of the bound, over all tables.

    Args:
        width: number of segments $w$ of a table, an even integer >= 2.
        bound: largest magnitude of all factors, divisors and reciprocals of divisors, > 0: a
            scalar, or {slot: scalar} for all slots that receive products and quotients, as
            `icl_krr.operand_bounds` measures them. If a smaller bound is known, such as 1 for a
            sink weight, the table uses it.

    >>> ReLU(width=256, bound=8.0).width
    256
    """

    width: int
    bound: Any = 1.0

    def __post_init__(self):
        checks.even("width", self.width)
        checks.count("width", self.width)
        if isinstance(self.bound, Mapping) and not self.bound:
            raise ValueError("bound must have an entry for each slot, got {}")
        bounds = self.bound if isinstance(self.bound, Mapping) else {"": self.bound}
        for slot, bound in bounds.items():
            checks.positive_scalar(f"bound of {slot}" if slot else "bound", bound)

    def add(self, m: Recorder, value: Read, to: Read, at: tuple[str, ...]) -> None:
        m.emit(copying(m, value, to, at))

    def erase(self, m: Recorder, slot: Read) -> None:
        m.emit(copying(m, -slot, slot, m.layout[slot.slot].at), erases=True)

    def multiply(self, m: Recorder, a: Read, b: Read, to: Read, out: Out, size: Size) -> None:
        m.check_reach(to, m.at(a, b))
        bound = bound_of(self.bound, m, to.slot)
        if isinstance(size, frozenset):
            other = reduce(xp.maximum, (bound_of(self.bound, m, slot) for slot in size))
        else:
            other = bound if size is None else xp.asarray(size, m.dtype)
        a, b = a * (1 / bound), b * (1 / other)
        at = m.layout[to.slot].at
        knots = np.arange(self.width // 2) * (4 / self.width)
        rises = np.where(knots == 0, 1, 2)[:, None] * (4 / self.width)
        hidden = table(m, join(a + b, -a - b, a - b, b - a), -knots)
        signs = np.kron([[1], [1], [-1], [-1]], np.eye(a.width))
        result = np.kron(signs, rises).astype(m.dtype) * (bound * other / 4)
        result = result if out is None else result @ out
        m.emit(Unit(None, only_at(m, hidden, at), result, to.slot, "relu"))
        report(m, [a, -a, b, -b], at)

    def divide(self, m: Recorder, dividend: Read, divisor: Read, to: Read) -> None:
        at, bound = m.layout[to.slot].at, bound_of(self.bound, m, to.slot)
        name = "_".join(["inverse", *sorted(divisor.slots)])
        inverse = m.scratch(name, at, "1 / divisor", divisor.width)
        tabulate_inverse(m, self.width, divisor, inverse, 1 / bound, bound)
        self.multiply(m, dividend, inverse, to, None, None)

    def invert(self, m: Recorder, divisor: Read, to: Read) -> None:
        tabulate_inverse(m, self.width, divisor, to, 1 / bound_of(self.bound, m, to.slot), 1.0)


def bound_of(bound: Any, m: Recorder, slot: str) -> jax.Array:
    """The bound on the factors of the products that a slot receives, in the dtype of a machine."""
    if isinstance(bound, Mapping):
        if slot not in bound:
            raise ValueError(
                f"bound must have an entry for slot {slot!r}, got entries for "
                f"{', '.join(sorted(bound))}; use icl_krr.operand_bounds(model, task)"
            )
        bound = bound[slot]
    return xp.asarray(bound, m.dtype)


def tabulate_inverse(
    m: Recorder, width: int, divisor: Read, to: Read, low: jax.Array, high: jax.Array | float
) -> None:
    """Add 1 / divisor to a slot, by a table of so many segments for divisors in [low, high]."""
    at, ones = m.layout[to.slot].at, repeat(m.one, divisor.width)
    knots = low * (high / low) ** np.linspace(0, 1, width + 1, dtype=m.dtype)
    slopes = xp.append(1 / (knots[:-1] * knots[1:]), np.zeros(1, m.dtype))
    hidden = join(table(m, -divisor, knots[1:]), ones)
    eye = np.eye(divisor.width, dtype=m.dtype)
    rises = xp.kron(eye, (slopes[:-1] - slopes[1:])[:, None])
    result = xp.concatenate([rises, eye / knots[-1]])
    m.emit(Unit(None, only_at(m, hidden, at), result, to.slot, "relu"))
    report(m, [divisor * (1 / knots[-1]), 2 * ones - divisor * (1 / knots[0])], at)


def report(m: Recorder, sizes: list[Read], at: tuple[str, ...]) -> None:
    """Add the excess over 1 of values at the roles `at` to the state `overrun`."""
    if "overrun" not in m.embedding:
        m.state("overrun", ROLES, "out of range, summed over tables", width=1)
    excess = join(*(size - repeat(m.one, size.width) for size in sizes))
    total = np.ones((excess.width, 1), m.dtype)
    m.emit(Unit(None, only_at(m, excess, at), total, "overrun", "relu"))


def copying(m: Recorder, value: Read, to: Read, at: tuple[str, ...]) -> Unit:
    """Return units that add relu(value) - relu(-value) to a slot at the roles `at`."""
    everywhere = set(m.at(value)) <= set(at)
    gate = only_at(m, join(value, -value), ROLES if everywhere else at)
    eye = np.eye(value.width, dtype=m.dtype)
    out = np.concatenate([eye, -eye])
    return Unit(None, gate, out, to.slot, "relu")


def table(m: Recorder, value: Read, offsets: np.ndarray | jax.Array) -> Read:
    """Return a read of all sums channel + offset; the sums of one channel are side by side."""
    spread = np.kron(np.eye(value.width), np.ones((1, len(offsets)))).astype(m.dtype)
    offsets = xp.asarray(offsets, m.dtype)
    return value @ spread + m.one @ xp.tile(offsets, value.width)[None, :]


def only_at(m: Recorder, hidden: Read, at: tuple[str, ...]) -> Read:
    """Return the input of a ReLU, shifted far below zero at tokens whose role is not in `at`."""
    outside = m.outside(at)
    return hidden if outside is None else hidden - 1e30 * repeat(outside, hidden.width)
