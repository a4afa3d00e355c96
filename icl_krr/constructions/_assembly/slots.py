"""The slots of a construction, and the heads and MLP units that it records on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from operator import add

import jax
import numpy as np

from ...residual import ROLES, Layout, Read, Slot
from ...transformer._weights import Heads, Spec, Unit
from .packing import Operation, check

SUPPORTS, AGGREGATOR, QUERIES = ("support",), ("aggregator",), ("query",)
SUPPORTS_AND_QUERIES = ("support", "query")


class Recorder:
    """The declared slots, the embedding that sets their first values, and the recorded operations.

    Sums over tokens and their quotients are stored at the roles in `scalars_at`, side by side for
    all `systems`, the linear systems that the model solves in parallel, and their unknowns at those
    in `unknowns_at`: here alpha, one number per output at each support.
    """

    scalars_at: tuple[str, ...] = ROLES
    unknowns_at = SUPPORTS
    fit_at: tuple[str, ...] = SUPPORTS_AND_QUERIES
    solution, direction = "alpha", "p"
    about_solution, about_prediction = "dual coefficients", "k(x)^T alpha"
    group: list[Heads | Unit] | None = None
    window: int | None = None

    def __init__(self, spec: Spec, dtype: np.dtype, sketch: jax.Array | None = None):
        self.spec, self.dtype = spec, dtype
        self.program: list[Operation] = []
        self.slots: list[Slot] = []
        self.embedding: dict[str, Read] = {}
        self.late: list[tuple[Read, Read, Read | None]] = []  # slot, value and its divisor
        self.x = self.field("x", spec.num_features, SUPPORTS_AND_QUERIES, "features", sketch)
        self.y = self.field("y", spec.num_outputs, SUPPORTS, "outputs")
        flags = (self.field(role, 1, (role,), "flag") for role in ROLES)
        self.aggregator, self.support, self.query = flags
        self.one = self.field("one", 1, ROLES, "constant 1")
        self.flags = {"aggregator", "support", "query", "one"}

    @property
    def systems(self) -> int:
        """The number of linear systems: one for each output."""
        return self.spec.num_outputs

    @property
    def layout(self) -> Layout:
        return Layout(tuple(self.slots))

    # ---- slots ----------------------------------------------------------------------------------

    def declare(self, slot: Slot, starts_as: Read | None = None) -> Read:
        self.slots.append(slot)
        self.embedding[slot.name] = Read({}, slot.width) if starts_as is None else starts_as
        return Layout((slot,)).read(slot.name, self.dtype)

    def field(self, name: str, width: int, at: tuple[str, ...], about: str, sketch=None) -> Read:
        """Declare a slot for a field of the tokens or its sketch P^T x; no block writes it."""
        read = Layout((Slot(name, width),)).read(name, self.dtype)
        if sketch is not None:
            read, about = read @ sketch, f"sketched {about}"
        return self.declare(Slot(name, read.width, "data", at, about), read)

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
        slot = Slot(name, self.systems if width is None else width, "state", at, about)
        if starts_as is None:
            return self.declare(slot)
        if not starts_as.slots <= {slot.name for slot in self.slots if slot.kind == "data"}:
            self.late.append((self.declare(slot), starts_as, None))
            return self.late[-1][0]
        parts = [
            self.embedding[of] @ block if np.ndim(block) else self.embedding[of] * block
            for of, block in starts_as.blocks.items()
        ]
        return self.declare(slot, reduce(add, parts, Read({}, starts_as.width)))

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

    @property
    def right(self) -> Read:
        """The right-hand side of the linear system: y."""
        return self.y

    @property
    def diagonal_width(self) -> int:
        """The number of different entries that a token stores of the diagonal of K'."""
        return self.right.width // self.systems

    def vector(self, name: str, about: str, starts_as: Read | None = None) -> Read:
        """Declare a state with the shape of the unknowns, such as alpha."""
        return self.state(name, self.unknowns_at, about, starts_as, self.right.width)

    def scratch_vector(self, name: str, about: str) -> Read:
        """Declare a slot with the shape of the unknowns that is zero after every step."""
        return self.scratch(name, self.unknowns_at, about, self.right.width)

    def scalar(self, name: str, about: str) -> Read:
        """Declare a state for a sum over tokens, such as `dot`, with one channel per output."""
        return self.state(name, self.scalars_at, about)

    def state_of_fit(self) -> Read:
        """Declare the state with the predictions of the solution."""
        return self.state("prediction", self.fit_at, self.about_prediction)

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

    # ---- roles ----------------------------------------------------------------------------------

    def at(self, *reads: Read) -> tuple[str, ...]:
        """Return the roles at which the product of all reads may differ from zero."""
        places = [{role for s in read.slots for role in self.layout[s].at} for read in reads]
        return tuple(role for role in ROLES if all(role in place for place in places))

    def check_roles(self, to: Read, roles: tuple[str, ...]) -> None:
        if not {*roles} <= {*self.at(to)}:
            raise ValueError(
                f"roles of slot {to.slot} must include {', '.join(roles)}, where the result may be "
                f"nonzero; got {', '.join(self.at(to))}"
            )

    def inside(self, at: tuple[str, ...]) -> Read:
        """Return a read of width 1 that is 1 at the tokens of these roles, else 0.

        Args:
            at: the roles.
        """
        if at == ROLES:
            return self.one
        return reduce(add, (self.layout.read(role, self.dtype) for role in at))

    def per_output(self, flag: Read) -> Read:
        """Return the read of a flag or number of one channel, repeated for every output."""
        return flag if self.systems == 1 else flag @ np.ones((1, self.systems), self.dtype)

    # ---- operations -----------------------------------------------------------------------------

    def emit(self, layer: Heads | Unit, erases: bool = False) -> None:
        check(layer, self.layout)
        if self.group is None:
            self.program.append(Operation((layer,), erases))
        else:
            self.group.append(layer)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Put all recorded operations in one sublayer, so none of them reads another's result.

        Use it as `with m.together():`, for heads only or for operations within a token only.
        """
        self.group = []
        yield
        self.program.append(Operation(tuple(self.group)))
        self.group = None

    @contextmanager
    def within(self, window: int | None) -> Iterator[None]:
        """Give all recorded heads a window: `with m.within(4):`.

        Args:
            window: number of the last visible tokens that a token reads, >= 1; None for all.
        """
        before, self.window = self.window, window
        try:
            yield
        finally:
            self.window = before


def label(read: Read) -> str:
    """Return a short text for a read: the names of its slots without coefficients."""
    return ", ".join(read.blocks)


def repeat(scalars: Read, width: int) -> Read:
    """Repeat every channel, so that the result has this width."""
    return select(scalars, np.repeat(np.arange(scalars.width), width // scalars.width))


def tile(read: Read, width: int) -> Read:
    """Repeat all channels together, so that the result has this width."""
    return select(read, np.arange(width) % read.width)


def select(read: Read, channels: np.ndarray) -> Read:
    """The channels of a read with these numbers, in this order."""
    if np.array_equal(channels, np.arange(read.width)):
        return read
    dtype = np.result_type(*(getattr(block, "dtype", float) for block in read.blocks.values()))
    return read @ np.eye(read.width, dtype=dtype)[:, channels]
