"""Other settings for the experiment of a claim, typed as NAME=VALUE."""

import re
from collections.abc import Iterable
from typing import Any

from ..._core import checks
from ..._core.messages import unknown_name
from .claim import Claim, Config, Exactly

KINDS = (int, float, str)


def changed(name: str, claim: Claim, quick: bool, typed: Iterable[str]) -> Config:
    """The settings of a claim with those replaced that were typed, such as "widths=2,4".

    Numbers, names and tuples of them can be replaced.

    >>> from .c16_sketch_error import CLAIM
    >>> changed("C16", CLAIM, False, ["draws=4", "widths=2,4"]).widths
    (2, 4)
    """
    config, defaults = claim.quick if quick else claim.config, {}
    for setting, value in vars(claim.config).items():
        (kind,) = {type(part) for part in (value if isinstance(value, tuple) else (value,))}
        if kind in KINDS:
            defaults[setting] = kind
    for text in typed:
        setting, sign, value = text.partition("=")
        if not sign:
            raise ValueError(f"set must be NAME=VALUE, such as draws=4, got {text!r}")
        if setting not in defaults:
            raise ValueError(unknown_name(f"setting of {name}", setting, defaults))
        default = getattr(claim.config, setting)
        config = config.replace(**{setting: read(setting, value, defaults[setting], default)})
    return config


def read(name: str, text: str, kind: type, default: Any) -> Any:
    """The value that a text spells, of the type of a setting."""
    if not isinstance(default, tuple):
        return number(name, text, kind, (default,))
    values = tuple(number(name, part, kind, default) for part in re.split(",(?! )", text))
    if isinstance(default, Exactly) and len(values) != len(default):
        raise ValueError(f"{name} must have {len(default)} values, got {text!r}")
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
