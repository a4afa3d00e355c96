"""`icl-krr identify`: which solver a model runs, as tables, heatmaps and filters."""

from __future__ import annotations

import dataclasses
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..experiments import confusion
from ..experiments.confusion import ConfusionConfig, cells
from ..experiments.identification import (
    Findings,
    IdentifyConfig,
    Lines,
    distance_table,
    examine,
    heatmaps,
    layer_table,
    markdown,
)
from ..experiments.runs import load
from ..files import to_csv
from ..plots import confusion_figure, filter_figure, identification_figure, png
from ..probes import Identification
from ..probes.distances import SPACES, Distance
from ..probes.identify import CLOSE, IDENTIFIED, NONE, TIED
from . import output
from .output import number
from .settings import Identify

CONSTRUCTIONS = "constructions"
REASONS = {
    IDENTIFIED: "every other one is farther, beyond the intervals, or contains it",
    TIED: "their intervals overlap in both spaces, and none is a special case of another",
    NONE: f"the first of those that remain is farther than {CLOSE} in one of the spaces",
}


def identification(settings: Identify, argv: list[str]) -> int:
    """1 if a constructed solver is not identified, else 0."""
    folder = settings.out or Path(f"icl-krr-identify-{Path(settings.model).name}")
    if settings.model == CONSTRUCTIONS:
        return confuse(settings, argv, folder)
    run = load(settings.model)
    config = IdentifyConfig(
        **{f.name: getattr(settings, f.name) for f in dataclasses.fields(IdentifyConfig)}
    )
    output.prepare(folder)
    with Console(stderr=True).status("") as status, jax.enable_x64(True):
        findings = examine(run, config, lambda words: status.update(f"{settings.model}: {words}"))
    meta = {
        **output.surroundings(argv, settings),
        "dtype": "float64",
        "kernel": repr(findings.kernel),
        "ridge": findings.ridge,
    }
    record = {"meta": meta, "layers": findings.layers, **summary(findings.found)}
    title = f"{settings.model}, seed {settings.seed}"
    files = {
        "identify.json": (output.to_json(record) + "\n").encode(),
        "layers.csv": to_csv(findings.layers),
        "heatmaps.csv": to_csv(heatmaps(findings.found)),
        "identify.md": markdown(findings).encode(),
        "heatmaps.png": png(identification_figure(findings.found, title)),
        "filter.png": png(filter_figure(findings, title)),
    }
    if settings.json:
        print(output.to_json(record))
    else:
        show(settings.model, findings)
    written = output.save(folder, files)
    print(f"wrote {', '.join(map(str, written))}", file=sys.stderr)
    return 0


def summary(found: Identification) -> dict[str, Any]:
    """An identification as JSON has it."""
    return {
        "status": found.status,
        "remain": found.remain,
        "strata of the condition number": found.strata,
        "candidates": [
            {
                "candidate": suspect.fit.candidate,
                "kernel": suspect.fit.kernel,
                "values": suspect.fit.values,
                "values of each layer": suspect.fit.per_layer,
                "alignment": suspect.fit.alignment,
                "ruled out": suspect.because,
                **{space: distance(d) for space, d in suspect.distances.items()},
            }
            for suspect in found.suspects
        ],
        "baselines": {
            name: {space: distance(d) for space, d in spaces.items()}
            for name, spaces in found.baselines.items()
        },
    }


def distance(d: Distance) -> dict[str, Any]:
    return {name: value for name, value in d._asdict().items() if name != "matrix"}


def show(name: str, findings: Findings) -> None:
    console, found = Console(), findings.found
    if not console.is_terminal:
        console = Console(width=160)
    title = f"{name}: mean squared error after every layer, and the nearest hyperparameters"
    console.print(lined(title, layer_table(findings)))
    console.print(
        f"error: of the linear probe, at the last layer of the model; shuffled, untrained: of the "
        f"same probe fitted to other tasks' outputs, and to an untrained model.\n"
        f"exact: {findings.kernel!r}, ridge {findings.ridge:.3g}. Each layer's hyperparameters are "
        f"those of the regression, and of the smoother, whose hat matrix is nearest to its own.\n",
        highlight=False,
    )
    console.print(candidates(found))
    for space in SPACES:
        title = f"relative distance of every layer, {space} (95 %)"
        console.print(lined(title, distance_table(found, space)))
    console.print(
        f"{found.status}: {', '.join(found.remain)}; {REASONS[found.status]}", highlight=False
    )


