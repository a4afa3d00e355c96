"""The suites: name -> function (quick, seed) -> iterator over contests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..catalogue import SUITES as NAMES, load
from .contest import Contest

SUITES: dict[str, Callable[[bool, int], Iterator[Contest]]] = {
    name: load(path) for name, path in NAMES.items()
}
