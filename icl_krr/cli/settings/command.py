"""What the settings of every command have."""

from __future__ import annotations

from dataclasses import dataclass

import tyro


@dataclass(frozen=True, kw_only=True)
class Command:
    """Each command declares `seed`, `json` and `out` itself: the help lists options in the order
    of the fields, and those of a base would stand before the command's own."""

    argv: tyro.conf.Suppress[tyro.conf.Fixed[tuple[str, ...]]] = ()

    @property
    def first_seed(self) -> int:
        return vars(self)["seed"]

    @property
    def last_seed(self) -> int:
        return self.first_seed + (vars(self).get("seeds") or 1) - 1
