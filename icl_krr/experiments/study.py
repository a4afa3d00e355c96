"""A study measures something in every cell of a grid; one runner keeps what is finished."""

from __future__ import annotations

import itertools
import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.experimental.multihost_utils import sync_global_devices

from .. import checks, fields, files

Cell = dict[str, Any]
"""One value of every axis of a study, by name."""

KEPT = "cells.jsonl"
"""The file of the finished cells: the study on the first line, then a line for each cell."""


@dataclass(frozen=True)
class Study:
    """An experiment: the cells of its grid, and what is measured in each.

    Attributes:
        name: the study in words, for errors.
        settings: what the results depend on besides the cell, as JSON holds it.
        axes: names and values of the axes; a cell has one value of each.
        measure: function of a cell that returns what JSON can hold, such as `Rows`.
        source: function of a cell that returns a text on which this cell alone depends, such as the
            user's code; a kept cell with another text is measured again.

    >>> squares = Study("squares", {}, {"x": (2, 3)}, lambda cell: cell["x"] ** 2)
    >>> [result for _, result in run(squares).cells]
    [4, 9]
    """

    name: str
    settings: Mapping[str, Any]
    axes: Mapping[str, Iterable[Any]]
    measure: Callable[[Cell], Any]
    source: Callable[[Cell], str] = lambda cell: ""

    @property
    def cells(self) -> list[Cell]:
        """All cells; the last axis runs fastest."""
        every = itertools.product(*self.axes.values())
        return [dict(zip(self.axes, values, strict=True)) for values in every]


class Results(NamedTuple):
    """The cells of a study with what was measured.

    Attributes:
        cells: pairs of a cell and its result, in the order of the axes.
        kept: records of these and of the cells of earlier runs with other axes, in the order in
            which they were measured; each has a `cell`, its `source` and its `result`.
        before: number of `cells` that an earlier run had finished.
    """

    cells: list[tuple[Cell, Any]]
    kept: list[dict[str, Any]]
    before: int


Measured = Iterable[tuple[Cell, Any]]
"""Pairs of a cell and its result, as soon as they are there."""


def one_by_one(measure: Callable[[Cell], Any], cells: Iterable[Cell]) -> Measured:
    for cell in cells:
        yield cell, measure(cell)


def run(
    study: Study,
    folder: Path | None = None,
    progress: Callable[[str, int, int], None] = lambda words, done, total: None,
    each: Callable[[Callable[[Cell], Any], list[Cell]], Measured] = one_by_one,
) -> Results:
    """Measure every cell, except those that an earlier run has kept in the folder.

    `progress` gets a cell in words when it is finished, and how many of how many cells are. `each`
    may measure several cells at a time. Of several hosts, the first one writes.

    Raises:
        ValueError: the folder holds a study with other settings.
    """
    kept = {} if folder is None else _read(folder / KEPT, study)
    missing = [cell for cell in study.cells if _key(cell) not in kept]
    total = len(study.cells)
    before = done = total - len(missing)
    progress("", done, total)
    for cell, result in each(study.measure, missing):
        line = _line({"cell": cell, "source": study.source(cell), "result": result})
        if folder is not None and jax.process_index() == 0:
            with (folder / KEPT).open("ab") as file:
                file.write(line)
        kept[_key(cell)] = json.loads(line)
        done += 1
        progress(", ".join(f"{name} {value}" for name, value in cell.items()), done, total)
    cells = [(cell, kept[_key(cell)]["result"]) for cell in study.cells]
    return Results(cells, list(kept.values()), before)


def environment(*packages: str) -> dict[str, Any]:
    """The device, the machine and the versions behind a result."""
    device = jax.devices()[0]
    return {
        "device": f"{device.platform}: {device.device_kind}",
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("icl_krr", "jax", "jaxlib", *packages)},
    }


def _key(cell: Cell) -> str:
    return json.dumps(cell)


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _read(path: Path, study: Study) -> dict[str, dict[str, Any]]:
    """The kept cells by their keys, without those of another source; the file has these alone."""
    head = json.loads(_line({"study": study.name, "settings": dict(study.settings)}))
    kept = {}
    if path.exists():
        stored, *lines = map(_record, path.read_bytes().splitlines() or [b""])
        _compare(path, stored, head)
        kept = {_key(record["cell"]): record for record in lines if "result" in record}
    for cell in study.cells:
        if _key(cell) in kept and kept[_key(cell)]["source"] != study.source(cell):
            del kept[_key(cell)]
    sync_global_devices(f"{path} is read")
    if jax.process_index() == 0:
        files.replace(path, b"".join(map(_line, (head, *kept.values()))))
    return kept


def _record(line: bytes) -> dict[str, Any]:
    """The record of a line, or {} for a line that an interruption has cut."""
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        return {}


def _compare(path: Path, stored: dict[str, Any], given: dict[str, Any]) -> None:
    name, other = given["study"], stored.get("study")
    if other != name:
        raise ValueError(
            f"{path} must hold the study {name!r}, got {fields.shown(other)}; choose another folder"
        )
    if differs := checks.differences(stored["settings"], given["settings"]):
        raise ValueError(
            f"{path.parent} holds a study with other settings: {differs}; choose another folder"
        )
