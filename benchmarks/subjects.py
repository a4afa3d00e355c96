"""`python -m benchmarks.subjects`: train a grid of 48 small models, in 50 minutes of one core.

`python -m benchmarks.trained --models FOLDER` reads what it keeps in `--folder`.
"""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import records
from benchmarks.records import folder_of, kept, meta
from icl_krr.experiments.shared.recipe import ModelRecipe, Recipe, TaskRecipe
from icl_krr.experiments.shared.runs import blank, family
from icl_krr.files import replace, to_markdown
from icl_krr.training import save_weights, train
from icl_krr.training.settings import Training

SIZES: dict[str, Any] = {"num_supports": 12, "num_queries": 8, "noise": 0.05}
FAMILIES = {
    "linear": TaskRecipe(family="linear", num_features=3, **SIZES),
    "gp": TaskRecipe(num_features=2, inputs="uniform", lengthscale=0.8, **SIZES),
}
DEPTHS = (2, 5)
SEEDS = (0, 1, 2)
TRAINING = Training(
    steps=2000, learning_rate=0.002, warmup=100, log_every=500, validation=2048, target="exact"
)
SHIPPED = {
    "linear-encoder": "linear-encoder-linear-5",
    "gp-encoder-2d": "gp-encoder-softmax-5",
    "gp-decoder-2d": "gp-decoder-softmax-5",
}
"""Reference runs, by the configuration whose first seed they are."""
ERRORS = ("validation", "ratio", "exact", "nadaraya_watson", "mean", "zero")
QUICK = {"steps": 4, "batch": 2, "warmup": 1, "log_every": 2, "validation": 8}

Record = dict[str, Any]


def recipes() -> dict[str, Recipe]:
    """The recipe of every configuration, with the first seed.

    A decoder learns to predict every support from those before it, so it needs one query only. An
    encoder has tasks with more queries, and learns their posterior means.
    """
    made = {}
    for name, style, attention, depth in itertools.product(
        FAMILIES, ("encoder", "decoder"), ("softmax", "linear"), DEPTHS
    ):
        task, training = FAMILIES[name], TRAINING
        if style == "decoder":
            task = dataclasses.replace(task, num_queries=1)
            training = dataclasses.replace(training, loss="every", target="outputs")
        model = ModelRecipe(style=style, attention=attention, width=32, depth=depth)
        made[f"{name}-{style}-{attention}-{depth}"] = Recipe(task, model, training)
    return made


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


def trained(recipe: Recipe, folder: Path) -> Record:
    """Train a model and save its weights: its errors."""
    replace(folder / "recipe.json", recipe.to_json().encode())
    drawn = family(recipe.task)
    model, rows = train(blank(recipe, drawn), drawn, recipe.training, folder=folder)
    save_weights(folder / "model.msgpack", model)
    return {name: rows[-1][name] for name in ERRORS}


def with_seed(recipe: Recipe, seed: int) -> Recipe:
    return dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, seed=seed))


def ship(top: Path) -> None:
    """Copy the models of `SHIPPED` to the reference runs."""
    for name, configuration in SHIPPED.items():
        source, recipe = top / f"{configuration}-{SEEDS[0]}", recipes()[configuration]
        facts = {"seed": recipe.training.seed, "recipe": dataclasses.asdict(recipe)}
        target = folder_of(name)
        replace(target / "recipe.json", recipe.to_json().encode())
        records.write(target / "meta.json", meta("subjects", "optax", dtype="float32", **facts))
        replace(target / "metrics.csv", (source / "metrics.csv").read_bytes())
        records.ship(source / "model.msgpack", target / "model.msgpack")


def markdown(rows: list[Record]) -> str:
    """Errors over that of exact regression, a line for every configuration."""
    header = ["model", "seeds", "error / exact error", *ERRORS[3:]]
    lines = []
    for name, of in itertools.groupby(sorted(rows, key=lambda r: r["model"]), lambda r: r["model"]):
        own = list(of)
        others = (sum(r[each] / r["exact"] for r in own) / len(own) for each in ERRORS[3:])
        seeds = ", ".join(str(row["seed"]) for row in own)
        ratios = ", ".join(f"{row['ratio']:.3g}" for row in own)
        lines.append([name, seeds, ratios, *(f"{value:.3g}" for value in others)])
    return to_markdown((header, lines))


def main() -> None:
    asked = records.with_folder(records.options(__doc__))
    grid, seeds = (quick(), SEEDS[:1]) if asked.quick else (recipes(), SEEDS)
    rows: list[Record] = []
    with records.workplace(asked) as top:
        for seed, name in itertools.product(seeds, grid):
            folder, recipe = top / f"{name}-{seed}", with_seed(grid[name], seed)
            folder.mkdir(exist_ok=True)
            errors = kept(folder / "errors.json", partial(trained, recipe, folder))
            rows.append({"model": name, "seed": seed, **errors})
            print(f"{name}, seed {seed}", flush=True)
    facts = {
        "training seeds": SEEDS,
        "dtype": "float32",
        "recipes": {name: dataclasses.asdict(recipe) for name, recipe in grid.items()},
    }
    record = {"meta": meta("subjects", "optax", **facts), "rows": rows}
    records.finish("subjects", record, markdown(rows), asked.quick)
    if not asked.quick:
        ship(asked.folder)


if __name__ == "__main__":
    main()
