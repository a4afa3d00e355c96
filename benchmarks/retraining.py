"""`python -m benchmarks.retraining`: train the small models of claims C36 and C37 (80 minutes)."""

import dataclasses
import itertools
import time
from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path

import jax

from benchmarks import records
from benchmarks.fitted import ERRORS, QUICK, fitted
from benchmarks.records import Row as Record
from icl_krr import experiments
from icl_krr.experiments import Cell, Recipe, RetrainingStudy, Rows, blank, family, to_markdown
from icl_krr.training import Diverged, load_weights, save_half_precision, save_weights

Rates = dict[tuple[str, str], float]


def trained(recipe: Recipe, folder: Path) -> Record:
    """Train a model and save its weights: its errors and CPU seconds."""
    settings, drawn, start = recipe.training, family(recipe.task), time.process_time()
    model = blank(recipe, drawn)
    record: Record = {
        "seed": settings.seed,
        "learning_rate": settings.learning_rate,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(model)),
    }
    try:
        record |= fitted(recipe, folder)
    except Diverged:
        record |= dict.fromkeys(ERRORS)
    return record | {"cpu_seconds": time.process_time() - start}


def all_seeds(name: str, variant: str, study: RetrainingStudy, folder: Path, rates: Rates) -> Rows:
    """Train a variant with every learning rate and the first seed, then with the other seeds.

    The records of the chosen learning rate have "chosen" True. Their weights are saved together.
    `rates` holds the chosen learning rates of the studies so far.
    """
    seeds = study.seeds(variant)
    tuner = study.tuned_by
    choices = experiments.LEARNING_RATES if tuner is None else (rates[tuner, variant],)
    top = folder / name / variant.replace(" ", "-")

    def place(rate: float, seed: int) -> Path:
        return top / f"{rate}-{seed}"

    def recipe(cell: Cell) -> Recipe:
        return study.recipe(variant, cell["seed"], cell["rate"])

    def measure(cell: Cell) -> Record:
        return trained(recipe(cell), place(**cell))

    def run(some: Iterable[float], seeds: Iterable[int]) -> list[Record]:
        axes = {"rate": some, "seed": seeds}
        source = lambda cell: recipe(cell).to_json()  # noqa: E731
        of = experiments.Study(f"{name}: {variant}", {}, axes, measure, source)
        return [row for _, row in records.finished(of, top)]

    tuning = run(choices, seeds[:1])
    converged = [record for record in tuning if record["validation"] is not None]
    best = min(converged, key=lambda record: record["validation"])["learning_rate"]
    rates[name, variant] = best
    runs = tuning + run((best,), seeds[1:])
    like = jax.tree.map(lambda leaf: leaf[0], experiments.random_models(name, variant))
    models = [load_weights(place(best, seed) / "model.msgpack", like) for seed in seeds]
    file = folder / experiments.weights_file(name, variant).name
    save_weights(file, experiments.stack_models(models))
    return [
        {"study": name, "variant": variant, **record, "chosen": record["learning_rate"] == best}
        for record in runs
    ]


def markdown(record: Record) -> str:
    """A table of errors and of the CPU seconds of all runs, with one line for each variant."""
    runs = record["runs"]
    groups = [[*group] for _, group in itertools.groupby(runs, itemgetter("study", "variant"))]
    columns = {
        "models": lambda group: f"{group[0]['study']}: {group[0]['variant']}",
        "parameters": lambda group: f"{group[0]['parameters']:,}",
        "learning rate": lambda group: chosen(group)[0]["learning_rate"],
        "error / error of exact KRR, seeds 0, 1, 2, ...": lambda group: ", ".join(
            f"{run['ratio']:.3g}" for run in chosen(group)
        ),
        "Nadaraya-Watson": lambda group: mean_ratio("nadaraya_watson", chosen(group)),
        "mean": lambda group: mean_ratio("mean", chosen(group)),
        "zero": lambda group: mean_ratio("zero", chosen(group)),
        "CPU seconds": lambda group: f"{sum(run['cpu_seconds'] for run in group):.0f}",
    }
    header, lines = records.table(groups, columns)
    return to_markdown((header, [*lines, ["all", *[""] * 6, columns["CPU seconds"](runs)]]))


def chosen(runs: list[Record]) -> list[Record]:
    return [run for run in runs if run["chosen"]]


def quick() -> dict[str, RetrainingStudy]:
    """The first variant of every study, with few and small steps."""
    return {
        name: study._replace(
            training=dataclasses.replace(study.training, **QUICK),
            variants=dict(list(study.variants.items())[:1]),
        )
        for name, study in experiments.RETRAINING_STUDIES.items()
    }


def mean_ratio(name: str, rows: list[Record]) -> str:
    """The mean error of a baseline over that of exact regression."""
    return f"{sum(row[name] / row['exact'] for row in rows) / len(rows):.3g}"


def main() -> None:
    args = records.options(__doc__, folder=True)
    runs, rates = [], {}
    for name, study in (quick() if args.quick else experiments.RETRAINING_STUDIES).items():
        for variant in study.variants:
            runs += all_seeds(name, variant, study, args.folder, rates)
    facts = {"learning_rates": experiments.LEARNING_RATES, "dtype": "float32"}
    record = {"meta": records.meta("retraining", "optax", **facts), "runs": runs}
    records.finish("retraining", record, markdown, args.quick)
    if args.quick:
        return
    for name, study in experiments.RETRAINING_STUDIES.items():
        for variant in study.variants if study.shipped else ():
            file = experiments.weights_file(name, variant)
            save_half_precision(args.folder / file.name, file)


if __name__ == "__main__":
    main()
