"""`python -m benchmarks.subjects`: train a grid of 48 small models, in 50 minutes of one core.

`python -m benchmarks.trained --models FOLDER` reads what it keeps in `--folder`.
"""

import dataclasses
import itertools
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.records import Row as Record, folder_of, meta
from icl_krr import experiments
from icl_krr.experiments import Cell, ModelRecipe, Recipe, Study, TaskRecipe, blank, family
from icl_krr.training import Training, save_half_precision, save_weights, train
from icl_krr.transformer import Transformer

SIZES: dict[str, Any] = {"num_supports": 12, "num_queries": 8, "noise": 0.05}
FAMILIES = {
    "linear": TaskRecipe(family="linear", num_features=3, **SIZES),
    "gp": TaskRecipe(num_features=2, inputs="uniform", lengthscale=0.8, **SIZES),
}
DEPTHS = (2, 5)
SEEDS = (0, 1, 2)
TRAINING = Training(steps=2000, learning_rate=0.002, log_every=500, validation=2048, target="exact")
SHIPPED = {
    "linear-encoder": "linear-encoder-linear-5",
    "gp-encoder-2d": "gp-encoder-softmax-5",
    "gp-decoder-2d": "gp-decoder-softmax-5",
}
"""Reference runs, by the configuration whose first seed they are."""
ERRORS = ("validation", "ratio", "exact", "nadaraya_watson", "mean", "zero")
QUICK = {"steps": 4, "batch": 2, "warmup": 1, "log_every": 2, "validation": 8}


def recipes() -> dict[str, Recipe]:
    """The recipe of every configuration, with the first seed.

    A decoder learns to predict every support from those before it, so it needs one query only. An
    encoder has tasks with more queries, and learns their posterior means.
    """
    all_recipes = {}
    for name, style, attention, depth in itertools.product(
        FAMILIES, ("encoder", "decoder"), ("softmax", "linear"), DEPTHS
    ):
        task, training = FAMILIES[name], TRAINING
        if style == "decoder":
            task = dataclasses.replace(task, num_queries=1)
            training = dataclasses.replace(training, loss="every", target="outputs")
        model = ModelRecipe(style=style, attention=attention, width=32, depth=depth)
        all_recipes[f"{name}-{style}-{attention}-{depth}"] = Recipe(task, model, training)
    return all_recipes


def quick() -> dict[str, Recipe]:
    """Two configurations of one layer, with few and small steps."""
    every = recipes()
    return {
        name: dataclasses.replace(
            every[name],
            model=dataclasses.replace(every[name].model, depth=1, width=8, heads=2),
            training=dataclasses.replace(every[name].training, **QUICK),
        )
        for name in ("linear-encoder-softmax-2", "gp-decoder-linear-2")
    }


def fitted(
    recipe: Recipe, folder: Path, start: Transformer | None = None
) -> tuple[Transformer, Record]:
    """Train a model, which is kept in a folder with its recipe and metrics: it and its errors."""
    folder.mkdir(parents=True, exist_ok=True)
    experiments.replace(folder / "recipe.json", recipe.to_json().encode())
    drawn = family(recipe.task)
    model, rows = train(start or blank(recipe, drawn), drawn, recipe.training, folder=folder)
    save_weights(folder / "model.msgpack", model)
    return model, {name: rows[-1][name] for name in ERRORS}


def trained(grid: dict[str, Recipe], top: Path, cell: Cell) -> Record:
    """The errors of a model of a cell, which is trained in the folder of the model."""
    recipe = grid[cell["model"]]
    training = dataclasses.replace(recipe.training, seed=cell["seed"])
    return fitted(dataclasses.replace(recipe, training=training), place_of(top, **cell))[1]


def place_of(top: Path, model: str, seed: int) -> Path:
    return top / f"{model.replace(' ', '-')}-{seed}"


def ship(top: Path) -> None:
    """Copy the models of `SHIPPED` to the reference runs."""
    for name, configuration in SHIPPED.items():
        source, recipe = place_of(top, configuration, SEEDS[0]), recipes()[configuration]
        facts = {"seed": recipe.training.seed, "recipe": dataclasses.asdict(recipe)}
        target = folder_of(name)
        experiments.replace(target / "recipe.json", recipe.to_json().encode())
        records.write(target / "meta.json", meta("subjects", "optax", dtype="float32", **facts))
        experiments.replace(target / "metrics.csv", (source / "metrics.csv").read_bytes())
        save_half_precision(source / "model.msgpack", target / "model.msgpack")


def markdown(record: Record) -> str:
    """Errors over that of exact regression, a line for every configuration."""
    rows = sorted(record["rows"], key=itemgetter("model"))
    groups = [[*group] for _, group in itertools.groupby(rows, itemgetter("model"))]
    columns = {
        "model": lambda group: group[0]["model"],
        "seeds": lambda group: ", ".join(str(row["seed"]) for row in group),
        "error / exact error": lambda group: ", ".join(f"{row['ratio']:.3g}" for row in group),
    }
    columns |= {name: partial(mean_ratio, name) for name in ERRORS[3:]}
    return experiments.to_markdown(records.table(groups, columns))


def mean_ratio(name: str, rows: list[Record]) -> str:
    """The mean error of a baseline over that of exact regression."""
    return f"{sum(row[name] / row['exact'] for row in rows) / len(rows):.3g}"


def main() -> None:
    args = records.options(__doc__, folder=True)
    grid, seeds = (quick(), SEEDS[:1]) if args.quick else (recipes(), SEEDS)
    errors = partial(trained, grid, args.folder)
    recipe = lambda cell: grid[cell["model"]].to_json()  # noqa: E731
    study = Study("subjects", {}, {"seed": seeds, "model": grid}, errors, recipe)
    results = records.finished(study, args.folder)
    rows = [{"model": cell["model"], "seed": cell["seed"], **row} for cell, row in results]
    facts = {
        "training seeds": SEEDS,
        "dtype": "float32",
        "recipes": {name: dataclasses.asdict(recipe) for name, recipe in grid.items()},
    }
    record = {"meta": meta("subjects", "optax", **facts), "rows": rows}
    records.finish("subjects", record, markdown, args.quick)
    if not args.quick:
        ship(args.folder)


if __name__ == "__main__":
    main()
