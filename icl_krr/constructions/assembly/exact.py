"""Exact arithmetic by gated units."""

from __future__ import annotations

import jax
import numpy as np

from ...residual import Fixed, Read
from ...transformer.weights import Unit
from .arithmetic import Arithmetic, check_reach, repeat
from .recorder import Recorder


class Exact(Arithmetic):
    """Exact arithmetic by gated units (up . h) * g(gate . h); g is a function such as 1 / x."""

    def add(self, m: Recorder, value: Read, to: Read, at: tuple[str, ...]) -> None:
        gate = None if set(m.at(value)) <= set(at) else repeat(m.inside(at), value.width)
        m.emit(Unit(value, gate, None, to.slot, "identity"))

    def erase(self, m: Recorder, slot: Read) -> None:
        m.emit(Unit(Read({slot.slot: Fixed(-1)}, slot.width), to=slot.slot), erases=True)

    def multiply(
        self,
        m: Recorder,
        a: Read,
        b: Read,
        to: Read,
        out: jax.Array | np.ndarray | None = None,
        size: float | frozenset[str] | None = None,
    ) -> None:
        check_reach(m, to, a, b)
        m.emit(Unit(a, b, out, to.slot, "identity"))

    def divide(self, m: Recorder, dividend: Read, divisor: Read, to: Read) -> None:
        check_reach(m, to, dividend)
        m.emit(Unit(dividend, divisor, None, to.slot, "reciprocal"))

    def invert(self, m: Recorder, divisor: Read, to: Read) -> None:
        inside = repeat(m.inside(m.layout[to.slot].at), divisor.width)
        m.emit(Unit(inside, divisor, None, to.slot, "inverse"))

    def activate(
        self,
        m: Recorder,
        function: str,
        value: Read,
        by: Read,
        to: Read,
        out: jax.Array | np.ndarray | None,
    ) -> None:
        check_reach(m, to, by)
        m.emit(Unit(by, value, out, to.slot, function))
