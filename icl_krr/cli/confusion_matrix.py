"""`icl-krr identify constructions`: the confusion matrix; a second run continues the first."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax

from .. import checks
from ..catalogue import candidate
from ..experiments.identify import confusion
from ..experiments.identify.confusion import ConfusionConfig, cells
from ..files import from_json, to_csv
from ..plots import confusion_figure, images
from ..text_tables import Table
from . import output


def identify_constructions(
    config: ConfusionConfig, meta: dict[str, Any], folder: Path, json: bool
) -> int:
    """Save the matrix after every model; return 1 if a model is not identified, else 0."""
    output.prepare(folder)
    described = output.plain(dataclasses.asdict(config))
    meta = {**meta, "config": described}
    rows = finished_rows(folder / "confusion.json", described)
    done = frozenset((r["solver"], r["kernel"], r["condition"], r["seed"]) for r in rows)
    with output.count() as progress, jax.enable_x64(True):
        bar = progress.add_task("", total=len(cells(config)), completed=len(rows))
        for cell, row in confusion.run(config, done):
            rows.append(row)
            output.save(folder, {"confusion.json": output.json_file({"meta": meta, "rows": rows})})
            progress.update(bar, description=f"{cell[0]}, {cell[1]} kernel", advance=1)
    files = {
        "confusion.csv": to_csv(rows),
        "confusion.md": confusion.markdown(rows).encode(),
        **images("confusion", confusion_figure(confusion.matrix(rows), config.seed)),
    }
    written = output.save(folder, files)
    print(f"wrote {folder / 'confusion.json'}, {', '.join(map(str, written))}", file=sys.stderr)
    if json:
        print(output.to_json({"meta": meta, "rows": rows}))
    else:
        print_matrix(rows)
    return 0 if all(row["right"] for row in rows) else 1


def finished_rows(path: Path, config: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of an earlier run with the same settings; ValueError if the settings differ."""
    if not path.exists():
        return []
    try:
        record = from_json(path.read_text())
        there, rows = record["meta"]["config"], record["rows"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path} must be a confusion matrix written by icl-krr identify; choose another --out"
        ) from None
    if differs := checks.differences(there, config):
        raise ValueError(
            f"{path} holds a confusion matrix with other settings: {differs}; choose another --out"
        )
    return rows


def print_matrix(rows: list[dict[str, Any]]) -> None:
    found = confusion.matrix(rows)
    names = [name for name in next(iter(found.values())) if name != "runs"]
    lines = []
    for (solver, kernel), counts in found.items():
        shown = (f"{counts[name]}/{counts['runs']}" if counts[name] else "" for name in names)
        lines.append([f"{candidate(solver).label}: {solver}", kernel, *shown])
    title = "Constructed models (row) for which a candidate solver (column) is not ruled out"
    header = ["constructed", "kernel", *(candidate(name).label for name in names)]
    console = output.wide()
    console.print(Table(title, header, [lines]))
    right = sum(row["right"] for row in rows)
    console.print(
        f"For {right} of {len(rows)} models, all candidates except the true solver are ruled out."
    )
