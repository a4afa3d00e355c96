"""The slots of a construction: their content, and the roles at which they may be nonzero."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import jax
import numpy as np

from ...residual import ROLES, Layout, Read, Slot
from ...transformer.weights import Spec

SUPPORTS, AGGREGATOR, QUERIES = ("support",), ("aggregator",), ("query",)
SUPPORTS_AND_QUERIES = ("support", "query")


class Slots:
    """The declared slots, the embedding that sets their initial values, and flags of the roles.

    Sums over tokens and their quotients are stored at the roles in `scalars_at`, side by side for
    all `systems`, the linear systems that the model solves in parallel, and their unknowns at those
    in `unknowns_at`: here alpha, one number per output at each support.
    """

    scalars_at: tuple[str, ...] = ROLES
    unknowns_at = SUPPORTS
    solution, direction = "alpha", "p"
    about_solution, about_prediction = "dual coefficients", "k(x)^T alpha"

    @property
    def systems(self) -> int:
        """The number of linear systems: one for each output."""
        return self.spec.num_outputs

    def __init__(self, spec: Spec, dtype: np.dtype, sketch: jax.Array | None = None):
        self.spec, self.dtype = spec, dtype
        self.slots: list[Slot] = []
        self.embedding: dict[str, Read] = {}
        self.late: list[tuple[Read, Read]] = []
        self.x = self.field("x", spec.num_features, SUPPORTS_AND_QUERIES, "features", sketch)
        self.y = self.field("y", spec.num_outputs, SUPPORTS, "outputs")
        self.aggregator, self.support, self.query = (
            self.field(role, 1, (role,), "flag") for role in ROLES
        )
        self.one = self.field("one", 1, ROLES, "constant 1")
        self.flags = {"aggregator", "support", "query", "one"}

    @property
    def layout(self) -> Layout:
        return Layout(tuple(self.slots))

    def field(
        self, name: str, width: int, at: tuple[str, ...], about: str, sketch: Any = None
    ) -> Read:
        """Declare a slot for a field of the tokens or its sketch P^T x; no block writes it."""
        whole = Layout((Slot(name, width),)).read(name, self.dtype)
        if sketch is None:
            return self.declare(Slot(name, width, "data", at, about), whole)
        slot = Slot(name, sketch.shape[1], "data", at, f"sketched {about}")
        return self.declare(slot, whole @ sketch)

    def state(
        self,
        name: str,
        at: tuple[str, ...],
        about: str,
        starts_as: Read | None = None,
        width: int | None = None,
    ) -> Read:
        """Declare a slot whose value each step passes to the next step, and return its read.

        Args:
            name: a new name.
            at: roles of the tokens at which it may be nonzero, such as `SUPPORTS`.
            about: what it holds, for `icl_krr.Layout`.
            starts_as: expression of its first value; default None, zero. The embedding sets it if
                it reads `x`, `y` and flags only, and otherwise blocks before the first step.
            width: number of channels; default None, one per output.
        """
        width = self.systems if width is None else width
        slot = Slot(name, width, "state", at, about)
        data = {slot.name for slot in self.slots if slot.kind == "data"}
        if starts_as is None or starts_as.slots <= data:
            return self.declare(slot, None if starts_as is None else self.embedded(starts_as))
        self.late.append((self.declare(slot), starts_as))
        return self.late[-1][0]

    def embedded(self, read: Read) -> Read:
        """Rewrite a read of data slots as a read of the tokens' fields."""
        parts = [
            self.embedding[slot] @ block if np.ndim(block) else self.embedding[slot] * block
            for slot, block in read.blocks.items()
        ]
        return reduce(add, parts, Read({}, read.width))

    def scalar(self, name: str, about: str) -> Read:
        """Declare a state for a sum over tokens, such as `dot`, with one channel per output.

        Args:
            name: a new name.
            about: what it holds.
        """
        return self.state(name, self.scalars_at, about)

    def scratch(self, name: str, at: tuple[str, ...], about: str, width: int | None = None) -> Read:
        """Declare a slot that is zero after every step; add "_" to a name that is in use.

        Args:
            name: its name.
            at: roles of the tokens at which it may be nonzero.
            about: what it holds.
            width: number of channels; default None, one per output.
        """
        while name in self.embedding:
            name += "_"
        width = self.systems if width is None else width
        return self.declare(Slot(name, width, "scratch", at, about))

    def declare(self, slot: Slot, starts_as: Read | None = None) -> Read:
        self.slots.append(slot)
        self.embedding[slot.name] = Read({}, slot.width) if starts_as is None else starts_as
        return Layout((slot,)).read(slot.name, self.dtype)

    @property
    def right(self) -> Read:
        """The right-hand side of the linear system: y."""
        return self.y

    def vector(self, name: str, about: str, starts_as: Read | None = None) -> Read:
        """Declare a state with the shape of the unknowns, such as alpha."""
        return self.state(name, self.unknowns_at, about, starts_as, self.right.width)

    def scratch_vector(self, name: str, about: str) -> Read:
        """Declare a slot with the shape of the unknowns that is zero after every step."""
        return self.scratch(name, self.unknowns_at, about, self.right.width)

    def state_of_fit(self) -> Read:
        """Declare the state with the predictions of the solution."""
        return self.state("prediction", SUPPORTS_AND_QUERIES, self.about_prediction)

    def written_slot(
        self, to: str | Read, at: tuple[str, ...], about: str, width: int | None = None
    ) -> Read:
        """Return the slot that an operation writes; a new name declares a scratch slot."""
        if isinstance(to, Read):
            return to
        for slot in self.slots:
            if slot.name == to and slot.kind != "scratch":
                raise ValueError(
                    f"to must be a new name or the read of a slot, got {to!r}, the name of a "
                    f"{slot.kind} slot; pass its read"
                )
        return self.scratch(to, at, about, width)

    def check_reach(
        self, to: Read, reach: tuple[str, ...], what: str = "the product may be nonzero"
    ) -> None:
        if not {*reach} <= {*self.layout[to.slot].at}:
            raise ValueError(
                f"roles of slot {to.slot} must include {', '.join(reach)}, where {what}; "
                f"got {', '.join(self.layout[to.slot].at)}"
            )

    def at(self, *reads: Read) -> tuple[str, ...]:
        """Return the roles at which the product of all reads may differ from zero."""
        places = [{role for s in read.slots for role in self.layout[s].at} for read in reads]
        return tuple(role for role in ROLES if all(role in place for place in places))

    def inside(self, at: tuple[str, ...]) -> Read:
        """Return a read of width 1 that is 1 at the tokens of these roles, else 0.

        Args:
            at: the roles.
        """
        if at == ROLES:
            return self.one
        return reduce(add, (self.layout.read(role, self.dtype) for role in at))

    def outside(self, at: tuple[str, ...]) -> Read | None:
        """Return a read that is 0 at these roles and 1 elsewhere, at padding too; None for all."""
        if at == ROLES:
            return None
        name = "not_" + "_or_".join(at)
        if name not in self.embedding:
            self.flags.add(name)
            slot = Slot(name, 1, "data", ROLES, "flag, 1 at padding too")
            self.declare(slot, self.one - self.inside(at))
        return self.layout.read(name, self.dtype)

    def per_output(self, flag: Read) -> Read:
        """Return the read of a flag or number of one channel, repeated for every output."""
        return flag if self.systems == 1 else flag @ np.ones((1, self.systems), self.dtype)


def label(value: object) -> str:
    """Return a short text for a read: the names of its slots without coefficients."""
    return ", ".join(value.blocks) if isinstance(value, Read) else "product with K"


def spread(scalars: Read, width: int) -> Read:
    """Repeat every channel, so that the result has this width."""
    return select(scalars, np.repeat(np.arange(scalars.width), width // scalars.width))


def select(read: Read, channels: np.ndarray) -> Read:
    """The channels of a read with these numbers, in this order."""
    if np.array_equal(channels, np.arange(read.width)):
        return read
    dtype = np.result_type(*(getattr(block, "dtype", float) for block in read.blocks.values()))
    return read @ np.eye(read.width, dtype=dtype)[:, channels]
