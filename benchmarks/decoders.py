"""`python -m benchmarks.decoders`: train GPT-2-style decoders until they no longer improve.

They learn Gaussian-process regression from outputs alone. `--folder` keeps every round.
"""

import time
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from benchmarks import records
from benchmarks.records import Row as Record, meta
from benchmarks.subjects import fitted
from icl_krr import experiments as lab
from icl_krr.experiments import replace, to_csv, to_markdown
from icl_krr.training import Training, reference
from icl_krr.transformer import Transformer, predict_batch

FIRST, BATCH, RATE, VALIDATION = 2000, 16, 0.064, 2048
"""Updates of the first round, tasks of a step, learning rate times the width, and validation
tasks."""
LEAST, MOST, ENOUGH = 4, 5, 0.9
"""Least and most rounds, and the factor that the excess must fall by in a round for training to go
on. Each round has a learning rate that rises and falls to 0, and doubles the updates so far."""
SCALING = lab.RUNS / "scaling.csv"


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


OF_TASKS = ("num_features", "num_supports", "lengthscale")
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


def recipe_of(cell: Cell, updates: int, seed: int = 0) -> lab.Recipe:
    """The recipe of one round."""
    sizes = {name: getattr(cell, name) for name in OF_TASKS}
    tasks = lab.TaskRecipe(num_queries=1, inputs="uniform", noise=0.05, **sizes)
    model = lab.ModelRecipe(style="decoder", width=cell.width, depth=cell.depth)
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
    return lab.Recipe(tasks, model, training)


def errors_of(model: Transformer, recipe: lab.Recipe) -> dict[str, float]:
    """Errors on validation tasks that all models of these tasks share."""
    drawn = lab.family(recipe.task)
    tasks = lab.draw_tasks(jax.random.key(51), VALIDATION, drawn)
    baselines = reference(drawn, jax.random.key(52)).losses(tasks)
    model_error = float(jnp.mean((predict_batch(model, tasks) - tasks.y_query) ** 2))
    return {"validation": model_error, **baselines}


def excess(errors: dict[str, float]) -> float:
    return errors["validation"] / errors["exact"] - 1


def round_of(cell: Cell, number: int, folder: Path, first: int) -> Record:
    """Train one round, from random weights or from those of the last round; its errors."""
    began, updates = time.process_time(), first * 2 ** max(0, number - 1)
    recipe = recipe_of(cell, updates, seed=100 * cell.seed + number)
    start = lab.load(folder / f"round-{number - 1}").model if number else None
    model, _ = fitted(recipe, folder / f"round-{number}", start)
    return errors_of(model, recipe) | {"updates": updates, "seconds": time.process_time() - began}


def trained(cell: Cell, folder: Path, first: int, most: int) -> Record:
    """Train a model round by round, and keep the last one in its folder."""
    rounds: list[Record] = []
    while len(rounds) < most and fell_enough(rounds) is not False:
        measure = lambda at: round_of(cell, at["round"], folder, first)  # noqa: E731
        study = lab.Study("rounds", {"first": first}, {"round": range(len(rounds) + 1)}, measure)
        rounds = [row for _, row in records.finished(study, folder)]
    for name in ("recipe.json", "model.msgpack"):
        replace(folder / name, (folder / f"round-{len(rounds) - 1}" / name).read_bytes())
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
        source, target = top / cell.name, lab.RUNS / name
        rounds = [source / f"round-{i}" for i, _ in enumerate(source.glob("round-*"))]
        updates = [lab.Recipe.read(one).training.steps for one in rounds]
        facts = {"seed": cell.seed, "updates of each round": updates}
        facts |= {"recipe": asdict(lab.Recipe.read(rounds[-1]))}
        target.mkdir(exist_ok=True)
        records.write(target / "meta.json", meta("decoders", "optax", dtype="float32", **facts))
        for file in ("recipe.json", "model.msgpack", "metrics.csv"):
            replace(target / file, (rounds[-1] / file).read_bytes())


def fell_enough(rounds: list[Record]) -> bool | None:
    """Whether the last round lowered the excess by a tenth or more; None before `LEAST` rounds."""
    if len(rounds) < LEAST:
        return None
    return excess(rounds[-1]) <= ENOUGH * excess(rounds[-2])


def row_of(cell: Cell, result: Record) -> Record:
    """The row of a model in the file that the package has."""
    row = cell._asdict()
    return {
        "model": cell.name,
        "style": "decoder",
        "attention": "softmax",
        **{name: row[name] for name in OF_TASKS},
        "noise": 0.05,
        **{name: row[name] for name in ("depth", "width", "seed")},
        **{name: result[name] for name in ("updates", "converged", "validation", "exact")},
        **{name: result[name] for name in ("nadaraya_watson", "mean", "zero")},
    }


RATIOS = {"error / exact": "validation", "Nadaraya-Watson": "nadaraya_watson"}
RATIOS |= {"mean": "mean", "zero": "zero"}


def markdown(record: Record) -> str:
    rows = [{"model": name, **errors} for name, errors in record["models"].items()]
    columns = {
        "model": "model",
        **{
            words: lambda row, name=name: f"{row[name] / row['exact']:.3g}"
            for words, name in RATIOS.items()
        },
        "updates": "updates",
        "excess after each round": lambda row: ", ".join(
            f"{one:.3g}" for one in row["excess after each round"]
        ),
        "no longer falls": lambda row: "yes" if row["converged"] else "no",
        "CPU minutes": lambda row: f"{row['seconds'] / 60:.1f}",
    }
    spent, table = sum(row["seconds"] for row in rows) / 3600, records.table(rows, columns)
    return f"{ABOUT}\n{to_markdown(table)}\n\n{len(rows)} models took {spent:.1f} CPU hours.\n"


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
    rounds = {"type": int, "default": MOST, "help": "most rounds of a model"}
    args = records.options(__doc__, folder=True, rounds=rounds)
    first, most, every = FIRST, args.rounds, cells()
    if args.quick:
        first, most, every = 2, 2, [Cell(num_supports=4, depth=1, width=8)]
    done: dict[Cell, Record] = {}
    for cell in every:
        print(cell.name, flush=True)
        done[cell] = trained(cell, args.folder / cell.name, first, most)
    facts = {"dtype": "float32", "seeds": SEEDS, "recipe": asdict(recipe_of(Cell(), FIRST))}
    models = {cell.name: result for cell, result in done.items()}
    record = {"meta": meta("decoders", "optax", **facts), "models": models}
    records.finish("decoders", record, markdown, args.quick)
    if not args.quick:
        replace(SCALING, to_csv([row_of(cell, result) for cell, result in done.items()]))
        ship(args.folder)


if __name__ == "__main__":
    main()
