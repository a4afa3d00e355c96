"""Tables for people, JSON for programs, files for later."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

from ..experiments.depth import DepthResult
from ..files import Lines, replace, to_csv
from .model_settings import Chosen
from .settings import Demo, Predict

PACKAGES = ("icl_krr", "jax", "jaxlib", "flax", "numpy")
BANDWIDTHS = ("temperature", "lengthscale", "smoother_temperature", "smoother_lengthscale")
Results = dict[str, DepthResult]


def meta(argv: list[str], settings: Demo | Predict, results: Results) -> dict[str, Any]:
    return {
        **surroundings(argv, settings),
        "dtype": sorted({result.facts["dtype"] for result in results.values()}),
        "tasks": {name: result.facts for name, result in results.items()},
    }


def surroundings(argv: list[str], settings: Chosen) -> dict[str, Any]:
    """What was asked for, and where it ran."""
    device = jax.devices()[0]
    return {
        "command": ["icl-krr", *argv],
        "settings": dataclasses.asdict(settings),
        "seed": settings.seed,
        "matmul_precision": "highest",
        "device": f"{device.platform}: {device.device_kind}",
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
    }


def print_tables(meta: dict[str, Any], results: Results) -> None:
    console = Console()
    for name, result in results.items():
        facts = result.facts
        table = Table(
            title=f"{name}: {facts['solver']} on the {facts['kernel']} kernel, as a transformer"
        )
        for column in ("step", "blocks", "gap to exact", "gap to oracle", "RMSE"):
            table.add_column(column, justify="right")
        for row in result.rows:
            table.add_row(str(row.step), str(row.blocks), *map(number, row[3:]))
        table.add_section()
        for row in result.baselines:
            table.add_row(row.predictor, "", number(row.gap), "", number(row.rmse))
        console.print(table)
        chosen = dict.fromkeys(facts["chosen"], " (leave-one-out)")
        settings = ", ".join(
            f"{name.replace('smoother_', 'NW ')} = {facts[name]:.4g}{chosen.get(name, '')}"
            for name in ("ridge", *BANDWIDTHS)
            if facts.get(name) is not None
        )
        console.print(
            f"n = {facts['n']} supports, q = {facts['q']} queries, p = {facts['p']} features, "
            f"{settings}\n"
            f"d_eff = {facts['d_eff']:.4g}, cond = {facts['cond']:.4g}, "
            f"residual of exact = {facts['exact_residual']:.2g}, dtype = {facts['dtype']}, "
            f"seed = {meta['seed']}\n"
            f"{warning(facts)}"
            f"{facts['attention']} attention, {facts['blocks_per_step']} blocks per step, "
            f"depth {facts['depth']}, {facts['heads']} heads and {facts['mlp_width']} MLP units at "
            f"most, {facts['channels']} channels; gaps are relative to |exact|, "
            "RMSE in units of the task's y (1 = standard deviation of a table's supports)\n",
            highlight=False,
            soft_wrap=True,
        )


def warning(facts: dict[str, Any]) -> str:
    if math.isfinite(facts["exact_residual"]):
        return ""
    return (
        f"exact KRR is not finite: the kernel overflows {facts['dtype']} or K + ridge I is "
        "singular in it; raise the temperature or the ridge\n"
    )


def wide() -> Console:
    """For tables that no narrow page holds."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def lined(title: str, content: Lines) -> Table:
    header, lines = content
    table = Table(title=title)
    for i, column in enumerate(header):
        table.add_column(column, justify="right" if i else "left", overflow="fold")
    for line in lines:
        table.add_row(*line)
    return table


def number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3g}"


def print_json(meta: dict[str, Any], results: Results) -> None:
    rows = {
        name: {"rows": [row._asdict() for row in (*result.rows, *result.baselines)]}
        for name, result in results.items()
    }
    print(to_json({"meta": meta, "results": rows}))


def to_json(value: Any) -> str:
    return json.dumps(plain(value), indent=2, allow_nan=False)


def plain(value: Any) -> Any:
    """What JSON can hold: paths as text, null for a number that is not finite."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def prepare(folder: Path) -> None:
    """Make the folder before the work, so that a bad one is refused at once."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def write(
    folder: Path, meta: dict[str, Any], results: Results, figures: dict[str, bytes]
) -> list[Path]:
    """Write results.csv, meta.json and the figures."""
    rows = [
        {"task": name, **row._asdict()}
        for name, result in results.items()
        for row in (*result.rows, *result.baselines)
    ]
    files = {
        "results.csv": to_csv(rows),
        "meta.json": (to_json(meta) + "\n").encode(),
        **figures,
    }
    return save(folder, files)


def save(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """Write files, each of which replaces its elder only when whole."""
    for name, content in files.items():
        replace(folder / name, content)
    return [folder / name for name in files]
