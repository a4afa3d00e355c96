"""Arithmetic that MLP units compute on the channels of a token: the base class, and exact units."""

from __future__ import annotations

from abc import ABC, abstractmethod

import jax
import jax.numpy as jnp
import numpy as np

from ...residual import Fixed, Read
from ...transformer.weights import Unit
from .packing import Recorder

Out = jax.Array | np.ndarray | None
Size = float | frozenset[str] | None


class Arithmetic(ABC):
    """Writes sums, products and quotients of a token's channels as MLP units of a machine.

    The methods are those of `Machine`. Each adds its result to the slot `to`, and exactly 0 at
    tokens whose role is not in the `at` of this slot.
    """

    @abstractmethod
    def add(self, m: Recorder, value: Read, to: Read, at: tuple[str, ...]) -> None:
        """Add a value to a slot.

        Args:
            at: roles of the tokens at which the value is added.
        """

    @abstractmethod
    def erase(self, m: Recorder, slot: Read) -> None:
        """Make a slot zero."""

    @abstractmethod
    def multiply(self, m: Recorder, a: Read, b: Read, to: Read, out: Out, size: Size) -> None:
        """Add the products of the channels of two reads to a slot.

        Args:
            out: matrix [width of a, width of to] that multiplies the products; None is the
                identity.
            size: bound on the magnitude of `b`, or names of slots, whose largest bound it is;
                default: the bound of the slot `to`. Exact arithmetic ignores it.
        """

    @abstractmethod
    def divide(self, m: Recorder, dividend: Read, divisor: Read, to: Read) -> None:
        """Add a quotient to a slot, channel by channel."""

    @abstractmethod
    def invert(self, m: Recorder, divisor: Read, to: Read) -> None:
        """Add a reciprocal to a slot, channel by channel."""

    def activate(
        self, m: Recorder, function: str, value: Read, by: Read, to: Read, out: Out
    ) -> None:
        """Add a factor times a function of a value; only exact arithmetic can do this.

        Args:
            function: name of the function, such as "exp" or "relu".
            out: matrix that multiplies the result; None is the identity.
        """
        raise ValueError(
            f"arithmetic must be 'exact' for units with the function {function!r}, got {self!r}"
        )


class Exact(Arithmetic):
    """Exact arithmetic by gated units (up . h) * g(gate . h); g is a function such as 1 / x."""

    def add(self, m: Recorder, value: Read, to: Read, at: tuple[str, ...]) -> None:
        gate = None if set(m.at(value)) <= set(at) else repeat(m.inside(at), value.width)
        m.emit(Unit(value, gate, None, to.slot, "identity"))

    def erase(self, m: Recorder, slot: Read) -> None:
        m.emit(Unit(Read({slot.slot: Fixed(-1)}, slot.width), to=slot.slot), erases=True)

    def multiply(self, m: Recorder, a: Read, b: Read, to: Read, out: Out, size: Size) -> None:
        m.check_reach(to, m.at(a, b))
        m.emit(Unit(a, b, out, to.slot, "identity"))

    def divide(self, m: Recorder, dividend: Read, divisor: Read, to: Read) -> None:
        m.check_reach(to, m.at(dividend))
        m.emit(Unit(dividend, divisor, None, to.slot, "reciprocal"))

    def invert(self, m: Recorder, divisor: Read, to: Read) -> None:
        inside = repeat(m.inside(m.layout[to.slot].at), divisor.width)
        m.emit(Unit(inside, divisor, None, to.slot, "inverse"))

    def activate(
        self, m: Recorder, function: str, value: Read, by: Read, to: Read, out: Out
    ) -> None:
        m.check_reach(to, m.at(by))
        m.emit(Unit(by, value, out, to.slot, function))


def repeat(flag: Read, width: int) -> Read:
    if width == 1:
        return flag
    return flag @ np.ones((1, width), jnp.result_type(*flag.blocks.values()))
