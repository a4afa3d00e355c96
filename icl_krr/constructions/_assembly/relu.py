"""Arithmetic with a bounded error by piecewise-linear tables in a ReLU MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax
import numpy as np

from ..._core import checks
from ..._core.constants import xp
from ..._core.readable import readable
from ...residual import ROLES, Read, Slot, join
from ...transformer._weights import Unit
from .arithmetic import Arithmetic, Out, Size
from .slots import Recorder, repeat


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

    def add(self, m: Recorder, value: Read, to: Read, at: tuple[str, ...], erases: bool = False):
        eye = np.eye(value.width, dtype=m.dtype)
        at = ROLES if {*m.at(value)} <= {*at} else at
        _relus(m, join(value, -value), np.concatenate([eye, -eye]), to.slot, at, erases)

    def erase(self, m: Recorder, slot: Read) -> None:
        self.add(m, -slot, slot, m.at(slot), erases=True)

    def multiply(self, m: Recorder, a: Read, b: Read, to: Read, out: Out, size: Size) -> None:
        bound = _table_bound(self.bound, m, to.slot)
        if isinstance(size, Read):
            each = (_table_bound(self.bound, m, s) * xp.max(abs(c)) for s, c in size.blocks.items())
            other = reduce(xp.maximum, each)
        else:
            other = bound if size is None else xp.asarray(size, m.dtype)
        a, b = a * (1 / bound), b * (1 / other)
        knots = np.arange(self.width // 2) * (4 / self.width)
        rises = np.where(knots == 0, 1, 2)[:, None] * (4 / self.width)
        hidden = table(m, join(a + b, -a - b, a - b, b - a), -knots)
        signs = np.kron([[1], [1], [-1], [-1]], np.eye(a.width))
        result = np.kron(signs, rises).astype(m.dtype) * (bound * other / 4)
        _relus(m, hidden, result if out is None else result @ out, to.slot, m.at(to))
        report(m, [a, -a, b, -b], m.at(to))

    def divide(self, m: Recorder, dividend: Read, divisor: Read, to: Read) -> None:
        bound = _table_bound(self.bound, m, to.slot)
        name = "_".join(["inverse", *sorted(divisor.slots)])
        inverse = m.scratch(name, m.at(to), "1 / divisor", divisor.width)
        _tabulate_inverse(m, self.width, divisor, inverse, 1 / bound, bound)
        self.multiply(m, dividend, inverse, to, None, None)

    def invert(self, m: Recorder, divisor: Read, to: Read) -> None:
        _tabulate_inverse(m, self.width, divisor, to, 1 / _table_bound(self.bound, m, to.slot), 1.0)

    def activate(self, m: Recorder, function: str, value: Read, by: Read, to: Read, out: Out):
        rule = f"arithmetic must be 'exact' for units with the function {function!r}, got {self!r}"
        raise ValueError(rule)


def _table_bound(bound: Any, m: Recorder, slot: str) -> jax.Array:
    """The bound on the factors of the products that a slot receives, in the dtype of a machine."""
    if isinstance(bound, Mapping):
        if slot not in bound:
            raise ValueError(
                f"bound must have an entry for slot {slot!r}, got entries for "
                f"{', '.join(sorted(bound))}; use icl_krr.operand_bounds(model, task)"
            )
        bound = bound[slot]
    return xp.asarray(bound, m.dtype)


def _tabulate_inverse(
    m: Recorder, width: int, divisor: Read, to: Read, low: jax.Array, high: jax.Array | float
) -> None:
    """Add 1 / divisor to a slot, by a table of so many segments for divisors in [low, high]."""
    ones = repeat(m.one, divisor.width)
    knots = low * (high / low) ** np.linspace(0, 1, width + 1, dtype=m.dtype)
    slopes = xp.append(1 / (knots[:-1] * knots[1:]), np.zeros(1, m.dtype))
    eye = np.eye(divisor.width, dtype=m.dtype)
    rises = xp.kron(eye, (slopes[:-1] - slopes[1:])[:, None])
    result = xp.concatenate([rises, eye / knots[-1]])
    _relus(m, join(table(m, -divisor, knots[1:]), ones), result, to.slot, m.at(to))
    report(m, [divisor * (1 / knots[-1]), 2 * ones - divisor * (1 / knots[0])], m.at(to))


def report(m: Recorder, sizes: list[Read], at: tuple[str, ...]) -> None:
    """Add the excess over 1 of values at the roles `at` to the state `overrun`."""
    if "overrun" not in m.embedding:
        m.state("overrun", ROLES, "out of range, summed over tables", width=1)
    excess = join(*(size - repeat(m.one, size.width) for size in sizes))
    _relus(m, excess, np.ones((excess.width, 1), m.dtype), "overrun", at)


def table(m: Recorder, value: Read, offsets: np.ndarray | jax.Array) -> Read:
    """Return a read of all sums channel + offset; the sums of one channel are side by side."""
    offsets = xp.asarray(offsets, m.dtype)
    every = repeat(value, value.width * len(offsets))
    return every + m.one @ xp.tile(offsets, value.width)[None, :]


def _relus(m: Recorder, hidden: Read, out: Any, to: str, at: tuple[str, ...], erases: bool = False):
    """Add relu(hidden) out to a slot at the roles `at`; elsewhere, it is shifted far below 0."""
    if at != ROLES:
        name = "not_" + "_or_".join(at)
        if name not in m.embedding:
            m.flags.add(name)
            m.declare(Slot(name, 1, "data", ROLES, "flag, 1 at padding too"), m.one - m.inside(at))
        hidden = hidden - 1e30 * repeat(m.layout.read(name, m.dtype), hidden.width)
    m.emit(Unit(None, hidden, out, to, "relu"), erases)
