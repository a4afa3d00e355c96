"""Arithmetic that MLP units compute on the channels of a token: exact units."""

import jax
import numpy as np

from ...residual import Fixed, Read
from ...transformer._weights import Unit
from .slots import Recorder, repeat

Out = jax.Array | np.ndarray | None
Size = float | Read | None


class Arithmetic:
    """Exact arithmetic by gated units (up . h) * g(gate . h); g is a function such as 1 / x.

    A subclass writes other units for the same operations of a `Machine`. Each adds its result to
    the slot `to`, and exactly 0 at tokens whose role is not in the `at` of this slot.
    """

    def add(self, m: Recorder, value: Read, to: Read, at: tuple[str, ...]) -> None:
        """Add a value to a slot.

        Args:
            at: roles of the tokens at which the value is added.
        """
        gate = None if {*m.at(value)} <= {*at} else repeat(m.inside(at), value.width)
        m.emit(Unit(value, gate, None, to.slot, "identity"))

    def erase(self, m: Recorder, slot: Read) -> None:
        """Make a slot zero."""
        m.emit(Unit(Read({slot.slot: Fixed(-1)}, slot.width), to=slot.slot), erases=True)

    def multiply(self, m: Recorder, a: Read, b: Read, to: Read, out: Out, size: Size) -> None:
        """Add the products of the channels of two reads to a slot.

        Args:
            out: matrix that multiplies the products; None is the identity.
            size: bound on the magnitude of `b`, or a read of slots with bounds, each times its
                coefficient; default None, the bound of `to`. Exact arithmetic needs none.
        """
        m.emit(Unit(a, b, out, to.slot, "identity"))

    def divide(self, m: Recorder, dividend: Read, divisor: Read, to: Read) -> None:
        """Add a quotient to a slot, channel by channel."""
        m.emit(Unit(dividend, divisor, None, to.slot, "reciprocal"))

    def invert(self, m: Recorder, divisor: Read, to: Read) -> None:
        """Add a reciprocal to a slot, channel by channel."""
        m.emit(Unit(repeat(m.inside(m.at(to)), divisor.width), divisor, None, to.slot, "inverse"))

    def activate(self, m: Recorder, function: str, value: Read, by: Read, to: Read, out: Out):
        """Add a factor times a function of a value to a slot.

        Args:
            function: name of the function, such as "exp" or "relu".
            out: matrix that multiplies the result; None is the identity.
        """
        m.emit(Unit(by, value, out, to.slot, function))
