"""What the commands do once their settings are known."""

from __future__ import annotations

import sys
from typing import Any

import jax
from rich.console import Console

from ... import checks
from ...experiments import depth
from ...experiments.shared.build import SOLVERS
from ...kernels import Exponential
from ...plots import depth_figure, images
from ...tasks import GaussianProcess, Task, diabetes, read_table, sample, split
from .. import output
from ..model_settings import Ablate, Chosen, Fit, Identify, Train
from ..settings import Bench, Demo, Predict, Report, Settings, Sweep, Verify
from .bench import benchmark
from .verify import settle


def run(settings: Chosen, argv: list[str]) -> int:
    """The exit status."""
    checks.count("seed", settings.seed, minimum=0)
    last = settings.seed + (getattr(settings, "seeds", None) or 1) - 1
    if last >= 2**32:
        raise ValueError(f"seed must be < 2^32, got {last}")
    if isinstance(settings, Verify):
        return settle(settings, argv)
    # with these comes optax, which others need not wait for
    if isinstance(settings, Train):
        from .train import run_training

        return run_training(settings, argv)
    if isinstance(settings, Identify):
        from .identify import identification

        return identification(settings, argv)
    if isinstance(settings, Ablate):
        from .ablate import ablation

        ablation(settings, argv)
    elif isinstance(settings, Fit):
        from .fit import fitting

        fitting(settings, argv)
    elif isinstance(settings, Sweep):
        from .sweep import go_along

        go_along(settings, argv)
    elif isinstance(settings, Report):
        from .report import report

        report(settings, argv)
    elif isinstance(settings, Bench):
        benchmark(settings, argv)
    else:
        regress(settings, argv)
    return 0


def regress(settings: Demo | Predict, argv: list[str]) -> None:
    config = depth_config(settings)
    if settings.out is not None:
        output.prepare(settings.out)
    tasks = predict_tasks(settings) if isinstance(settings, Predict) else demo_tasks(settings)
    results = {}
    with Console(stderr=True).status("") as status:
        for name, task in tasks.items():
            status.update(f"{name}: the transformer, its oracle and the baselines")
            results[name] = depth.run(task, config)
    meta = output.meta(argv, settings, results)
    if settings.json:
        output.print_json(meta, results)
    else:
        output.print_tables(meta, results)
    if settings.out is not None:
        drawn = images("depth", depth_figure(results, settings.seed))
        written = output.write(settings.out, meta, results, drawn)
        print(f"wrote {', '.join(map(str, written))}", file=sys.stderr)


def depth_config(settings: Settings) -> depth.DepthConfig:
    kernel = settings.kernel
    if kernel is None and isinstance(settings, Demo):
        takes = SOLVERS[settings.solver].kernels
        kernel = "exponential" if "exponential" in takes else takes[0]
    return depth.DepthConfig(
        solver=settings.solver,
        kernel=kernel,
        ridge=settings.ridge,
        temperature=settings.temperature,
        lengthscale=settings.lengthscale,
        steps=settings.steps,
    )


def predict_tasks(settings: Predict) -> dict[str, Task]:
    table = read_table(settings.table, settings.target)
    if len(table) < 2:
        raise ValueError(f"{settings.table} must hold at least 2 rows, got {len(table)}")
    supports: Any = settings.supports
    if supports is None:
        supports = min(3 * len(table) // 4, 512)
    return {settings.table.name: split(table, supports, settings.seed)}


def demo_tasks(settings: Demo) -> dict[str, Task]:
    process = GaussianProcess(Exponential(0.5), num_queries=64, inputs="sphere")
    return {
        "diabetes.csv": split(diabetes(), 300, settings.seed),
        "Gaussian process": jax.jit(sample)(jax.random.key(settings.seed), process),
    }
