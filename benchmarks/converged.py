"""`python -m benchmarks.converged MODEL`: train a decoder until more updates no longer help.

Every stage is kept in `benchmarks/runs`, and the same command goes on from the last one.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import contrib

from benchmarks import records
from benchmarks.decoders import LENGTHS, Cell, excess, recipe_of
from benchmarks.records import RUNS, Row, meta
from benchmarks.soap import soap
from icl_krr import experiments as lab
from icl_krr.tasks import Sampler
from icl_krr.training import load_weights, loss_and_gradient, reference, save_weights
from icl_krr.transformer import Transformer, predict_batch

FIRST, STAGE, ENOUGH = 1024, 16384, 0.9
"""Updates of the first stage, most updates of a stage, and the factor by which a doubling of the
updates must lower the excess for training to go on."""
SMALL, LARGE, GROWTH = 16, 64, 65536
"""Tasks of an update before and after `GROWTH` updates."""
RATE, WARMUP, FLAT, SPAN = 2e-3, 100, 16384, 0.15
"""Learning rate, the updates in which it rises at the start of a stage, those after which it falls
as their inverse root, and the share of the updates that the average of the weights covers."""
VALIDATION, CHUNK = 8192, 256
"""Validation tasks, and updates of one program."""
KEPT = tuple(1024 * 4**k for k in range(5))
"""Updates after which the average is kept."""
MINUTES = 180


def recipes() -> dict[str, lab.Recipe]:
    """Three decoders of width 32 with 8 blocks; their settings of training hold for no stage."""
    curves = [recipe_of(Cell(num_features=p, lengthscale=LENGTHS[p]), FIRST) for p in (1, 2)]
    task = lab.TaskRecipe("linear", 4, 16, 1, noise=0.003, conditions=(1.0, 10.0, 100.0))
    lines = dataclasses.replace(curves[0], task=task)
    names = ("converged-gp-1d", "converged-gp-2d", "converged-linear")
    return dict(zip(names, (*curves, lines), strict=True))


def matrices(weights: Any) -> Any:
    """The matrices of a model, for Muon: those of each block, between channels."""
    axes = contrib.MuonDimensionNumbers(1, 2)
    return jax.tree.map(lambda w: axes if w.ndim == 3 and min(w.shape[1:]) > 1 else None, weights)


OPTIMISERS: dict[str, Callable[[optax.Schedule], optax.GradientTransformation]] = {
    "AdamW": optax.adamw,
    "Muon": partial(contrib.muon, muon_weight_dimension_numbers=matrices, consistent_rms=0.2),
    "SOAP": soap,
}


def optimiser_of(name: str, before: Any, largest: Any) -> optax.GradientTransformation:
    """An optimiser for a stage that begins after `before` updates."""

    def rate(count: Any) -> jax.Array:
        fall = jnp.sqrt(FLAT / jnp.maximum(before + count, FLAT))
        return largest * jnp.minimum(1, count / WARMUP) * fall

    return optax.chain(optax.clip_by_global_norm(1.0), OPTIMISERS[name](rate))


@partial(jax.jit, static_argnames=("name", "batch"))
def chunk(state: Any, family: Sampler, name: str, batch: int, before: Any, largest: Any) -> Any:
    """`CHUNK` updates of weights, their average, the moments, the key and the number of updates."""
    optimiser = optimiser_of(name, before, largest)

    def update(state: Any, _: None) -> tuple[Any, jax.Array]:
        weights, average, moments, key, count = state
        tasks = lab.draw_tasks(jax.random.fold_in(key, count), batch, family)
        loss, slope = loss_and_gradient(weights, tasks, "every")
        change, moments = optimiser.update(slope, moments, weights)
        weights, count = optax.apply_updates(weights, change), count + 1
        share = jnp.minimum(1, 1 / (SPAN * count))
        average = jax.tree.map(lambda mean, now: mean + share * (now - mean), average, weights)
        return (weights, average, moments, key, count), loss

    return jax.lax.scan(update, state, length=CHUNK)


def stage(
    models: Any, family: Sampler, seed: int, before: int, after: int, name: str, largest: float
) -> tuple[Any, Row]:
    """Weights and average after further updates, with a new state of the optimiser; what it took.

    Seconds are those of the CPU, without compilation.
    """
    batch = LARGE if before >= GROWTH else SMALL
    moments = optimiser_of(name, 0, largest).init(models[0])
    state = *models, moments, jax.random.key(seed), jnp.asarray(before)
    run = chunk.lower(state, family, name, batch, before, largest).compile()
    began, wall, losses = time.process_time(), time.perf_counter(), []
    for _ in range((after - before) // CHUNK):
        state, loss = run(state, family, before, largest)
        losses.append(float(jnp.mean(loss)))
    speed = (after - before) / (time.perf_counter() - wall)
    row = {"step": after, "batch": batch, "loss": float(np.mean(losses))}
    row |= {"cpu_seconds": time.process_time() - began, "steps_per_second": speed}
    return state[:2], row


def errors(model: Transformer, family: Sampler) -> Row:
    """Mean squared errors of a model and of the baselines on the same validation tasks."""
    tasks = lab.draw_tasks(jax.random.key(51), VALIDATION, family)
    baselines = reference(family, jax.random.key(52)).losses(tasks)
    error = float(jnp.mean((predict_batch(model, tasks) - tasks.y_query) ** 2))
    return {"validation": error, "ratio": error / baselines["exact"], **baselines}


def ends() -> Iterator[int]:
    """The numbers of updates after each stage: twice as many, but `STAGE` more at most."""
    end = FIRST
    while True:
        yield end
        end += min(end, STAGE)


def converged(rows: list[Row]) -> bool:
    """Whether the last doubling of the updates lowered the excess by less than a tenth."""
    if not rows or rows[-1]["step"] <= GROWTH:
        return False
    before = [row for row in rows if 2 * row["step"] == rows[-1]["step"]]
    return bool(before) and excess(rows[-1]) > ENOUGH * excess(before[0])


def trained(name: str, recipe: lab.Recipe, folder: Path, minutes: float) -> list[Row]:
    """Train a model, stage by stage, until it converged or took so many minutes of a CPU."""
    family, metrics = lab.family(recipe.task), folder / "metrics.csv"
    first = lab.blank(recipe, family)
    models, rows = (first, first), []
    if metrics.exists():
        rows = lab.from_csv(metrics)
        parts = ("weights.msgpack", "model.msgpack")
        models = tuple(load_weights(folder / part, first) for part in parts)
    for after in ends():
        before = rows[-1]["step"] if rows else 0
        if after <= before:
            continue  # an earlier run kept it
        if converged(rows) or sum(row["cpu_seconds"] for row in rows) > 60 * minutes:
            break
        models, row = stage(models, family, recipe.training.seed, before, after, "SOAP", RATE)
        rows.append(row | errors(models[1], family))
        keep(folder, name, recipe, models, rows)
        print(f"{name}: {after} updates, excess {excess(rows[-1]):.4f}", flush=True)
    return rows


def keep(folder: Path, name: str, recipe: lab.Recipe, models: Any, rows: list[Row]) -> None:
    """Write a stage: the average as the model of the run, and the weights to go on from."""
    steps = rows[-1]["step"]
    places = [folder, *([folder / str(steps)] if steps in KEPT else [])]
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
        lab.replace(place / "recipe.json", recipe.to_json().encode())
        save_weights(place / "model.msgpack", models[1])
    save_weights(folder / "weights.msgpack", models[0])
    facts = {"dtype": "float32", "seed": recipe.training.seed, "optimiser": "SOAP", "rate": RATE}
    records.write(folder / "meta.json", meta(f"converged {name}", "optax", **facts))
    lab.replace(folder / "metrics.csv", lab.to_csv(rows))


def main() -> None:
    minutes = {"type": float, "default": MINUTES, "help": "most minutes of a CPU for a model"}
    names = {"nargs": "*", "default": [*recipes()], "choices": [*recipes()]}
    args = records.options(__doc__, minutes=minutes, models=names)
    for name in args.models:
        trained(name, recipes()[name], RUNS / name, args.minutes)


if __name__ == "__main__":
    main()
