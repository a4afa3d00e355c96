"""`icl-krr solverbench`: write models of known algorithm, identify them, and score verdicts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import jax
from rich.console import Console

from ...experiments.solverbench.folder import (
    LABELS,
    MODELS,
    TRUTHS,
    write_bench,
)
from ...experiments.solverbench.power import (
    POWER_QUICK,
    PowerConfig,
    count_cells,
    measure,
    power_table,
)
from ...experiments.solverbench.reading import read_labels, read_models
from ...experiments.solverbench.score import markdown, open_table, score, variant_table
from ...experiments.solverbench.settings import QUICK, BenchConfig
from ...experiments.solverbench.verdicts import identify_models, read_verdicts
from ...files import to_csv, to_markdown
from ...plots import images, power_figure
from ...records import read_record
from ...text_tables import Table
from .. import output
from ..settings.solverbench import IDENTIFY, OUT, POWER, SCORE, WRITE, Solverbench

Show = Callable[[str], None]


def run(settings: Solverbench) -> int:
    action = {WRITE: write, IDENTIFY: identify, SCORE: score_table, POWER: power}[settings.action]
    folder = settings.out or OUT[settings.action]
    meta = {**output.surroundings(settings), "dtype": "float64"}
    with Console(stderr=True).status("") as status, jax.enable_x64(True):
        record, tables = action(
            settings, folder, lambda words: status.update(f"{settings.action}: {words}")
        )
    if settings.json:
        print(output.to_json({"meta": meta, **record}))
    else:
        for table in tables:
            output.wide().print(table)
    return 0


Results = tuple[dict[str, Any], list[Table]]


def write(settings: Solverbench, folder: Path, show: Show) -> Results:
    sizes: dict[str, Any] = {"quick": True, **QUICK} if settings.quick else {}
    output.prepare(folder)
    labels = write_bench(folder, BenchConfig(seed=settings.seed, **sizes), show)
    counts: dict[str, int] = {}
    for label in labels["models"].values():
        counts[label["variant"]] = counts.get(label["variant"], 0) + 1
    title = f"SolverBench, seed {settings.seed}, float64; see {folder / MODELS}, {folder / LABELS}"
    lines = [[name, str(count)] for name, count in counts.items()]
    return {"models": counts}, [Table(title, ["variant", "models"], [lines])]


def identify(settings: Solverbench, folder: Path, show: Show) -> Results:
    manifest, models = read_models(settings.models)
    output.prepare(folder)
    known = {
        "config": dataclasses.asdict(manifest["config"]),
        "sha256": manifest["sha256"],
        "seed": settings.seed,
    }
    meta = {**output.surroundings(settings), "dtype": manifest["dtype"], **known}
    rows = finished(folder / "verdicts.json", known, ("model",))

    def save() -> None:
        record = (output.to_json({"meta": meta, "rows": rows}) + "\n").encode()
        output.save(folder, {"verdicts.json": record, "verdicts.csv": to_csv(rows)})

    for row in identify_models(models, settings.seed, {row["model"] for row in rows}):
        rows.append(row)
        rows.sort(key=lambda row: row["model"])
        save()
        show(f"{len(rows)} of {len(models)} models")
    header = list(dict.fromkeys(name for row in rows for name in row))
    lines = [[cell(row.get(name, "")) for name in header] for row in rows]
    table = Table("Verdicts of identify", header, [lines], where="verdicts.csv")
    return {"rows": rows}, [table]


class Earlier(TypedDict):
    """What an earlier run of the same command wrote."""

    meta: dict[str, Any]
    rows: tuple[dict[str, Any], ...]


def finished(path: Path, known: dict[str, Any], names: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows of an earlier run of the same command; ValueError if it was another."""
    if not path.exists():
        return []
    earlier: Earlier = read_record(Earlier, path)
    meta, rows = earlier["meta"], earlier["rows"]
    same = all(name in meta and meta[name] == v for name, v in output.plain(known).items())
    if not same or not all({*names} <= {*row} for row in rows):
        raise ValueError(f"{path} must be of the same models, got others; choose another --out")
    return [*rows]


def cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def score_table(settings: Solverbench, folder: Path, show: Show) -> Results:
    labels = read_labels(settings.labels / TRUTHS)
    assert settings.table is not None
    found = score(labels["models"], read_verdicts(settings.table, labels["models"]))
    output.prepare(folder)
    record = {"config": dataclasses.asdict(labels["config"]), **found}
    meta = {**output.surroundings(settings), "dtype": labels["dtype"]}
    files = {
        "score.json": (output.to_json({"meta": meta, **record}) + "\n").encode(),
        "score.md": markdown(found).encode(),
    }
    output.write(folder, files)
    tables = (
        ("Models that run a candidate: share of each outcome (95 %)", variant_table(found)),
        ("Models that run no candidate: share of each verdict (95 %)", open_table(found)),
    )
    return record, [Table(title, header, [lines]) for title, (header, lines) in tables]


def power(settings: Solverbench, folder: Path, show: Show) -> Results:
    config = PowerConfig(seed=settings.seed, **(POWER_QUICK if settings.quick else {}))
    output.prepare(folder)
    known = {"config": dataclasses.asdict(config)}
    meta = {**output.surroundings(settings), "dtype": "float64", **known}
    names = ("tasks", "seed", "solver", "level")
    rows = finished(folder / "power.json", known, names)
    done = {tuple(row[name] for name in names) for row in rows}
    for found in measure(config, done):
        rows += found
        record = (output.to_json({"meta": meta, "rows": rows}) + "\n").encode()
        output.save(folder, {"power.json": record})
        show(f"{len(rows) // 2} of {count_cells(config)} models")
    last = config.seed + config.seeds - 1
    title = f"identify on constructions with noise, seeds {config.seed} to {last}, float64"
    header, lines = power_table(rows)
    files = {
        "power.csv": to_csv(rows),
        "power.md": to_markdown((header, lines)).encode(),
        **images("power", power_figure(rows, title)),
    }
    output.write(folder, files)
    return {"rows": rows}, [Table(title, header, [lines], where="power.md")]
