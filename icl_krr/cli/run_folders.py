"""Sections of the report page, made from the folders that other commands wrote."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from .. import report as pages
from ..experiments.claims.tables import compute
from ..experiments.shared.recipe import folder_of, holds_run, names
from ..experiments.shared.rows import Rows
from ..experiments.shared.runs import Run
from ..experiments.sweep.grid import SweepConfig, models_of
from ..files import from_csv, from_markdown
from ..report import Section


@dataclass
class Sources:
    """The folders given on the command line, by kind of result."""

    claims: Path | None = None
    identification: Path | None = None
    run: str | None = None
    sweeps: list[Path] = field(default_factory=list)


NAMES = {"claims": "claims", "identification": "an identification", "run": "a trained model"}


def sort_by_kind(runs: tuple[str, ...]) -> Sources:
    """Find the kind of each folder from its files; ValueError for an unknown folder."""
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
                "runs must be folders written by verify, identify, sweep or train, or one of "
                f"{', '.join(names())}; got {run!r}"
            )
        if getattr(sources, kind) is not None:
            raise ValueError(
                f"runs must include at most one folder with {NAMES[kind]}, got "
                f"{getattr(sources, kind)} and {value}"
            )
        setattr(sources, kind, value)
    return sources


DAMAGED = (OSError, AttributeError, IndexError, KeyError, TypeError, ValueError)


def read_json(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text())
        return dict(record.items())
    except (OSError, AttributeError, ValueError):
        raise ValueError(f"{path} must be a JSON file written by an icl-krr command") from None


@contextmanager
def whole_folder(folder: Path, command: str) -> Iterator[None]:
    """Raise ValueError in one sentence if a file of the folder is missing or damaged."""
    try:
        yield
    except DAMAGED:
        raise ValueError(
            f"{folder} must hold all files that icl-krr {command} writes, but a file is missing or "
            "damaged; run the command again"
        ) from None


def identification_section(folder: Path) -> Section:
    """The section for a folder of `icl-krr identify`."""
    record = read_json(folder / "identify.json")
    with whole_folder(folder, "identify"):
        tables = from_markdown((folder / "identify.md").read_text())[:3]  # states are last
        rivals = len(record["candidates"]) + len(record["baselines"])
        require_equal([len(lines) for _, lines in tables], [len(record["layers"]), rivals, rivals])
        distances = from_csv(folder / "heatmaps.csv")
        filters = from_csv(folder / "filter.csv")
        for one in record["candidates"]:
            keys = ("candidate", "kernel")
            own = [row for row in distances if all(row[key] == one[key] for key in keys)]
            require_equal(size_of_grid(own, "layer", "step"), len(own))
            require_equal(len({row["layer"] for row in own}), len(one["alignment"]))
        require_equal(size_of_grid(filters, "layer", "sigma"), len(filters))
        name = Path(record["meta"]["settings"]["model"]).name
        made = pages.provenance(record["meta"], record["meta"]["dtype"])
        return pages.identification_section(name, record, tables, distances, filters, made)


def sweep_section(place: int, folder: Path) -> Section:
    """The section for a folder of `icl-krr sweep`."""
    meta = read_json(folder / "meta.json")
    with whole_folder(folder, "sweep"):
        given, own = meta["config"], meta.get("own_solvers", {})
        known = [line for line in given["lines"] if line not in own]
        config = SweepConfig(**given | {"lines": known})
        rows = from_csv(folder / "results.csv")
        found = Counter((row["line"], row["seed"]) for row in rows)
        require_equal(found, {(one["line"], one["seed"]): one["rows"] for one in meta["cells"]})
        seeds = range(config.seed, config.seed + config.seeds)
        require_equal({*product(given["lines"], seeds)} - {*found}, set())
        made = pages.provenance(meta, meta["dtype"])
        plot = models_of(config).plot
        return pages.sweep_section(f"sweep-{place + 1}", config.axis, plot, rows, made)


def training_sections(run: Run, name: str, folder: Path) -> list[Section]:
    """The training curves; no section if the run has no metrics file."""
    metrics = folder / "metrics.csv"
    if not metrics.exists():
        return []
    made = f"{name}, seed {run.recipe.training.seed}, {jnp.result_type(float)}."
    try:
        return [pages.training_section(name, from_csv(metrics), made)]
    except (KeyError, IndexError, TypeError, ValueError):
        raise ValueError(f"{metrics} must be a metrics file written by icl-krr train") from None


def claims_section(folder: Path) -> Section:
    """The section for a folder of `icl-krr verify`."""
    record = read_json(folder / "claims.json")
    with whole_folder(folder, "verify"):
        table, *_, settings = from_markdown((folder / "claims.md").read_text())
        for lines in table[1], settings[1]:
            require_equal(len(lines), len(record["claims"]))
        made = pages.provenance(record["meta"], "dtype of each claim")
        return pages.claims_section(table, f"{made} {compute(record['claims'])}")


def size_of_grid(rows: Rows, *names: str) -> int:
    """The number of rows with all combinations of the values in these columns."""
    return math.prod(len({row[name] for row in rows}) for name in names)


def require_equal(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise ValueError
