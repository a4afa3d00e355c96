"""The base class of the settings of every command."""

from __future__ import annotations

from dataclasses import dataclass

import tyro


@dataclass(frozen=True, kw_only=True)
class Command:
    """Settings of a command.

    Each command declares `seed`, `json` and `out` itself. The help lists the options in the order
    of the fields, so fields of this base class would come first.
    """

    argv: tyro.conf.Suppress[tyro.conf.Fixed[tuple[str, ...]]] = ()

    @property
    def first_seed(self) -> int:
        return vars(self)["seed"]

    @property
    def last_seed(self) -> int:
        return self.first_seed + (vars(self).get("seeds") or 1) - 1
