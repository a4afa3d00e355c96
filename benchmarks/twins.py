"""`python -m benchmarks.twins`: train means and variances, and compare them with exact regression.

Twins of the reference runs are trained with the Gaussian likelihood. This takes about an hour of
one CPU core. Finished runs are kept in `--folder`, so the same command continues after an
interruption. `--quick` is a smoke test; its figures are not meaningful.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console

from benchmarks.records import kept, meta, options, save
from icl_krr.experiments.identify.probe_controls import in_dtype_of_tasks
from icl_krr.experiments.identify.settings import IdentifyConfig
from icl_krr.experiments.identify.trained_model import examine
from icl_krr.experiments.shared.recipe import Recipe
from icl_krr.experiments.shared.runs import Run, family, first_model
from icl_krr.files import to_markdown
from icl_krr.probes import Variances, compare_variances
from icl_krr.tasks import Task
from icl_krr.training import Training, train
from icl_krr.training.objectives import draw
from icl_krr.training.reference import optimal

SEEDS = (0, 1)
COMMON = {"objective": "gaussian", "target": "outputs", "log_every": 500, "validation": 1024}
TWINS: dict[str, tuple[str, dict[str, Any]]] = {
    "linear-encoder": ("linear-encoder", {"steps": 4000}),
    "linear-encoder-mixed": ("linear-encoder", {"steps": 4000, "min_supports": 2}),
    "gp-encoder": ("gp-encoder", {"steps": 5000}),
}
"""The reference run whose sizes and tasks a twin has, and what its training changes."""
QUICK = {"steps": 2, "batch": 2, "warmup": 1, "log_every": 2, "validation": 8}
TASKS, STEPS = 512, {"linear-encoder": 3, "linear-encoder-mixed": 3, "gp-encoder": 12}
"""Tasks of a comparison, of which half are scored, and the largest number of steps."""
HEADER = [
    "twin, seed",
    "error / error of exact KRR",
    "nll: model, exact KRR, one Gaussian",
    "mean, by `identify`",
    "variance",
    "distance to exact, nearest steps, nulls",
]

Record = dict[str, Any]
Show = Callable[[str], None]


def recipe_of(name: str, seed: int, quick: bool) -> Recipe:
    run, changes = TWINS[name]
    recipe = Recipe.read(run)
    own = {**COMMON, **changes, "seed": seed, **(QUICK if quick else {})}
    return dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, **own))


def twin(recipe: Recipe, folder: Path, show: Show) -> tuple[Run, Record]:
    """Train a twin, or read it from its folder."""

    def progress(step: int, row: Record | None) -> None:
        if row is not None:
            show(f"step {step}, nll {row['nll']:.4g}, of exact KRR {row['exact_nll']:.4g}")

    drawn = family(recipe.task)
    model, rows = train(
        first_model(recipe, drawn), drawn, recipe.training, folder=folder, progress=progress
    )
    return Run(model, drawn, recipe), rows[-1]


def scored_tasks(run: Run, count: int, seed: int) -> Task:
    """Tasks in float64, of mixed lengths if those of the training were."""
    settings: Training = run.recipe.training
    key = jax.random.fold_in(jax.random.key(seed), 7)
    tasks = draw(key, run.family, count)
    if settings.min_supports is None:
        return tasks
    n = tasks.num_supports
    lengths = np.random.default_rng(seed).integers(settings.min_supports, n + 1, count)
    return tasks.replace(mask=jnp.arange(n)[None] < jnp.asarray(lengths)[:, None])


def compared(run: Run, name: str, quick: bool, show: Show) -> tuple[str, Variances]:
    """The verdict of `identify` on the mean, and the comparison of the variances."""
    best = optimal(run.family)
    assert best is not None
    kernel, ridge = best
    seed = run.recipe.training.seed
    with jax.enable_x64(True):
        tasks = scored_tasks(run, 8 if quick else TASKS, seed)
        scale = float(run.recipe.task.noise / ridge)
        found = compare_variances(
            in_dtype_of_tasks(run.model, tasks),
            tasks,
            kernel,
            ridge,
            scale=scale,
            steps=STEPS[name],
            seed=seed,
        )
        if quick:
            return "", found
        kernels = ("linear",) if "linear" in name else ("gaussian",)
        config = IdentifyConfig(tasks=16, probe_tasks=128, kernels=kernels, seed=seed)
        verdict = examine(run, config, show).found.verdict
    return verdict, found


def measured(name: str, seed: int, folder: Path, quick: bool, show: Show) -> Record:
    """Train and compare one twin, in its own folder."""
    say = lambda words: show(f"{name}, seed {seed}: {words}")  # noqa: E731
    recipe = recipe_of(name, seed, quick)
    run, last = twin(recipe, folder, say)
    verdict, found = compared(run, name, quick, say)
    rows = [row._asdict() for row in found.rows]
    return {
        "twin": name,
        "seed": seed,
        "training": dataclasses.asdict(recipe.training),
        "metrics": last,
        "mean": verdict,
        "variances": {**found._asdict(), "rows": rows, "verdict": found.verdict},
    }


def line(record: Record) -> list[str]:
    rows = {row["name"]: row for row in record["variances"]["rows"]}
    steps = min(
        (row for name, row in rows.items() if "step" in name and "converged" not in row["because"]),
        key=lambda row: row["distance"],
    )
    shown = [rows["exact regression"], steps]
    shown += [rows[name] for name in ("constant", "number of supports") if name in rows]
    cells = (
        f"{row['name']} {row['distance']:.3f} ({', '.join(f'{x:.3f}' for x in row['interval'])})"
        for row in shown
    )
    last = record["metrics"]
    found = record["variances"]
    return [
        f"{record['twin']}, {record['seed']}",
        f"{last['ratio']:.3f}",
        ", ".join(f"{last[name]:.4f}" for name in ("nll", "exact_nll", "constant_nll")),
        record["mean"].partition(";")[0],
        f"{found['status']}: {', '.join(found['remain'] or found['as_near'])}",
        "; ".join(cells),
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--folder", type=Path, default=Path("icl-krr-twins"), help="finished runs")
    asked = parser.parse_args()
    with TemporaryDirectory() as temporary, Console(stderr=True).status("") as status:
        top, records = Path(temporary) if asked.quick else asked.folder, []
        for name, seed in product(TWINS, SEEDS[:1] if asked.quick else SEEDS):
            folder = top / f"{name}-{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            make = partial(measured, name, seed, folder, asked.quick, status.update)
            records.append(kept(folder / "record.json", make))
    table = to_markdown((HEADER, [line(record) for record in records]))
    print(table)
    if asked.quick:
        return
    dtype = "trained in float32, compared in float64"
    about = meta("twins", "optax", seeds=SEEDS, tasks=TASKS, dtype=dtype)
    save("twins", {"meta": about, "runs": records}, table)


if __name__ == "__main__":
    main()
