"""Checks of names, functions and types, and the differences between two records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..fields import cut, shown
from ..names import unknown


def flag(name: str, value: Any) -> None:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")


def function(name: str, value: Any) -> None:
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {shown(value)}")


def instance(name: str, value: Any, wanted: type | tuple[type, ...], what: str) -> None:
    if not isinstance(value, wanted):
        raise TypeError(f"{name} must be {what}, got {type(value).__name__}")


def path(name: str, value: Any) -> Path:
    instance(name, value, (str, Path), "a path")
    if "\0" in str(value):
        raise ValueError(f"{name} must have no null character, got {shown(str(value))}")
    return Path(value)


def names(name: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, (tuple, list)):
        remedy = f"; use ({value!r},)" if isinstance(value, str) else ""
        raise TypeError(f"{name} must be a tuple of names, got {shown(value)}{remedy}")
    for entry in value:
        if not isinstance(entry, str):
            raise TypeError(f"{name} must be a tuple of names, got {shown(entry)} in it")


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(unknown(name, value, allowed))


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Describe all entries that differ between two records; return "" if the records are equal."""
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]

    def told(value: Any) -> str:
        return cut(value) if isinstance(value, str) else shown(value)

    return "; ".join(
        f"{cut(name)}: stored {told(there.get(name))}, given {told(here.get(name))}"
        for name in names
    )
