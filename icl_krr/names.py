"""Sentences about names that are not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from .fields import shown


def unknown(what: str, name: Any, known: Iterable[str]) -> str:
    """The sentence of an error: all known names, and those that resemble the given one.

    >>> print(unknown("kernel", "gausian", ("linear", "gaussian")))
    kernel must be one of 'linear', 'gaussian', got 'gausian'; did you mean 'gaussian'?
    """
    known = tuple(known)
    listed = ", ".join(map(repr, known))
    return f"{what} must be one of {listed}, got {shown(name)}{similar(name, known)}"


def similar(name: Any, known: Iterable[str]) -> str:
    """The end of such a sentence: the nearest known name, or up to three that contain the text.

    >>> similar("alhpa", ("alpha", "r", "p"))
    "; did you mean 'alpha'?"
    """
    if not isinstance(name, str) or not name:
        return ""
    spelled = {folded(one): one for one in known}
    asked = folded(name)
    close = get_close_matches(asked, spelled, 1) or [one for one in spelled if asked in one][:3]
    return f"; did you mean {' or '.join(repr(spelled[one]) for one in close)}?" if close else ""


def folded(name: str) -> str:
    return name.lower().replace("-", "_")
