"""Other settings for the experiment of a claim, typed as NAME=VALUE."""

import re
from collections.abc import Iterable
from typing import Any, get_args, get_type_hints

from ... import checks
from ...fields import unknown

KINDS = (int, float, str)


def changed(claim: str, config: Any, typed: Iterable[str]) -> Any:
    """Return the settings of a claim with those replaced that were typed, such as "widths=2,4".

    Numbers, names and tuples of them can be replaced.

    >>> from .c16_sketch_error import Config
    >>> changed("C16", Config(), ["draws=4", "widths=2,4"]).widths
    (2, 4)
    """
    hints = get_type_hints(type(config))
    known = {name: hint for name, hint in hints.items() if {hint, *get_args(hint)} & {*KINDS}}
    for text in typed:
        name, sign, value = text.partition("=")
        if not sign:
            raise ValueError(f"set must be NAME=VALUE, such as draws=4, got {text!r}")
        if name not in known:
            raise ValueError(unknown(f"setting of {claim}", name, known))
        config = config._replace(**{name: read(name, value, known[name], getattr(config, name))})
    return config


def read(name: str, text: str, hint: Any, default: Any) -> Any:
    """The value that a text spells, of the type of a setting."""
    if hint in KINDS:
        return number(name, text, hint, (default,))
    kinds = get_args(hint)
    values = tuple(number(name, part, kinds[0], default) for part in re.split(",(?! )", text))
    if Ellipsis not in kinds and len(values) != len(kinds):
        raise ValueError(f"{name} must have {len(kinds)} values, got {text!r}")
    return values


def number(name: str, text: str, kind: type, default: tuple) -> Any:
    """A number like the numbers of the default: positive if they are positive."""
    try:
        value = kind(text)
    except ValueError:
        what = {int: "an integer", float: "a number"}[kind]
        raise ValueError(f"{name} must be {what}, got {text!r}") from None
    if kind is int:
        checks.count(name, value)
    elif kind is float:
        (checks.positive_scalar if min(default) > 0 else checks.finite)(name, value)
    elif len(default) > 1:
        checks.choice(name, value, default)
    return value
