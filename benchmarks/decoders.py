"""`python -m benchmarks.decoders`: train GPT-2-style decoders until they no longer improve.

The models learn Gaussian-process regression from outputs alone, from random weights. A model is
trained in rounds, each with a learning rate that rises and falls to 0. Each round doubles the
updates so far. Training ends when a round lowers the excess error over exact kernel ridge
regression by less than a tenth, after `LEAST` rounds at least, or after `--rounds` rounds.
Everything is kept in `--folder`, so the same command continues after an interruption, also with
more rounds. `--finished` reports what the folder has already. `--part 0/2` trains every second
model, for two processes side by side. `--quick` is a smoke test.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console

from benchmarks.decoders_tables import (
    BATCH,
    DEPTHS,
    FIRST,
    RATE,
    SEEDS,
    VALIDATION,
    Cell,
    cells,
    markdown,
    row_of,
)
from benchmarks.records import RESULTS as RESULTS, kept, meta, options, save, write
from icl_krr.experiments.shared.draws import draw_tasks
from icl_krr.experiments.shared.recipe import RUNS, ModelRecipe, Recipe, TaskRecipe
from icl_krr.experiments.shared.runs import blank, family, load
from icl_krr.files import replace, to_csv
from icl_krr.training import reference, save_weights, train
from icl_krr.training.settings import Training
from icl_krr.transformer import Transformer, predict_batch

LEAST, MOST, ENOUGH = 4, 5, 0.9
"""Least and most rounds, and the factor that the excess must fall by in a round for training to go
on."""
SCALING = RUNS / "scaling.csv"


SHIPPED = {f"gp-decoder-{depth}": Cell(depth=depth) for depth in DEPTHS}
"""Reference runs."""


def recipe_of(cell: Cell, updates: int, seed: int = 0) -> Recipe:
    """The recipe of one round."""
    tasks = TaskRecipe(
        num_features=cell.num_features,
        num_supports=cell.num_supports,
        num_queries=1,
        inputs="uniform",
        noise=0.05,
        lengthscale=cell.lengthscale,
    )
    model = ModelRecipe(style="decoder", width=cell.width, depth=cell.depth)
    training = Training(
        steps=updates,
        batch=BATCH,
        learning_rate=RATE / cell.width,
        warmup=min(200, updates // 4),
        loss="every",
        log_every=max(1, updates // 8),
        validation=512,
        seed=seed,
    )
    return Recipe(tasks, model, training)


def errors_of(model: Transformer, recipe: Recipe) -> dict[str, float]:
    """Errors on validation tasks that all models of these tasks share."""
    drawn = family(recipe.task)
    tasks = draw_tasks(jax.random.key(51), VALIDATION, drawn)
    known = reference(drawn, jax.random.key(52)).losses(tasks)
    own = float(jnp.mean((predict_batch(model, tasks) - tasks.y_query) ** 2))
    return {"validation": own, **known}


def excess(errors: dict[str, float]) -> float:
    return errors["validation"] / errors["exact"] - 1


def round_of(cell: Cell, number: int, folder: Path, first: int) -> dict[str, Any]:
    """Train one round, from random weights or from those of the last round; its errors."""
    began, updates = time.process_time(), first * 2 ** max(0, number - 1)
    recipe = recipe_of(cell, updates, seed=100 * cell.seed + number)
    drawn, own = family(recipe.task), folder / f"round-{number}"
    model = blank(recipe, drawn)
    if number:
        model = load(folder / f"round-{number - 1}").model
    own.mkdir(parents=True, exist_ok=True)
    model, _ = train(model, drawn, recipe.training, folder=own)
    save_weights(own / "model.msgpack", model)
    replace(own / "recipe.json", recipe.to_json().encode())
    return errors_of(model, recipe) | {"updates": updates, "seconds": time.process_time() - began}


def trained(cell: Cell, folder: Path, first: int, most: int) -> dict[str, Any] | None:
    """Train a model round by round, and keep the last one in its folder.

    With `most` = 0, it is not trained further. None before `LEAST` rounds.
    """
    rounds: list[dict[str, Any]] = []
    for number in itertools.count():
        file = folder / f"round-{number}.json"
        if not file.exists() and (number >= most or fell_enough(rounds) is False):
            break
        rounds.append(kept(file, partial(round_of, cell, number, folder, first)))
    if len(rounds) < min(LEAST, most or LEAST):
        return None
    last = folder / f"round-{len(rounds) - 1}"
    for name in ("recipe.json", "model.msgpack"):
        replace(folder / name, (last / name).read_bytes())
    return {
        **rounds[-1],
        "updates": sum(one["updates"] for one in rounds),
        "seconds": sum(one["seconds"] for one in rounds),
        "converged": fell_enough(rounds) is False,
        "excess after each round": [excess(one) for one in rounds],
    }


def ship(top: Path) -> None:
    """Copy the models of `SHIPPED` to the reference runs, with the metrics of their last round."""
    for name, cell in SHIPPED.items():
        source, target = top / cell.name, RUNS / name
        rounds = [source / f"round-{i}" for i, _ in enumerate(source.glob("round-*.json"))]
        updates = [Recipe.read(one).training.steps for one in rounds]
        facts = {"seed": cell.seed, "updates of each round": updates}
        facts |= {"recipe": dataclasses.asdict(Recipe.read(rounds[-1]))}
        target.mkdir(exist_ok=True)
        write(target / "meta.json", meta("decoders", "optax", dtype="float32", **facts))
        for file in ("recipe.json", "model.msgpack", "metrics.csv"):
            replace(target / file, (rounds[-1] / file).read_bytes())


def fell_enough(rounds: list[dict[str, Any]]) -> bool | None:
    """Whether the last round lowered the excess by a tenth or more; None before `LEAST` rounds."""
    if len(rounds) < LEAST:
        return None
    return excess(rounds[-1]) <= ENOUGH * excess(rounds[-2])


def main() -> None:
    parser, place = options(__doc__), Path("icl-krr-decoders")
    parser.add_argument("--folder", type=Path, default=place, help="models of an earlier run")
    parser.add_argument("--finished", action="store_true", help="only what the folder has already")
    parser.add_argument("--rounds", type=int, default=MOST, help="most rounds of a model")
    parser.add_argument("--part", default="0/1", help="train only part I of N, as I/N")
    asked = parser.parse_args()
    part, parts = map(int, asked.part.split("/"))
    first, most, every = FIRST, 0 if asked.finished else asked.rounds, cells()[part::parts]
    if asked.quick:
        first, most, every = 2, 2, [Cell(num_supports=4, depth=1, width=8)]
    done = {}
    with TemporaryDirectory() as temporary, Console(stderr=True).status("") as status:
        top = Path(temporary) if asked.quick else asked.folder
        for cell in every:
            status.update(cell.name)
            (top / cell.name).mkdir(parents=True, exist_ok=True)
            found = trained(cell, top / cell.name, first, most)
            if found is not None:
                done[cell] = found
                print(cell.name, json.dumps(found), flush=True)
    print(markdown(done))
    if asked.quick or parts > 1:
        return
    rows = [row_of(cell, found) for cell, found in done.items()]
    replace(SCALING, to_csv(rows))
    facts = {
        "dtype": "float32",
        "seeds": SEEDS,
        "recipe": dataclasses.asdict(recipe_of(Cell(), FIRST)),
    }
    models = {cell.name: found for cell, found in done.items()}
    save("decoders", {"meta": meta("decoders", "optax", **facts), "models": models}, markdown(done))
    if {*SHIPPED.values()} <= done.keys():
        ship(asked.folder)


if __name__ == "__main__":
    main()
