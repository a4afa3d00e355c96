"""Options whose value is one of several words, such as `--solver`, in any spelling of the word."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import tyro

from ..catalogue import spelled
from ..names import folded, unknown

WORDS = tyro.constructors.ConstructorRegistry()
"""What the command line adds to the types that tyro knows."""


@WORDS.primitive_rule
def words(info: Any) -> Any:
    """Read Literal[...], also in a tuple or with None, in any spelling of its words.

    tyro would compare letter by letter, and could not say which word was meant.
    """
    hints = get_args(info.type) if get_origin(info.type) in (Union, UnionType) else (info.type,)
    (hint, *others) = [hint for hint in hints if hint is not NoneType] or [None]
    many, optional = get_origin(hint) is tuple, NoneType in hints
    if get_origin(literal := get_args(hint)[0] if many else hint) is not Literal or others:
        return None
    known = get_args(literal)
    read = reader(known)

    def instance(given: list[str]) -> Any:
        if optional and given == ["None"]:
            return None
        return tuple(map(read, given)) if many else read(given[0])

    one = f"{{{','.join([*['None'] * (optional and not many), *known])}}}"
    several = f"{'{None}|' * optional}[{one} [{one} ...]]"
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*" if many else 1,
        metavar=several if many else one,
        instance_from_str=instance,
        is_instance=lambda value: value is None or isinstance(value, (str, tuple)),
        str_from_instance=lambda value: list(value) if isinstance(value, tuple) else [str(value)],
    )


def reader(known: tuple[str, ...]) -> Callable[[str], str]:
    """A function that returns the word with dashes, underscores, capitals or a short name."""
    by_spelling = {folded(word): word for word in known}

    def read(given: str) -> str:
        for word in (folded(given), spelled(given)):
            if word in by_spelling:
                return by_spelling[word]
        raise ValueError(unknown("", given, known).strip())

    return read
