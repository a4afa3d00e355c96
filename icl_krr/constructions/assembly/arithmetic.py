"""Token-local arithmetic as MLP units: what every kind of it can do."""

from __future__ import annotations

from abc import ABC, abstractmethod

import jax
import jax.numpy as jnp

from ...residual import Read
from .recorder import Recorder


class Arithmetic(ABC):
    """How sums, products and quotients of one token's channels become units of a machine.

    Every method adds its result to the slot `to`, and exactly nothing where it does not live.
    """

    @abstractmethod
    def add(
        self, m: Recorder, value: Read, to: Read, at: tuple[str, ...], erases: bool = False
    ) -> None:
        """Add `value`, at the roles `at` alone; `erases` says that it takes away what is there."""

    @abstractmethod
    def multiply(
        self,
        m: Recorder,
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
    def divide(self, m: Recorder, dividend: Read, divisor: Read, to: Read) -> None:
        """Add `dividend` / `divisor`."""

    @abstractmethod
    def invert(self, m: Recorder, divisor: Read, to: Read) -> None:
        """Add 1 / `divisor`."""

    def activate(
        self, m: Recorder, function: str, value: Read, by: Read, to: Read, out: jax.Array | None
    ) -> None:
        """Add `by` times a `function` of `value`; gated units have it, tables do not."""
        raise ValueError(
            f"arithmetic must be 'exact' for features that take an {function}, got {self!r}"
        )


def check_reach(m: Recorder, to: Read, *factors: Read) -> None:
    if not set(m.at(*factors)) <= set(m.layout[to.slot].at):
        raise ValueError(
            f"slot {to.slot} must live wherever its product does, {', '.join(m.at(*factors))}; "
            f"got {', '.join(m.layout[to.slot].at)}"
        )


def repeat(flag: Read, width: int) -> Read:
    if width == 1:
        return flag
    return flag @ jnp.ones((1, width), jnp.result_type(*flag.blocks.values()))
