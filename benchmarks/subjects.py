"""`python -m benchmarks.subjects`: train a grid of small models, and identify all of them.

Training takes about 50 minutes of one CPU core, identification about 30. Models and their
identifications are kept in `--folder`, so the same command continues after an interruption.
`--finished` reports what is in this folder, without the rest of the grid. `--quick` is a smoke
test; its figures are not meaningful.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console

from benchmarks.records import RESULTS as RESULTS, kept, meta, options, save, write
from benchmarks.subjects_tables import markdown, row_of
from icl_krr.experiments.shared.draws import draw_tasks
from icl_krr.experiments.shared.recipe import RUNS, ModelRecipe, Recipe, TaskRecipe
from icl_krr.experiments.shared.runs import blank, family, load
from icl_krr.files import replace
from icl_krr.probes import fit_probe, identify, layerwise
from icl_krr.training import save_weights, train
from icl_krr.training.reference import optimal
from icl_krr.training.settings import Training

FAMILIES = {
    "linear": TaskRecipe(
        family="linear", num_features=3, num_supports=12, num_queries=8, noise=0.05
    ),
    "gp": TaskRecipe(
        family="gaussian_process",
        num_features=2,
        num_supports=12,
        num_queries=8,
        inputs="uniform",
        noise=0.05,
        lengthscale=0.8,
    ),
}
DEPTHS = (2, 5)
SEEDS = (0, 1, 2)
TRAINING = Training(
    steps=2000, learning_rate=0.002, warmup=100, log_every=500, validation=2048, target="exact"
)
KERNELS = {"linear": ("linear", "exponential"), "gp": ("gaussian", "exponential")}
SIZES = {"tasks": 24, "probe_tasks": 256, "num_queries": 4, "steps": 8, "seed": 0}
"""Of an identification: tasks that fit and as many that score candidates, tasks that fit probes,
queries of a task, steps of a candidate for each layer, and the seed of tasks and bootstrap."""
IDENTIFIED = "identified.json"
SHIPPED = {
    "linear-encoder": "linear-encoder-linear-5",
    "gp-encoder-2d": "gp-encoder-softmax-5",
    "gp-decoder-2d": "gp-decoder-softmax-5",
}
"""Reference runs, by the configuration whose first seed they are."""
ERRORS = ("validation", "ratio", "exact", "nadaraya_watson", "mean", "zero")
QUICK = {"steps": 4, "batch": 2, "warmup": 1, "log_every": 2, "validation": 8}
QUICK_SIZES = {"tasks": 4, "probe_tasks": 16, "num_queries": 2, "steps": 1, "seed": 0}
QUICK_CANDIDATES = ("nadaraya_watson", "gradient_descent")

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


def identified(
    folder: Path,
    kernels: tuple[str, ...],
    sizes: dict[str, int],
    candidates: tuple[str, ...] | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> Record:
    """Identify the solver of a trained model in float64.

    A linear probe reads the predictions of every layer but the last.
    """
    run = load(folder)
    with jax.enable_x64(True):
        drawn: Any = dataclasses.replace(run.family, num_queries=sizes["num_queries"])  # pyright: ignore
        key, count = jax.random.key(sizes["seed"]), sizes["tasks"]
        probing, scored, fitted = (
            draw_tasks(jax.random.fold_in(key, i), size, drawn)
            for i, size in enumerate((sizes["probe_tasks"], count, count))
        )
        model = jax.tree.map(lambda leaf: jnp.asarray(leaf, probing.x.dtype), run.model)
        best = optimal(drawn)
        found = identify(
            partial(layerwise, model, probe=fit_probe(model, probing)),
            fitted,
            scored,
            candidates=candidates,
            kernels=kernels,
            steps=sizes["steps"] * model.depth,
            system=None if best is None else (best[0], float(best[1])),
            seed=sizes["seed"],
            progress=progress,
        )
    return row_of(found)


def with_seed(recipe: Recipe, seed: int) -> Recipe:
    return dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, seed=seed))


def ship(top: Path) -> None:
    """Copy the models of `SHIPPED` to the reference runs."""
    for name, configuration in SHIPPED.items():
        source, recipe = top / f"{configuration}-{SEEDS[0]}", recipes()[configuration]
        facts = {"seed": recipe.training.seed, "recipe": dataclasses.asdict(recipe)}
        (RUNS / name).mkdir(exist_ok=True)
        replace(RUNS / name / "recipe.json", recipe.to_json().encode())
        write(RUNS / name / "meta.json", meta("subjects", "optax", dtype="float32", **facts))
        for file in ("metrics.csv", "model.msgpack"):
            replace(RUNS / name / file, (source / file).read_bytes())


def main() -> None:
    parser, place = options(__doc__), Path("icl-krr-subjects")
    parser.add_argument("--folder", type=Path, default=place, help="models and identifications")
    parser.add_argument("--finished", action="store_true", help="only what the folder has already")
    asked = parser.parse_args()
    grid, sizes, names, seeds = recipes(), SIZES, None, SEEDS
    if asked.quick:
        grid, sizes, names, seeds = quick(), QUICK_SIZES, QUICK_CANDIDATES, SEEDS[:1]
    rows: list[Record] = []
    with TemporaryDirectory() as temporary, Console(stderr=True).status("") as status:
        top = Path(temporary) if asked.quick else asked.folder
        for seed, name in itertools.product(seeds, grid):
            folder, kernels = top / f"{name}-{seed}", KERNELS[name.split("-")[0]]
            if asked.finished and not (folder / IDENTIFIED).exists():
                continue
            words = f"{name}, seed {seed}: "
            status.update(f"{words}training")
            recipe = with_seed(grid[name], seed)
            folder.mkdir(parents=True, exist_ok=True)
            errors = kept(folder / "errors.json", partial(trained, recipe, folder))
            show = lambda what, words=words: status.update(words + what)  # noqa: E731
            make = partial(identified, folder, kernels, sizes, names, show)
            found = kept(folder / IDENTIFIED, make)
            rows.append({"model": name, "seed": seed, **errors, **found})
    print(markdown(rows))
    if asked.quick:
        return
    facts = {
        "seed": SIZES["seed"],
        "training seeds": SEEDS,
        "dtype": "float32 in training, float64 in identification",
        "sizes": SIZES,
        "kernels": KERNELS,
        "recipes": {name: dataclasses.asdict(recipe) for name, recipe in grid.items()},
    }
    record = {"meta": meta("subjects", "optax", **facts), "rows": rows}
    save("subjects", record, markdown(rows))
    ship(asked.folder)


if __name__ == "__main__":
    main()
