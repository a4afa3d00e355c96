"""`python -m benchmarks.scaling`: excess errors of trained models beside those of tuned solvers.

The errors of the models are those of `icl_krr/runs/scaling.csv`; this script trains nothing.
"""

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
from matplotlib.figure import Figure

from benchmarks import records
from benchmarks.records import Row as Record
from icl_krr import experiments as lab
from icl_krr.catalogue import SOLVERS
from icl_krr.experiments import TASK_SETTINGS, format_number, last_stages, task_settings
from icl_krr.plots import curves_figure

SEEDS = (0, 1, 2)
SIZES = {"steps": 256, "tasks": 512, "points": 128, "queries": 8}
QUICK = {"steps": 2, "tasks": 4, "points": 2, "queries": 2}
LEAST, MOST = 1e-3, 30
"""The excesses that the figure shows: gradient descent diverges on some tasks."""


def measured(models: list[Record], sizes: Record, seeds: tuple[int, ...]) -> Record:
    """The curves of solvers on every family of tasks, and the steps that equal each model."""
    options = dict(sizes)
    queries, families = options.pop("queries"), []
    for key in dict.fromkeys(map(task_settings, models)):
        facts = dict(zip(TASK_SETTINGS, key, strict=True))
        print(f"solvers on the tasks {facts}", flush=True)
        solved = lab.curves(lab.family_of(key, queries), seeds=seeds, **options)
        parts = {name: (solved.excess(name), *solved.interval(name)) for name in solved.squares}
        names = ("excess", "low", "high")
        curve_points = {
            name: {part: values.tolist() for part, values in zip(names, three, strict=True)}
            for name, three in parts.items()
        }
        families.append(facts | {"curves": curve_points})
        for row in models:
            if task_settings(row) == key:
                row["equivalents"] = lab.equivalents(solved, row)
    return {"families": families, "models": models}


def models_table(models: Iterable[Record], solvers: Iterable[str]) -> lab.Lines:
    """The stages of models, with the steps of solvers that have the same excess."""
    header, lines = ["model", "updates", "excess over exact KRR"], []
    for name in solvers:
        blocks = SOLVERS[name].blocks.get("softmax")  # of a step
        cost = f"{blocks} block{'s' if blocks > 1 else ''} a step" if blocks else "by features only"
        header.append(f"steps of {name.replace('_', ' ')} ({cost})")
    for row in models:
        cells = [str(row["updates"]), f"{row['excess']:.3g} ± {row['sampling']:.1g}"]
        cells += [lab.format_steps(row["equivalents"][name]) for name in solvers]
        lines.append([row["model"], *cells])
    return header, lines


def document(record: Record) -> str:
    """The tables: stages of models with equivalent steps, and curves."""
    stages = models_table(record["models"], [*record["families"][0]["curves"]])
    times = [t for t in (1, 2, 4, 8, 16, 32, 64, 128, 256) if t <= record["meta"]["steps"]]
    steps = [
        [
            *(str(family[name]) for name in TASK_SETTINGS),
            name,
            *(format_number(one["excess"][t]) if t < len(one["excess"]) else "-" for t in times),
        ]
        for family in record["families"]
        for name, one in family["curves"].items()
    ]
    steps_header = ["lengthscale", "noise", "p", "N", "solver", *(f"t = {t}" for t in times)]
    return "\n".join(map(lab.to_markdown, (stages, (steps_header, steps))))


def figure(record: Record) -> Figure:
    """Excess against steps or depth for each family of tasks, and against updates."""
    models, about = record["models"], record["meta"]
    panels: dict[str, dict[str, Any]] = {}
    for family in record["families"]:
        drawn = {}
        for name, one in family["curves"].items():
            parts = [one[part][1:] for part in ("excess", "low", "high")]
            last = next((t for t, e in enumerate(parts[0], 1) if e < LEAST), len(parts[0]))
            drawn[name.replace("_", " ")] = ([*range(1, last + 1)], *(p[:last] for p in parts))
        here = [row for row in last_stages(models) if task_settings(row) == task_settings(family)]
        drawn["trained decoder"] = ([r["depth"] for r in here], [r["excess"] for r in here])
        panels[f"steps, or blocks (p = {family['num_features']})"] = drawn
    stages = records.grouped(models, lambda row: row["model"])
    panels["updates"] = {
        name: ([row["updates"] for row in rows], [row["excess"] for row in rows])
        for name, rows in stages.items()
    }
    seeds = f"seeds {about['seeds'][0]} to {about['seeds'][-1]}"
    title = f"Excess of trained decoders and of tuned solvers ({seeds}, {about['dtype']})"
    words, dots = "excess error over exact KRR", ["trained decoder"]
    return curves_figure(panels, words, title, log="xy", dots=dots, limits=(LEAST, MOST))


def main() -> None:
    args = records.options(__doc__)
    sizes, seeds, models = SIZES, SEEDS, lab.read_models()
    if args.quick:
        sizes, seeds = QUICK, SEEDS[:1]
    about = {"seeds": seeds, "dtype": str(jnp.result_type(float)), **sizes}
    record = {"meta": records.meta("scaling", "scipy") | about} | measured(models, sizes, seeds)
    records.finish("scaling", record, document, args.quick, {"scaling-laws": figure})


if __name__ == "__main__":
    main()
