"""Token-local arithmetic as MLP units: exact by gated units, or by ReLU tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import checks
from ...residual import ROLES, Read, join
from ...transformer.weights import Unit

if TYPE_CHECKING:
    from .machine import Machine


class Arithmetic(ABC):
    """How sums, products and quotients of one token's channels become units of a machine.

    Every method adds its result to the slot `to`, and exactly nothing where it does not live.
    """

    @abstractmethod
    def add(
        self, m: Machine, value: Read, to: Read, at: tuple[str, ...], erases: bool = False
    ) -> None:
        """Add `value`, at the roles `at` alone; `erases` says that it takes away what is there."""

    @abstractmethod
    def multiply(
        self,
        m: Machine,
        a: Read,
        b: Read,
        to: Read,
        out: jax.Array | None = None,
        size: float | frozenset[str] | None = None,
    ) -> None:
        """Add the products of the channels of `a` and `b`, through `out` if there is one.

        `size` bounds `b`, where that is known better than from the slot `to`.
        """

    @abstractmethod
    def divide(self, m: Machine, dividend: Read, divisor: Read, to: Read) -> None:
        """Add `dividend` / `divisor`."""

    @abstractmethod
    def invert(self, m: Machine, divisor: Read, to: Read) -> None:
        """Add 1 / `divisor`."""

    def activate(
        self, m: Machine, function: str, value: Read, by: Read, to: Read, out: jax.Array | None
    ) -> None:
        """Add `by` times a `function` of `value`; gated units have it, tables do not."""
        raise ValueError(
            f"arithmetic must be 'exact' for features that take an {function}, got {self!r}"
        )


class Exact(Arithmetic):
    """Gated units (up . h) * g(gate . h), with g the identity or the reciprocal: no error."""

    def add(
        self, m: Machine, value: Read, to: Read, at: tuple[str, ...], erases: bool = False
    ) -> None:
        gate = None if set(m.at(value)) <= set(at) else repeat(m.inside(at), value.width)
        m.emit(Unit(value, gate, None, to.slot, "identity"), erases)

    def multiply(
        self,
        m: Machine,
        a: Read,
        b: Read,
        to: Read,
        out: jax.Array | None = None,
        size: float | frozenset[str] | None = None,
    ) -> None:
        confine(m, to, a, b)
        m.emit(Unit(a, b, out, to.slot, "identity"))

    def divide(self, m: Machine, dividend: Read, divisor: Read, to: Read) -> None:
        confine(m, to, dividend)
        m.emit(Unit(dividend, divisor, None, to.slot, "reciprocal"))

    def invert(self, m: Machine, divisor: Read, to: Read) -> None:
        inside = repeat(m.inside(m.layout[to.slot].at), divisor.width)
        m.emit(Unit(inside, divisor, None, to.slot, "inverse"))

    def activate(
        self, m: Machine, function: str, value: Read, by: Read, to: Read, out: jax.Array | None
    ) -> None:
        confine(m, to, by)
        m.emit(Unit(by, value, out, to.slot, function))


@dataclass(frozen=True, eq=False)
class ReLU(Arithmetic):
    r"""Products and reciprocals as piecewise-linear tables: the weights of a plain ReLU MLP.

    $xz = ((x + z)^2 - (x - z)^2) / 4$ with the squares interpolated on `width` $w$ equal segments:
    for $|x| \leq b$ and $|z| \leq c$, scaled to $[-1, 1]$ first, the error is at most $bc / w^2$. A
    reciprocal is interpolated on $w$ segments between knots in geometric progression.
    `bound` is the largest magnitude of anything that is multiplied, unless a smaller one is
    known (a sink weight is at most 1), and one over the smallest divisor: a scalar, traced, or
    {slot: scalar} for the slots that products are written to. `icl_krr.operand_bounds` finds
    them from a model of exact arithmetic and its data. What leaves these ranges is not clipped
    but extrapolated, and shows in the state `overrun`: by what fraction of the bound, summed
    over tables.

    Raises ValueError for a width that is not an even integer >= 2, a bound that is not > 0, and
    where a construction has a product whose slot has no bound.

    >>> ReLU(width=256, bound=8.0).width
    256
    """

    width: int
    bound: Any = 1.0

    def __post_init__(self):
        checks.count("width", self.width, minimum=2)
        if self.width % 2:
            raise ValueError(f"width must be even, got {self.width}; use {self.width + 1}")
        bounds = self.bound if isinstance(self.bound, Mapping) else {"": self.bound}
        for slot, bound in bounds.items():
            checks.positive_scalar(f"bound of {slot}" if slot else "bound", bound)

    def bound_of(self, m: Machine, slot: str) -> jax.Array:
        """The bound of what is multiplied into a slot."""
        bound = self.bound
        if isinstance(bound, Mapping):
            if slot not in bound:
                raise ValueError(
                    f"bound must have one for the slot {slot!r}, got {sorted(bound)}; "
                    "icl_krr.operand_bounds(model, task) has all of them"
                )
            bound = bound[slot]
        return jnp.asarray(bound, m.dtype)

    def add(
        self, m: Machine, value: Read, to: Read, at: tuple[str, ...], erases: bool = False
    ) -> None:
        everywhere = set(m.at(value)) <= set(at)
        gate = silence(m, join(value, -value), ROLES if everywhere else at)
        eye = np.eye(value.width, dtype=m.dtype)
        out = jnp.asarray(np.concatenate([eye, -eye]))
        m.emit(Unit(None, gate, out, to.slot, "relu"), erases)

    def multiply(
        self,
        m: Machine,
        a: Read,
        b: Read,
        to: Read,
        out: jax.Array | None = None,
        size: float | frozenset[str] | None = None,
    ) -> None:
        confine(m, to, a, b)
        bound = self.bound_of(m, to.slot)
        if isinstance(size, frozenset):
            other = reduce(jnp.maximum, (self.bound_of(m, slot) for slot in size))
        else:
            other = bound if size is None else jnp.asarray(size, m.dtype)
        a, b = a * (1 / bound), b * (1 / other)
        at = m.layout[to.slot].at
        knots = np.arange(self.width // 2) * (4 / self.width)
        rises = np.where(knots == 0, 1, 2)[:, None] * (4 / self.width)
        hidden = table(m, join(a + b, -a - b, a - b, b - a), -knots)
        signs = np.kron([[1], [1], [-1], [-1]], np.eye(a.width))
        result = np.kron(signs, rises).astype(m.dtype) * (bound * other / 4)
        result = result if out is None else result @ out
        m.emit(Unit(None, silence(m, hidden, at), result, to.slot, "relu"))
        self.report(m, [a, -a, b, -b], at)

    def divide(self, m: Machine, dividend: Read, divisor: Read, to: Read) -> None:
        at, bound = m.layout[to.slot].at, self.bound_of(m, to.slot)
        inverse = m.scratch(f"inverse_{divisor.slot}", at, "1 / divisor", divisor.width)
        self.tabulate_inverse(m, divisor, inverse, 1 / bound, bound)
        self.multiply(m, dividend, inverse, to)

    def invert(self, m: Machine, divisor: Read, to: Read) -> None:
        self.tabulate_inverse(m, divisor, to, 1 / self.bound_of(m, to.slot), 1.0)

    def tabulate_inverse(
        self, m: Machine, divisor: Read, to: Read, low: jax.Array, high: jax.Array | float
    ) -> None:
        """Add 1 / `divisor`, for divisors in [low, high]."""
        at, width = m.layout[to.slot].at, divisor.width
        knots = low * (high / low) ** jnp.linspace(0, 1, self.width + 1, dtype=m.dtype)
        slopes = jnp.append(1 / (knots[:-1] * knots[1:]), 0)
        hidden = join(table(m, -divisor, knots[1:]), repeat(m.one, width))
        eye = np.eye(width, dtype=m.dtype)
        rises = jnp.kron(eye, (slopes[:-1] - slopes[1:])[:, None])
        result = jnp.concatenate([rises, eye / knots[-1]])
        m.emit(Unit(None, silence(m, hidden, at), result, to.slot, "relu"))
        ones = repeat(m.one, width)
        self.report(m, [divisor * (1 / knots[-1]), 2 * ones - divisor * (1 / knots[0])], at)

    def report(self, m: Machine, sizes: list[Read], at: tuple[str, ...]) -> None:
        """Add what exceeds 1 to the overrun."""
        if "overrun" not in m.embedding:
            m.state("overrun", ROLES, "out of range, summed over tables", width=1)
        excess = join(*(size - repeat(m.one, size.width) for size in sizes))
        total = jnp.asarray(np.ones((excess.width, 1), m.dtype))
        m.emit(Unit(None, silence(m, excess, at), total, "overrun", "relu"))


def confine(m: Machine, to: Read, *factors: Read) -> None:
    if not set(m.at(*factors)) <= set(m.layout[to.slot].at):
        raise ValueError(
            f"slot {to.slot} must live wherever its product does, {', '.join(m.at(*factors))}; "
            f"got {', '.join(m.layout[to.slot].at)}"
        )


def repeat(flag: Read, width: int) -> Read:
    return (
        flag if width == 1 else flag @ jnp.ones((1, width), jnp.result_type(*flag.blocks.values()))
    )


def table(m: Machine, value: Read, offsets: np.ndarray | jax.Array) -> Read:
    """Every channel of a read plus every offset, channel by channel."""
    spread = np.kron(np.eye(value.width), np.ones((1, len(offsets)))).astype(m.dtype)
    offsets = jnp.asarray(offsets, m.dtype)
    return value @ spread + m.one @ jnp.tile(offsets, value.width)[None, :]


def silence(m: Machine, hidden: Read, at: tuple[str, ...]) -> Read:
    """Push a ReLU below zero, whatever it reads, at every token of another role."""
    outside = m.outside(at)
    return hidden if outside is None else hidden - 1e30 * repeat(outside, hidden.width)
