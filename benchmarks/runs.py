"""`python -m benchmarks.runs`: evaluate the reference runs on tasks not used in training."""

from __future__ import annotations

import argparse
import csv
import itertools
import json
from functools import partial

import jax
import numpy as np
from rich.progress import track

import icl_krr as ik
from benchmarks.cost import step_cost
from benchmarks.records import RUNS, folder_of
from icl_krr.experiments.shared import recipe
from icl_krr.experiments.shared.runs import load
from icl_krr.files import to_markdown
from icl_krr.tasks import Task
from icl_krr.training import reference
from icl_krr.training.batches import draw
from icl_krr.training.reference import optimal

CHUNK = 2048
ROW = ("step", "steps_per_second")


def trained() -> list[str]:
    """The names of the reference runs with weights, of the package and of `benchmarks/runs`."""
    folders = (path.parent for top in (RUNS, recipe.RUNS) for path in top.glob("*/model.msgpack"))
    return sorted(folder.name for folder in folders)


def reached(name: str, count: int, seed: int) -> dict[str, float]:
    """Mean squared errors of a run and of exact KRR against the noiseless outputs.

    "ratio" is the loss of the run divided by that of exact KRR, and "low" and "high" bound its 95 %
    interval over bootstrap resamples of the tasks. "noisy" is the same ratio if the outputs at the
    queries have the noise of the supports.
    """
    run, key = load(folder_of(name)), jax.random.key(seed)
    best = reference(run.family, jax.random.fold_in(key, 0))

    def exact(task: Task) -> jax.Array:
        return ik.solvers.exact(best.kernel, task, ridge=best.ridge).prediction

    @partial(jax.jit, static_argnums=1)
    def squares(key: jax.Array, count: int) -> jax.Array:
        tasks = draw(key, run.family, count)
        answers = ik.predict_batch(run.model, tasks), ik.map_tasks(exact, tasks)
        return jax.numpy.stack([((each - tasks.y_query) ** 2).mean(axis=1) for each in answers])

    parts = range(-(-count // CHUNK))
    each = [squares(jax.random.fold_in(key, 1 + i), min(CHUNK, count - i * CHUNK)) for i in parts]
    model, known = np.concatenate(each, axis=1).astype(float)
    rng = np.random.default_rng(seed)
    drawn = (rng.integers(count, size=count) for _ in range(1000))
    low, high = np.quantile([model[at].mean() / known[at].mean() for at in drawn], (0.025, 0.975))
    noise = run.recipe.task.noise
    return {
        "exact": known.mean(),
        "loss": model.mean(),
        "ratio": model.mean() / known.mean(),
        "low": float(low),
        "high": float(high),
        "noisy": (model.mean() + noise) / (known.mean() + noise),
    }


def compute(name: str) -> list[str]:
    """What the training of a run took, from its recipe and its files.

    The time is that of the training steps. A gradient counts as two forward passes.
    """
    folder = folder_of(name)
    run = load(folder)
    meta = json.loads((folder / "meta.json").read_text())
    training = run.recipe.training
    with (folder / "metrics.csv").open() as file:
        rows = [{key: float(row[key]) for key in ROW} for row in csv.DictReader(file)]
    seconds = sum(
        (row["step"] - before["step"]) / row["steps_per_second"]
        for before, row in itertools.pairwise(rows)
    )
    task = ik.tasks.sample(jax.random.key(0), run.family)
    flops = 3 * step_cost(run.model, task).flops * run.model.steps * training.batch * training.steps
    cells = [f"`{name}`", meta["device"], str(meta["cores"]), f"{training.steps:,}"]
    return [*cells, f"{seconds / 60:.0f}", f"{flops:.1e}", str(training.seed)]


def compute_table() -> str:
    """A table with one line for every reference run that has weights."""
    header = ["reference run", "device", "CPU cores", "steps", "minutes", "FLOPs", "seed"]
    return to_markdown((header, [compute(name) for name in trained()]))


def markdown(count: int, seed: int) -> str:
    """A table with one line for every reference run with weights and a known posterior mean."""
    lines = [
        "| reference run | exact loss | loss | ratio (95 %) | ratio, noisy outputs |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name in track(trained(), description="reference runs"):
        if optimal(load(folder_of(name)).family) is not None:
            r = reached(name, count, seed)
            lines.append(
                f"| `{name}` | {r['exact']:.3g} | {r['loss']:.3g} | {r['ratio']:.3f} "
                f"({r['low']:.3f}, {r['high']:.3f}) | {r['noisy']:.3f} |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=20480)
    parser.add_argument("--seed", type=int, default=77)
    arguments = parser.parse_args()
    print(f"{arguments.tasks} tasks with all supports, seed {arguments.seed}, float32\n")
    print(markdown(arguments.tasks, arguments.seed))
    print(compute_table(), end="")