def lined(title: str, content: Lines) -> Table:
    header, lines = content
    table = Table(title=title)
    for i, column in enumerate(header):
        table.add_column(column, justify="right" if i else "left", overflow="fold")
    for line in lines:
        table.add_row(*line)
    return table


def candidates(found: Identification) -> Table:
    table = Table(title="relative distance of layers to steps, mean over layers (95 %)")
    table.add_column("candidate", no_wrap=True)
    for column in ("kernel", "parameters", "steps of the layers"):
        table.add_column(column, overflow="fold")
    edges = [number(edge) for edge in found.strata]
    strata = [f"cond {low} to {high}" for low, high in pairwise(edges)]
    for column in ("prediction", "hat", *strata):
        table.add_column(column, justify="right")
    table.add_column("ruled out by", overflow="fold")
    for suspect in found.suspects:
        one = suspect.fit
        table.add_row(
            one.candidate,
            one.kernel,
            ", ".join(f"{key} {value:.3g}" for key, value in one.values.items()),
            " ".join(map(str, one.alignment)),
            *distances(suspect.distances),
            suspect.because,
        )
    table.add_section()
    for baseline, spaces in found.baselines.items():
        table.add_row(baseline, "", "", "", *distances(spaces), "")
    return table


def distances(spaces: dict[str, Any]) -> list[str]:
    shown = [
        f"{number(d.mean)} ({number(d.interval[0])}, {number(d.interval[1])})"
        for d in spaces.values()
    ]
    return [*shown, *map(number, spaces["prediction"].by_stratum)]


def confuse(settings: Identify, argv: list[str], folder: Path) -> int:
    """The confusion matrix, written after every model; 1 if one is not identified, else 0."""
    tasks = ConfusionConfig.tasks // (2 if settings.quick else 1)
    config = ConfusionConfig(seeds=settings.seeds, seed=settings.seed, tasks=tasks)
    output.prepare(folder)
    described = output.plain(dataclasses.asdict(config))
    meta = {**output.surroundings(argv, settings), "dtype": "float64", "config": described}
    rows = finished(folder / "confusion.json", described)
    done = frozenset((r["solver"], r["kernel"], r["condition"], r["seed"]) for r in rows)
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
        jax.enable_x64(True),
    ):
        bar = progress.add_task("", total=len(cells(config)), completed=len(rows))
        for cell, row in confusion.run(config, done):
            rows.append(row)
            record = (output.to_json({"meta": meta, "rows": rows}) + "\n").encode()
            output.save(folder, {"confusion.json": record})
            progress.update(bar, description=f"{cell[0]}, {cell[1]} kernel", advance=1)
    if settings.json:
        print(output.to_json({"meta": meta, "rows": rows}))
    else:
        show_matrix(rows)
    files = {
        "confusion.csv": to_csv(rows),
        "confusion.md": confusion.markdown(rows).encode(),
        "confusion.png": png(confusion_figure(confusion.matrix(rows), settings.seed)),
    }
    written = output.save(folder, files)
    print(f"wrote {folder / 'confusion.json'}, {', '.join(map(str, written))}", file=sys.stderr)
    return 0 if all(row["right"] for row in rows) else 1


def finished(path: Path, config: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of an earlier run of the same matrix; ValueError for those of another."""
    if not path.exists():
        return []
    try:
        record = json.loads(path.read_text())
        there, rows = record["meta"]["config"], record["rows"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} must be a confusion matrix or absent; choose --out") from None
    differs = [
        f"{name} is {there.get(name)} there and {value} here"
        for name, value in config.items()
        if there.get(name) != value
    ]
    if differs:
        raise ValueError(f"{path} holds another matrix: {'; '.join(differs)}; choose another --out")
    return rows


def show_matrix(rows: list[dict[str, Any]]) -> None:
    found = confusion.matrix(rows)
    names = [name for name in next(iter(found.values())) if name != "runs"]
    table = Table(
        title="runs in which a candidate remains (columns) of a constructed solver (rows)"
    )
    table.add_column("constructed")
    table.add_column("kernel")
    for name in names:
        table.add_column(confusion.initials(name), justify="right")
    for (solver, kernel), counts in found.items():
        shown = (f"{counts[name]}/{counts['runs']}" if counts[name] else "" for name in names)
        table.add_row(f"{confusion.initials(solver)}: {solver}", kernel, *shown)
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(table)
    right = sum(row["right"] for row in rows)
    console.print(f"{right} of {len(rows)} models are identified, each alone", highlight=False)
