"""Named slots that divide the channels of the residual stream into disjoint groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import wadler_lindig as wl
from jax.typing import DTypeLike

from .._core import checks, messages
from .._core.messages import unknown_name
from .._core.readable import readable
from ._reads import Read

ROLES = ("aggregator", "support", "query")


@dataclass(frozen=True)
class Slot:
    """A named group of channels of the residual stream.

    Each token has a role: aggregator, support or query. The slot is zero at all tokens whose role
    is not in `at`.

    Args:
        name: name of the slot, of letters, digits and underscores.
        width: number of channels.
        kind: "data" if only the embedding writes the slot, "state" if each step passes the value to
            the next step, "scratch" if the slot is zero after every step.
        at: roles of the tokens at which the slot may differ from zero.
        about: short description of the content, shown in the table of a layout.

    >>> Slot("alpha", 1, at=("support",), about="dual coefficients").kind
    'state'
    """

    name: str
    width: int
    kind: str = "state"
    at: tuple[str, ...] = ROLES
    about: str = ""

    def __post_init__(self):
        checks.instance("name", self.name, str, "text")
        if not self.name or not self.name.replace("_", "").isalnum():
            raise ValueError(
                "name must consist of letters, digits and underscores, "
                f"got {messages.short_repr(self.name)}"
            )
        checks.count(f"width of {self.name}", self.width)
        checks.choice("kind", self.kind, ("data", "state", "scratch"))
        if not self.at:
            raise ValueError(f"at must have a role of {', '.join(ROLES)}, got ()")
        for role in self.at:
            checks.choice("role", role, ROLES)


@readable
@dataclass(frozen=True)
class Layout:
    """The channels of the residual stream, divided into slots.

    A layout is hashable. `str(layout)` is a table of the slots, `layout[name]` a slot.

    Args:
        slots: slots with different names, in the order of their channels.

    >>> layout = Layout((Slot("x", 3, kind="data"), Slot("alpha", 1, at=("support",))))
    >>> layout.width, layout.channels("alpha")
    (4, slice(3, 4, None))
    >>> print(layout)
    slot   channels  width  kind   at                          holds
    x      0:3           3  data   aggregator, support, query
    alpha  3:4           1  state  support
    """

    slots: tuple[Slot, ...] = ()

    def __post_init__(self):
        checks.instance("slots", self.slots, (tuple, list), "a tuple of slots")
        for slot in self.slots:
            checks.instance("each of slots", slot, Slot, "an icl_krr.Slot")
        object.__setattr__(self, "slots", tuple(self.slots))
        names = [slot.name for slot in self.slots]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"slots must have different names, got {name!r} twice")

    @property
    def width(self) -> int:
        """The total number of channels of all slots."""
        return sum(slot.width for slot in self.slots)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the slots, in order."""
        return tuple(slot.name for slot in self.slots)

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the slots that hold the state of a solver, in order."""
        return tuple(slot.name for slot in self.slots if slot.kind == "state")

    def __getitem__(self, name: str) -> Slot:
        for slot in self.slots:
            if slot.name == name:
                return slot
        raise ValueError(unknown_name("slot", name, self.names))

    def channels(self, name: str) -> slice:
        """Return the channels of a slot in an array that holds all slots side by side.

        Args:
            name: name of the slot.
        """
        slot = self[name]
        start = sum(s.width for s in self.slots[: self.slots.index(slot)])
        return slice(start, start + slot.width)

    def read(self, name: str, dtype: DTypeLike | None = None) -> Read:
        """Return the `Read` that copies a slot unchanged.

        Args:
            name: name of the slot.
        """
        return Read({name: np.ones((), dtype or jnp.result_type(float))}, self[name].width)

    def __pdoc__(self, indent: int, **_: Any) -> wl.AbstractDoc:
        slots = [wl.TextDoc(f"{slot.name}: {slot.width}") for slot in self.slots]
        fill = wl.comma.group()  # as many slots on a line as fit
        return wl.bracketed(wl.TextDoc("Layout("), slots, fill, wl.TextDoc(")"), indent)

    def __str__(self) -> str:
        rows = [("slot", "channels", "width", "kind", "at", "holds")]
        for slot in self.slots:
            span, at = self.channels(slot.name), ", ".join(slot.at)
            channels = f"{span.start}:{span.stop}"
            rows.append((slot.name, channels, str(slot.width), slot.kind, at, slot.about))
        sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
        row = "  ".join(f"{{:{'>' if i == 2 else '<'}{size}}}" for i, size in enumerate(sizes))
        return "\n".join(row.format(*cells).rstrip() for cells in rows)
