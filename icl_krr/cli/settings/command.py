"""The base class of the settings of every command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro


def folder(words: list[str]) -> Path:
    if not words[0]:
        raise ValueError("must be the path of a folder, got an empty text")
    return Path(words[0])


Folder = Annotated[
    Path,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=folder,
        is_instance=lambda value: isinstance(value, Path),
        str_from_instance=lambda value: [str(value)],
    ),
]


def refuse_unused(settings: Any, names: Iterable[str], where: str, section: str = "") -> None:
    """Raise ValueError if one of these options, which have no effect, is not at its default."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.name in names and value != default:
            option = f"--{section}{field.name.replace('_', '-')}"
            got = "" if value is True else f", got {value}"
            raise ValueError(f"{option} must not be given {where}{got}; remove it")


@dataclass(frozen=True, kw_only=True)
class Command:
    """Settings of a command.

    Each command declares `seed`, `json` and `out` itself. The help lists the options in the order
    of the fields, so fields of this base class would come first.
    """

    argv: tyro.conf.Suppress[tyro.conf.Fixed[tuple[str, ...]]] = ()

    def refuse_options_without_effect(self) -> None:
        """Raise ValueError if an option is given that the other options leave without effect."""

    @property
    def first_seed(self) -> int:
        return vars(self)["seed"]

    @property
    def last_seed(self) -> int:
        return self.first_seed + (vars(self).get("seeds") or 1) - 1
