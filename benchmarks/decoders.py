"""`python -m benchmarks.decoders`: train GPT-2-style decoders until they no longer improve.

They learn Gaussian-process regression from outputs alone. `--folder` keeps every round.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks import records
from benchmarks.records import kept, meta
from icl_krr.experiments.shared.draws import draw_tasks
from icl_krr.experiments.shared.recipe import RUNS, ModelRecipe, Recipe, TaskRecipe
from icl_krr.experiments.shared.runs import blank, family, load
from icl_krr.files import replace, to_csv, to_markdown
from icl_krr.training import reference, save_weights, train
from icl_krr.training.settings import Training
from icl_krr.transformer import Transformer, predict_batch

FIRST, BATCH, RATE, VALIDATION = 2000, 16, 0.064, 2048
"""Updates of the first round, tasks of a step, learning rate times the width, and validation
tasks."""
LEAST, MOST, ENOUGH = 4, 5, 0.9
"""Least and most rounds, and the factor that the excess must fall by in a round for training to go
on. Each round has a learning rate that rises and falls to 0, and doubles the updates so far."""
SCALING = RUNS / "scaling.csv"


class Cell(NamedTuple):
    """One model: its tasks, its size and its seed."""

    num_features: int = 2
    num_supports: int = 16
    lengthscale: float = 0.8
    depth: int = 8
    width: int = 32
    seed: int = 0

    @property
    def name(self) -> str:
        p, n, scale, depth, width, seed = self
        return f"p{p}-n{n}-l{scale:.2g}-depth{depth}-width{width}-seed{seed}"


LENGTHS = {1: 0.57, 2: 0.8, 5: 1.26}
"""The lengthscale for each number of features p, about 0.57 sqrt(p): half of it is the other."""
DEPTHS, SEEDS = (4, 8, 12), (0, 1, 2, 3, 4)


def cells() -> list[Cell]:
    """The models that are trained: first all depths, then one axis at a time, then more seeds."""
    base = Cell()
    axes = [base._replace(num_features=p, lengthscale=LENGTHS[p]) for p in (1, 5)]
    axes += [base._replace(num_supports=32), base._replace(lengthscale=0.4)]
    axes += [base._replace(width=width) for width in (16, 64)]
    of_seed = [[base._replace(depth=depth, seed=seed) for depth in DEPTHS] for seed in SEEDS]
    return [*of_seed[0], *axes, *of_seed[1], *of_seed[2], base._replace(num_supports=64)]


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


def trained(cell: Cell, folder: Path, first: int, most: int) -> dict[str, Any]:
    """Train a model round by round, and keep the last one in its folder."""
    rounds: list[dict[str, Any]] = []
    for number in itertools.count():
        file = folder / f"round-{number}.json"
        if not file.exists() and (number >= most or fell_enough(rounds) is False):
            break
        rounds.append(kept(file, partial(round_of, cell, number, folder, first)))
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
        records.write(target / "meta.json", meta("decoders", "optax", dtype="float32", **facts))
        for file in ("recipe.json", "model.msgpack", "metrics.csv"):
            replace(target / file, (rounds[-1] / file).read_bytes())


def fell_enough(rounds: list[dict[str, Any]]) -> bool | None:
    """Whether the last round lowered the excess by a tenth or more; None before `LEAST` rounds."""
    if len(rounds) < LEAST:
        return None
    return excess(rounds[-1]) <= ENOUGH * excess(rounds[-2])


def row_of(cell: Cell, found: dict[str, Any]) -> dict[str, Any]:
    """The row of a model in the file that the package has."""
    own = cell._asdict()
    return {
        "model": cell.name,
        "style": "decoder",
        "attention": "softmax",
        **{name: own[name] for name in ("num_features", "num_supports", "lengthscale")},
        "noise": 0.05,
        **{name: own[name] for name in ("depth", "width", "seed")},
        **{name: found[name] for name in ("updates", "converged", "validation", "exact")},
        **{name: found[name] for name in ("nadaraya_watson", "mean", "zero")},
    }


def markdown(done: dict[Cell, dict[str, Any]]) -> str:
    header = ["model", "error / exact", "Nadaraya-Watson", "mean", "zero", "updates"]
    header += ["excess after each round", "no longer falls", "CPU minutes"]
    lines = []
    for cell, found in done.items():
        ratios = (found[name] / found["exact"] for name in ("validation", *BASELINES))
        fell = ", ".join(f"{one:.3g}" for one in found["excess after each round"])
        cells = [*(f"{ratio:.3g}" for ratio in ratios), str(found["updates"]), fell]
        yes = "yes" if found["converged"] else "no"
        lines.append([cell.name, *cells, yes, f"{found['seconds'] / 60:.1f}"])
    spent = sum(found["seconds"] for found in done.values()) / 3600
    table = to_markdown((header, lines))
    return f"{ABOUT}\n{table}\n\n{len(done)} models took {spent:.1f} CPU hours.\n"


BASELINES = ("nadaraya_watson", "mean", "zero")
ABOUT = f"""\
`python -m benchmarks.decoders` trains GPT-2-style decoders (LayerNorm, GELU, learned positions,
causal softmax attention with 4 heads, x and y interleaved) on Gaussian-process regression: inputs
uniform in (-1, 1), Gaussian kernel, noise variance 0.05. Targets are the outputs at every support
and at the query; no exact prediction is ever shown. AdamW, batches of {BATCH} tasks, learning rate
{RATE:g} over the width, with warm-up and cosine decay in every round. Rounds have {FIRST},
{FIRST}, {2 * FIRST}, ... updates. "No longer falls": the last round, which doubled the updates,
lowered the excess error over exact regression by less than a tenth. Errors are at one query after
all n supports, on {VALIDATION} tasks that no round has seen.
"""


def main() -> None:
    parser = records.options(__doc__)
    parser.add_argument("--rounds", type=int, default=MOST, help="most rounds of a model")
    asked = records.with_folder(parser)
    first, most, every = FIRST, asked.rounds, cells()
    if asked.quick:
        first, most, every = 2, 2, [Cell(num_supports=4, depth=1, width=8)]
    done = {}
    with records.workplace(asked) as top:
        for cell in every:
            (top / cell.name).mkdir(exist_ok=True)
            done[cell] = trained(cell, top / cell.name, first, most)
            print(cell.name, json.dumps(done[cell]), flush=True)
    facts = {
        "dtype": "float32",
        "seeds": SEEDS,
        "recipe": dataclasses.asdict(recipe_of(Cell(), FIRST)),
    }
    models = {cell.name: found for cell, found in done.items()}
    record = {"meta": meta("decoders", "optax", **facts), "models": models}
    records.finish("decoders", record, markdown(done), asked.quick)
    if not asked.quick:
        replace(SCALING, to_csv([row_of(cell, found) for cell, found in done.items()]))
        ship(asked.folder)


if __name__ == "__main__":
    main()
