"""A study measures something in every cell of a grid; one runner keeps what is finished."""

from __future__ import annotations

import itertools
import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental.multihost_utils import sync_global_devices

from .._core import checks, files, messages

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
            user's code; a cell that is kept with another text alone is measured again.
        files: names of files of results; a folder that has one and no kept cells is refused.

    >>> squares = Study("squares", {}, {"x": (2, 3)}, lambda cell: cell["x"] ** 2)
    >>> [result for _, result in run(squares).cells]
    [4, 9]
    """

    name: str
    settings: Mapping[str, Any]
    axes: Mapping[str, Iterable[Any]]
    measure: Callable[[Cell], Any]
    source: Callable[[Cell], str] = lambda cell: ""
    files: tuple[str, ...] = ()

    def __post_init__(self):
        axes = {name: tuple(values) for name, values in self.axes.items()}
        object.__setattr__(self, "axes", axes)

    @property
    def cells(self) -> list[Cell]:
        """All cells; the last axis runs fastest."""
        every = itertools.product(*self.axes.values())
        return [dict(zip(self.axes, values, strict=True)) for values in every]


class Results(NamedTuple):
    """The cells of a study with what was measured.

    Attributes:
        cells: pairs of a cell and its result, in the order of the axes, without those that were
            not measured.
        records: those of these cells and of cells of earlier runs with other axes; each has a
            `cell`, its `source` and its `result`.
        before: number of `cells` that an earlier run had finished.
    """

    cells: list[tuple[Cell, Any]]
    records: list[dict[str, Any]]
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
    cells_by_key = {_line(cell): (cell, study.source(cell)) for cell in study.cells}
    records = [] if folder is None else _read(folder, study)
    there = {(_line(record["cell"]), record["source"]): record for record in records}
    results = {key: there.get((key, source)) for key, (_, source) in cells_by_key.items()}
    missing = [cell for key, (cell, _) in cells_by_key.items() if results[key] is None]
    before = len(cells_by_key) - len(missing)
    progress("", before, len(cells_by_key))
    for done, (cell, result) in enumerate(each(study.measure, missing), before + 1):
        key = _line(cell)
        line = _line({"cell": cell, "source": cells_by_key[key][1], "result": result})
        if folder is not None and jax.process_index() == 0:
            files.append(folder / KEPT, line)
        results[key] = json.loads(line)
        words = ", ".join(f"{name} {value}" for name, value in cell.items())
        progress(words, done, len(cells_by_key))
    results = {key: record for key, record in results.items() if record is not None}
    cells = [(cells_by_key[key][0], record["result"]) for key, record in results.items()]
    stored = {_line(record["cell"]): record for record in records} | results
    return Results(cells, list(stored.values()), before)


def environment(*packages: str) -> dict[str, Any]:
    """The device, the machine and the versions behind a result."""
    device = jax.devices()[0]
    return {
        "device": f"{device.platform}: {device.device_kind}",
        "machine": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("icl_krr", "jax", "jaxlib", *packages)},
    }


def _processor() -> str:
    """The name and the family of the processor, where the system tells them."""
    facts = Path("/proc/cpuinfo")
    text = facts.read_text() if facts.exists() else ""
    found = dict(re.findall("(model name|cpu family)\\s*: (.*)", text))
    name, family = found.get("model name", platform.processor()), found.get("cpu family")
    return f"{name}, family {family}" if family else name


def _line(record: Any) -> bytes:
    return json.dumps(record, default=_number).encode() + b"\n"


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cells, settings and results must be what JSON can hold, got {value!r}")


def _read(folder: Path, study: Study) -> list[dict[str, Any]]:
    """The records of kept cells, without lines that were cut or edited; a new file if none is."""
    path, settings = folder / KEPT, {**study.settings, "icl_krr": version("icl_krr")}
    head = json.loads(_line({"study": study.name, "settings": settings}))
    there = path.read_bytes() if path.exists() else None
    content, records = _line(head), []
    if there is not None:
        content = there[: there.rfind(b"\n") + 1]  # an interruption may have cut the last line
        stored, *lines = map(_record, content.splitlines() or [b""])
        _compare(path, stored, head)
        records = [one for one in lines if {"cell", "source", "result"} <= one.keys()]
    elif other_files := [name for name in study.files if (folder / name).exists()]:
        raise ValueError(
            f"{folder} must be empty or hold a {study.name} with its {KEPT}, got {other_files[0]}; "
            "choose another folder"
        )
    sync_global_devices(f"{path} is read")
    if jax.process_index() == 0 and content != there:
        files.replace(path, content)
    return records


def _record(line: bytes) -> dict[str, Any]:
    """The record of a line, or {} for a line that holds none."""
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return {}


def _compare(path: Path, stored: dict[str, Any], head: dict[str, Any]) -> None:
    name, other = head["study"], stored.get("study")
    if other != name or not isinstance(stored.get("settings"), dict):
        raise ValueError(
            f"{path} must hold the study {name!r}, got {messages.short_repr(other)}; choose "
            "another folder"
        )
    if differs := checks.differences(stored["settings"], head["settings"]):
        raise ValueError(
            f"{path.parent} holds a study with other settings: {differs}; choose another folder"
        )
