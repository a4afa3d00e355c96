"""`icl-krr solverbench`: write models of known algorithm, identify them, and score verdicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from ...experiments.solverbench.entrant import identify_models
from ...experiments.solverbench.folder import (
    LABELS,
    MODELS,
    TRUTHS,
    read_models,
    read_record,
    write_bench,
)
from ...experiments.solverbench.power import (
    POWER_QUICK,
    PowerConfig,
    count_cells,
    measure,
    power_table,
)
from ...experiments.solverbench.score import markdown, open_table, score, variant_table
from ...experiments.solverbench.settings import QUICK, BenchConfig
from ...experiments.solverbench.verdicts import read_verdicts
from ...files import to_csv, to_markdown
from ...plots import images, power_figure
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
    rows = identify_models(models, settings.seed, show)
    meta = {**output.surroundings(settings), "dtype": manifest["dtype"]}
    record = {"config": manifest["config"], "rows": rows}
    files = {
        "verdicts.csv": to_csv(rows),
        "verdicts.json": (output.to_json({"meta": meta, **record}) + "\n").encode(),
    }
    output.write(folder, files)
    header = list(rows[0])
    lines = [[cell(row.get(name, "")) for name in header] for row in rows]
    return record, [Table("Verdicts of identify", header, [lines], where="verdicts.csv")]


def cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def score_table(settings: Solverbench, folder: Path, show: Show) -> Results:
    labels = read_record(settings.labels / TRUTHS)
    assert settings.table is not None
    found = score(labels["models"], read_verdicts(settings.table, labels["models"]))
    output.prepare(folder)
    record = {"config": labels["config"], **found}
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
    rows = []
    for row in measure(config):
        rows.append(row)
        show(f"{len(rows)} of {count_cells(config)} models")
    meta = {**output.surroundings(settings), "dtype": "float64"}
    last = config.seed + config.seeds - 1
    title = f"identify on constructions with noise, seeds {config.seed} to {last}, float64"
    header, lines = power_table(rows)
    files = {
        "power.json": (output.to_json({"meta": meta, "rows": rows}) + "\n").encode(),
        "power.csv": to_csv(rows),
        "power.md": to_markdown((header, lines)).encode(),
        **images("power", power_figure(rows, title)),
    }
    output.write(folder, files)
    return {"rows": rows}, [Table(title, header, [lines], where="power.md")]
