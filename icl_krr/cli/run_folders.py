"""Folders as commands left them, as sections of a page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from .. import report as pages
from ..experiments.shared.recipe import folder_of, holds_run, names
from ..experiments.sweep.grid import SweepConfig, cells, rows_of_a_cell
from ..files import from_markdown
from ..report import Section
from .csv_rows import is_whole, parse_rows


@dataclass
class Sources:
    """The folders that were named, by what they hold."""

    claims: Path | None = None
    identification: Path | None = None
    run: str | None = None
    sweeps: list[Path] = field(default_factory=list)


def sort_by_kind(runs: tuple[str, ...]) -> Sources:
    """Which run is which, by the files it holds; ValueError for what is none."""
    sources = Sources()
    for run in runs:
        folder = folder_of(run)
        if (folder / "claims.json").exists():
            kind, value = "claims", folder
        elif (folder / "identify.json").exists():
            kind, value = "identification", folder
        elif holds_run(folder):
            kind, value = "run", run
        elif (folder / "results.csv").exists() and "config" in read_json(folder / "meta.json"):
            sources.sweeps.append(folder)
            continue
        else:
            raise ValueError(
                "runs must be folders that verify, identify, sweep or train left, or one of "
                f"{', '.join(names())}; got {run!r}"
            )
        if getattr(sources, kind) is not None:
            raise ValueError(
                f"runs must hold {kind} once at most, got {getattr(sources, kind)} and {value}"
            )
        setattr(sources, kind, value)
    return sources


DAMAGED = (
    OSError,
    AttributeError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    ElementTree.ParseError,
)


def read_json(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text())
        return dict(record.items())
    except (OSError, AttributeError, ValueError):
        raise ValueError(f"{path} must be the JSON that a command left") from None


@contextmanager
def whole_folder(folder: Path, command: str) -> Iterator[None]:
    """A folder from which something is missing is refused in a sentence."""
    try:
        yield
    except DAMAGED:
        raise ValueError(
            f"{folder} must hold all that icl-krr {command} writes; run it again"
        ) from None


def read_svg(path: Path) -> bytes:
    """An SVG that is whole."""
    content = path.read_bytes()
    ElementTree.fromstring(content)
    return content


def identification_section(folder: Path) -> Section:
    """What `icl-krr identify` left."""
    record = read_json(folder / "identify.json")
    with whole_folder(folder, "identify"):
        tables = from_markdown((folder / "identify.md").read_text())
        rivals = len(record["candidates"]) + len(record["baselines"])
        require_equal([len(lines) for _, lines in tables], [len(record["layers"]), rivals, rivals])
        name = Path(record["meta"]["settings"]["model"]).name
        return pages.identification_section(
            name,
            f"{record['status']}; nearest: {', '.join(record['remain'])}",
            tables,
            read_svg(folder / "heatmaps.svg"),
            read_svg(folder / "filter.svg"),
            pages.provenance(record["meta"], record["meta"]["dtype"]),
        )


def sweep_section(place: int, folder: Path) -> Section:
    """What `icl-krr sweep` left."""
    meta = read_json(folder / "meta.json")
    with whole_folder(folder, "sweep"):
        config = SweepConfig(**meta["config"])
        rows = parse_rows(folder / "results.csv")
        found = Counter((row["line"], row["seed"]) for row in rows if is_whole(row))
        require_equal(found, {cell: rows_of_a_cell(config, cell[0]) for cell in found})
        require_equal(set(cells(config)) - {*found}, set())
        figure = read_svg(folder / f"{config.axis}.svg")
        made = pages.provenance(meta, meta["dtype"])
        return pages.sweep_section(f"sweep-{place + 1}", config.axis, rows, figure, made)


def claims_section(folder: Path) -> Section:
    """What `icl-krr verify` left."""
    record = read_json(folder / "claims.json")
    with whole_folder(folder, "verify"):
        (table,) = from_markdown((folder / "claims.md").read_text())
        require_equal(len(table[1]), len(record["claims"]))
        made = pages.provenance(record["meta"], "dtype in the last column")
        return pages.claims_section(table, made)


def require_equal(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise ValueError
