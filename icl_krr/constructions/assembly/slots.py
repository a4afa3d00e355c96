"""The slots of a construction: what holds what, at which tokens."""

from __future__ import annotations

from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
import numpy as np

from ...residual import ROLES, Layout, Read, Slot
from ...transformer.weights import Spec

SUPPORTS, AGGREGATOR, QUERIES = ("support",), ("aggregator",), ("query",)
SUPPORTS_AND_QUERIES = ("support", "query")


class Slots:
    """Slots as they are declared, what the embedding writes to them, and flags of the roles.

    `scalars_at` is where sums over tokens and their quotients live.
    `x`, `y` and the flags `aggregator`, `support`, `query`, `one` are reads of data slots.
    """

    scalars_at: tuple[str, ...] = ROLES

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
        self,
        name: str,
        width: int,
        at: tuple[str, ...],
        about: str,
        sketch: jax.Array | None = None,
    ) -> Read:
        """A slot that holds a field of the tokens, or its sketch P^T x, and is never written."""
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
        """A slot that steps hand on, one channel per output, zero or a read of data at first.

        What the embedding cannot give is added before the first step, by `start`.
        """
        width = self.spec.num_outputs if width is None else width
        slot = Slot(name, width, "state", at, about)
        data = {slot.name for slot in self.slots if slot.kind == "data"}
        if starts_as is None or starts_as.slots <= data:
            return self.declare(slot, None if starts_as is None else self.embedded(starts_as))
        self.late.append((self.declare(slot), starts_as))
        return self.late[-1][0]

    def embedded(self, read: Read) -> Read:
        """A read of data slots as one of the tokens' fields."""
        parts = [
            self.embedding[slot] @ block if block.ndim else self.embedding[slot] * block
            for slot, block in read.blocks.items()
        ]
        return reduce(add, parts, Read({}, read.width))

    def scalar(self, name: str, about: str) -> Read:
        """A state that holds one sum over tokens per output."""
        return self.state(name, self.scalars_at, about)

    def scratch(self, name: str, at: tuple[str, ...], about: str, width: int | None = None) -> Read:
        """A slot that is empty again after the step, of a name that is still free."""
        while name in self.embedding:
            name += "_"
        width = self.spec.num_outputs if width is None else width
        return self.declare(Slot(name, width, "scratch", at, about))

    def declare(self, slot: Slot, starts_as: Read | None = None) -> Read:
        self.slots.append(slot)
        self.embedding[slot.name] = Read({}, slot.width) if starts_as is None else starts_as
        return Layout((slot,)).read(slot.name, self.dtype)

    def written_slot(self, to: str | Read, at: tuple[str, ...], about: str) -> Read:
        """The slot that a verb writes: an existing one, or new scratch of that name."""
        return to if isinstance(to, Read) else self.scratch(to, at, about)

    def at(self, *reads: Read) -> tuple[str, ...]:
        """The roles at which a product of reads may differ from zero."""
        places = [{role for s in read.slots for role in self.layout[s].at} for read in reads]
        return tuple(role for role in ROLES if all(role in place for place in places))

    def inside(self, at: tuple[str, ...]) -> Read:
        """1 at the tokens of these roles, else 0."""
        if at == ROLES:
            return self.one
        flags = [self.layout.read(role, self.dtype) for role in at]
        return reduce(add, flags)

    def outside(self, at: tuple[str, ...]) -> Read | None:
        """0 at the tokens of these roles, else 1, padding included; None for all roles."""
        if at == ROLES:
            return None
        name = "not_" + "_or_".join(at)
        if name not in self.embedding:
            self.flags.add(name)
            slot = Slot(name, 1, "data", ROLES, "flag, 1 at padding too")
            self.declare(slot, self.one - self.inside(at))
        return self.layout.read(name, self.dtype)

    def per_output(self, flag: Read) -> Read:
        """A read of one channel, repeated for every output."""
        outputs = self.spec.num_outputs
        return flag if outputs == 1 else flag @ jnp.ones((1, outputs), self.dtype)


def label(value: object) -> str:
    """The slots of a read; their coefficients may be traced and have no name."""
    return ", ".join(value.blocks) if isinstance(value, Read) else "product with K"
