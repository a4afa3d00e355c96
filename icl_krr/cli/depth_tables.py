"""Tables of demo and predict: a construction compared with exact KRR at every depth."""

from __future__ import annotations

import math
import re
from typing import Any

from rich.console import Console

from ..experiments.depth import DepthConfig, DepthResult, run
from ..files import to_csv
from ..plots import depth_figure, images
from ..tasks import Task
from ..text_tables import Table, number
from . import output
from .settings.choices import Kernel
from .settings.construction import Construction
from .settings.demo import Demo
from .settings.predict import Predict

Tasks = dict[str, tuple[Task, DepthConfig]]
Results = dict[str, DepthResult]


def depth_config(settings: Construction, preferred: Kernel | None = None) -> DepthConfig:
    """Use the given kernel, else the preferred kernel, else the first kernel of the solver."""
    return DepthConfig(
        solver=settings.solver,
        kernel=settings.kernel or preferred,
        ridge=settings.ridge,
        temperature=settings.temperature,
        lengthscale=settings.lengthscale,
        steps=settings.steps,
    )


def compare(settings: Demo | Predict, tasks: Tasks) -> None:
    """Solve every task with its construction; print and write the gaps to exact KRR."""
    results = {}
    with Console(stderr=True).status("") as status:
        for name, (task, config) in tasks.items():
            results[name] = run(
                task, config, lambda doing, name=name: status.update(f"{name}: {doing}")
            )
    meta = {
        **output.surroundings(settings),
        "dtype": sorted({result.facts["dtype"] for result in results.values()}),
        "tasks": {name: result.facts for name, result in results.items()},
    }
    if settings.out is not None:
        rows = [{"task": name, **row} for name, found in results.items() for row in rows_of(found)]
        files = {
            "results.csv": to_csv(rows),
            "meta.json": (output.to_json(meta) + "\n").encode(),
            **images("depth", depth_figure(results, settings.seed)),
        }
        output.write(settings.out, files)
    if settings.json:
        rows = {name: {"rows": rows_of(result)} for name, result in results.items()}
        print(output.to_json({"meta": meta, "results": rows}))
    else:
        print_tables(results, settings.seed)


def rows_of(result: DepthResult) -> list[dict[str, Any]]:
    return [row._asdict() for row in (*result.rows, *result.baselines)]


def print_tables(results: Results, seed: int) -> None:
    console = output.wide()
    header = ["step", "blocks", "gap to exact", "gap to oracle", "RMSE", "alpha error", "bound"]
    for name, result in results.items():
        facts = result.facts
        title = f"{name}: {facts['solver']}, {facts['kernel']} kernel, as a transformer"
        steps = [[str(row.step), str(row.blocks), *map(number, row[3:])] for row in result.rows]
        baselines = [
            [row.predictor, "", number(row.gap), "", number(row.rmse), "", ""]
            for row in result.baselines
        ]
        console.print(Table(title, header, [steps, baselines]))
        console.print(describe(facts, seed))


def describe(facts: dict[str, Any], seed: int) -> str:
    """The lines under a table: the task, its hyperparameters and the transformer."""
    few = facts["chosen_on"] < facts["n"]
    how = f" (leave-one-out on {facts['chosen_on']} random supports)" if few else " (leave-one-out)"
    chosen = dict.fromkeys(facts["chosen"], how)
    hyperparameters = ", ".join(
        f"{name.replace('smoother_', 'Nadaraya-Watson ')} = {facts[name]:.4g}{chosen.get(name, '')}"
        for name in facts["hyperparameters"]
    )
    return (
        f"n = {facts['n']} supports, q = {facts['q']} queries, p = {facts['p']} features, "
        f"{hyperparameters}\n"
        f"effective dimension d_eff = {facts['d_eff']:.4g}, condition number cond = "
        f"{facts['cond']:.4g}, relative residual of exact KRR = "
        f"{facts['exact_residual']:.2g}, "
        f"dtype = {facts['dtype']}, seed = {seed}\n"
        f"{warning(facts)}"
        f"{advice(facts)}"
        f"{facts['attention']} attention, {facts['blocks_per_step']} blocks per step, "
        f"{facts['depth']} blocks in total, at most {facts['heads']} heads and "
        f"{facts['mlp_width']} MLP units per block, {facts['channels']} channels\n"
        "gap to exact: |f - f*| / |f*|, where f are the predictions of the transformer and f* "
        "those of exact KRR\n"
        "gap to oracle: |f - g| / |f*|, where g are the predictions of the solver itself, without "
        "a transformer\n"
        "RMSE: root mean squared error at the queries, in units of y (for a table, 1 is the "
        "standard deviation of y over the supports)\n"
        "alpha error: |alpha - alpha*|_A / |alpha*|_A with A = K + ridge I\n"
        "bound: proven bound on the alpha error\n"
    )


def advice(facts: dict[str, Any]) -> str:
    """The status of the transformer in a sentence that names the options of the command line."""
    told = re.sub(r"more steps \((\d+)\)", r"--steps \1", facts["advice"])
    return f"{told}\n" if told else ""


def warning(facts: dict[str, Any]) -> str:
    if math.isfinite(facts["exact_residual"]):
        return ""
    return (
        f"exact KRR is not finite: the kernel overflows {facts['dtype']} or K + ridge I is "
        f"singular in {facts['dtype']}; raise the temperature, the lengthscale or the ridge\n"
    )
