"""JSON records of other people, read as annotated types say."""

from __future__ import annotations

from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, is_typeddict

from .catalogue import spelled
from .fields import fits, hints, shown, unknown, words
from .files import from_json


def read_record(hint: Any, path: Path) -> Any:
    """The record in a JSON file."""
    return record_of(hint, json_of(path, path.read_bytes()), path)


def json_of(path: Path, content: bytes) -> Any:
    """The value of a JSON text; ValueError that names the file of the text if it is none."""
    try:
        return from_json(content.decode())
    except ValueError as error:
        raise ValueError(f"{path} must be a JSON file: {error}") from None


def record_of(hint: Any, value: Any, path: Path, place: str = "") -> Any:
    """A value of a JSON file as a type has it.

    Lists become tuples, objects become dataclasses, texts become paths, and names get the spelling
    of the catalogue. An object for a `TypedDict` stays a dictionary and may have further keys.
    Errors name the file and the `place` in it, such as "models[3].tasks".

    >>> from typing import TypedDict
    >>> class Run(TypedDict):
    ...     name: str
    ...     seeds: tuple[int, ...]
    >>> record_of(Run, {"name": "a", "seeds": [1, 2]}, Path("runs.json"))
    {'name': 'a', 'seeds': (1, 2)}
    >>> record_of(Run, {"name": "a", "seeds": [1, "2"]}, Path("runs.json"))
    Traceback (most recent call last):
    ValueError: runs.json: seeds[1] must be an integer, got '2'
    """
    kind, inner = get_origin(hint), get_args(hint)
    if is_typeddict(hint) or is_dataclass(hint):
        return object_of(hint, value, path, place)
    if kind is tuple and isinstance(value, list):
        return tuple(record_of(inner[0], v, path, f"{place}[{i}]") for i, v in enumerate(value))
    if kind is dict and isinstance(value, dict):
        return {k: record_of(inner[1], v, path, inside(place, k)) for k, v in value.items()}
    if isinstance(value, str) and Path in (hint, *inner):
        return Path(value)
    if isinstance(value, str) and spelled(value) in inner:
        return spelled(value)
    for one in inner:  # such as a list or None
        if get_origin(one) is tuple and isinstance(value, list):
            return record_of(one, value, path, place)
    if not fits(value, hint):
        raise ValueError(f"{place_in(path, place)} must be {words(hint)}, got {shown(value)}")
    return value


def object_of(hint: Any, value: Any, path: Path, place: str) -> Any:
    known = hints(hint)
    if not isinstance(value, dict):
        raise ValueError(
            f"{place_in(path, place)} must be an object with {', '.join(known)}, got {shown(value)}"
        )
    if is_typeddict(hint):
        if missing := [n for n in known if n in hint.__required_keys__ and n not in value]:
            raise ValueError(f"{place_in(path, place)} must have {', '.join(missing)}, got none")
    else:
        for name in value:
            if name not in known:
                raise ValueError(f"{place_in(path, place)}: {unknown('field', name, known)}")
    made = {
        name: record_of(known[name], one, path, inside(place, name)) if name in known else one
        for name, one in value.items()
    }
    try:
        return hint(**made)
    except ValueError as error:
        raise ValueError(f"{place_in(path, place)}: {error}") from None


def inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def place_in(path: Path, place: str) -> str:
    return f"{path}: {place}" if place else str(path)
