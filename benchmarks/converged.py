"""`python -m benchmarks.converged --models NAME`: train a decoder until more updates do not help.

It begins no stage after `--minutes`, and goes on from the last stage in `benchmarks/runs`.
"""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import records
from benchmarks.records import RUNS, Row, meta
from benchmarks.soap import soap
from icl_krr import experiments as lab
from icl_krr.experiments.identify import profile_targets
from icl_krr.tasks import Sampler
from icl_krr.training import Training, load_weights, loss_and_gradient, reference, save_weights
from icl_krr.transformer import Transformer, predict_batch

FIRST, STAGE, ENOUGH = 1024, 16384, 0.9
"""Updates of the first stage, most updates of a stage, and the factor by which a doubling of the
updates must lower the excess for training to go on."""
SMALL, LARGE, GROWTH = 16, 64, 65536
"""Tasks of an update before and after `GROWTH` updates."""
RATE, WARMUP, FLAT, SPAN = 2e-3, 100, 16384, 0.15
"""Learning rate, the updates in which it rises at the start of a stage, those after which it falls
as their inverse root, and the share s of the average: the newest weights of t have 1 / (s t)."""
SIZES: Any = {"num_supports": 16, "num_queries": 1}
VALIDATION, CHUNK = 8192, 256
"""Validation tasks, and updates of one program."""
KEPT = tuple(1024 * 4**k for k in range(4))
"""Updates after which the average is kept."""
MINUTES = 180


LIMITED = {"converged-gp-2d-depth-4": 4, "converged-gp-2d-depth-12": 12}
"""Models of other depths, for comparison: `GROWTH` updates, and their stages are not kept."""
SHIPPED = {f"gp-decoder-{n}": name for name, n in (LIMITED | {"converged-gp-2d": 8}).items()}
"""Reference runs of the package, by the model that they are."""


def recipes() -> dict[str, lab.Recipe]:
    """GPT-2-style decoders of width 32; their settings of training are those of no stage."""
    tasks = {
        f"converged-gp-{p}d": lab.TaskRecipe(
            num_features=p, lengthscale=lengthscale, inputs="uniform", noise=0.05, **SIZES
        )
        for p, lengthscale in ((1, 0.57), (2, 0.8))
    }
    tasks["converged-linear"] = lab.TaskRecipe(
        "linear", num_features=4, noise=0.003, conditions=(1.0, 10.0, 100.0), **SIZES
    )
    tasks |= dict.fromkeys(LIMITED, tasks["converged-gp-2d"])
    training, recipes = Training(batch=SMALL, learning_rate=RATE, loss="every"), {}
    for name, task in tasks.items():
        model = lab.ModelRecipe("decoder", width=32, depth=LIMITED.get(name, 8))
        recipes[name] = lab.Recipe(task, model, training)
    return recipes


def rate_of(peak: float, before: Any, count: Any) -> jax.Array:
    """The learning rate of an update of a stage that begins after `before` updates."""
    step = jnp.asarray(count, float)
    fall = jnp.sqrt(FLAT / jnp.maximum(before + step, FLAT))
    return peak * jnp.minimum(step / WARMUP, 1) * fall


class Optimiser(NamedTuple):
    """An optimiser of optax, as a function of its learning rate, and the largest rate."""

    make: Callable[[optax.Schedule], optax.GradientTransformation]
    peak: float

    def start(self, before: Any) -> optax.GradientTransformation:
        """The optimiser of a stage that begins after `before` updates."""
        rate = partial(rate_of, self.peak, before)
        return optax.chain(optax.clip_by_global_norm(1.0), self.make(rate))


SOAP = Optimiser(soap, RATE)


@partial(jax.jit, static_argnames=("batch", "chosen"))
def chunk(state: Any, family: Sampler, batch: int, before: Any, chosen: Optimiser) -> Any:
    """`CHUNK` updates of weights, their average, the moments, the key and the number of updates."""
    optimiser = chosen.start(before)

    def update(state: Any, _: None) -> tuple[Any, jax.Array]:
        weights, average, moments, key, count = state
        tasks = lab.draw_tasks(jax.random.fold_in(key, count), batch, family)
        loss, slope = loss_and_gradient(weights, tasks, "every")
        change, moments = optimiser.update(slope, moments, weights)
        weights, count = optax.apply_updates(weights, change), count + 1
        share = 1 / jnp.maximum(SPAN * count.astype(float), 1)
        average = jax.tree.map(lambda mean, now: mean + share * (now - mean), average, weights)
        return (weights, average, moments, key, count), loss

    return jax.lax.scan(update, state, length=CHUNK)


def stage(
    models: Any, family: Sampler, seed: int, before: int, after: int, chosen: Optimiser = SOAP
) -> tuple[Any, Row]:
    """Weights and average after further updates, with a new state of the optimiser; what it took.

    Seconds are those of the CPU, without compilation.
    """
    batch = LARGE if before >= GROWTH else SMALL
    moments = chosen.start(before).init(models[0])
    state = *models, moments, jax.random.key(seed), jnp.asarray(before)
    run = chunk.lower(state, family, batch, before, chosen).compile()
    began, wall, losses = time.process_time(), time.perf_counter(), []
    for _ in range((after - before) // CHUNK):
        state, loss = run(state, family, before)
        losses.append(float(jnp.mean(loss)))
    speed = (after - before) / (time.perf_counter() - wall)
    row = {"step": after, "batch": batch, "loss": float(np.mean(losses))}
    row |= {"cpu_seconds": time.process_time() - began, "steps_per_second": speed}
    return state[:2], row


def errors(model: Transformer, family: Any) -> tuple[Row, float]:
    """The errors of a model and of the baselines, and half of the 95 % interval of the excess.

    Exact regression is the mean of the output given the supports. So the excess error over it is
    the mean square of the difference, which varies less over tasks than the difference of errors.
    """
    tasks = lab.draw_tasks(jax.random.key(51), VALIDATION, family)
    baselines = reference(family, jax.random.key(52)).losses(tasks)
    exact, found = baselines["exact"], predict_batch(model, tasks)
    error = float(jnp.mean((found - tasks.y_query) ** 2))
    best = profile_targets(tasks, *family.optimal()).exact
    both = (np.asarray(one, float) ** 2 for one in (found - best, best - tasks.y_query))
    gaps, squares = (one.mean(axis=1) / exact for one in both)
    excess = float(gaps.mean())
    row = {"excess": excess, "validation": error, "ratio": error / exact, **baselines}
    return row, float(1.96 * np.std(gaps - excess * squares) / VALIDATION**0.5)


def next_end(before: int) -> int:
    """The updates after the next stage: twice as many, but `STAGE` more at most."""
    return before + min(max(before, FIRST), STAGE)


def converged(rows: list[Row]) -> bool:
    """Whether the last doubling of the updates, or a little more, helped by less than a tenth."""
    before = [row for row in rows if 2 * row["step"] <= rows[-1]["step"]]
    late = bool(before) and rows[-1]["step"] > GROWTH
    return late and rows[-1]["excess"] > ENOUGH * before[-1]["excess"]


def ended(name: str, rows: list[Row], minutes: float = MINUTES) -> bool:
    """Whether a model needs no further stage."""
    spent = sum(row["cpu_seconds"] for row in rows) / 60
    last = rows[-1]["step"] if rows else 0
    return converged(rows) or spent >= minutes or (name in LIMITED and last == GROWTH)


def trained(
    recipe: lab.Recipe, folder: Path, minutes: float, chosen: Optimiser = SOAP
) -> list[Row]:
    """Train a model, stage by stage, until it converged or took so many minutes of a CPU."""
    family, metrics = lab.family(recipe.task), folder / "metrics.csv"
    first = lab.blank(recipe, family)
    models, rows = (first, first), []
    if metrics.exists():
        rows = lab.from_csv(metrics)
        parts = ("weights.msgpack", "model.msgpack")
        models = tuple(load_weights(folder / part, first) for part in parts)
    while not ended(folder.name, rows, minutes):
        before = rows[-1]["step"] if rows else 0
        after = next_end(before)
        models, row = stage(models, family, recipe.training.seed, before, after, chosen)
        rows.append(row | errors(models[1], family)[0])
        keep(folder, recipe, models, rows, chosen)
        print(f"{folder.name}: {after} updates, excess {rows[-1]['excess']:.4f}", flush=True)
    return rows


def keep(folder: Path, recipe: lab.Recipe, models: Any, rows: list[Row], chosen: Optimiser) -> None:
    """Write a stage: the average as the model of the run, and the weights to go on from."""
    steps = rows[-1]["step"]
    training = dataclasses.replace(recipe.training, steps=steps)
    recipe = dataclasses.replace(recipe, training=training)
    facts = {"dtype": "float32", "seed": training.seed, "optimiser": chosen.make.__name__}
    facts |= {"rate": chosen.peak, "recipe": dataclasses.asdict(recipe)}
    of_stage = folder / str(steps) if steps in KEPT and folder.name not in LIMITED else folder
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(folder / "weights.msgpack", models[0])
    for place in dict.fromkeys((of_stage, folder)):
        place.mkdir(exist_ok=True)
        lab.replace(place / "recipe.json", recipe.to_json().encode())
        save_weights(place / "model.msgpack", models[1])
        records.write(place / "meta.json", meta("converged", "optax", **facts))
        lab.replace(place / "metrics.csv", lab.to_csv(rows))


def stages(limited: bool = True) -> dict[str, Path]:
    """The folders of models, each after the stages that are kept and after the end of training."""
    found = {}
    for name in recipes():
        top, metrics = RUNS / name, RUNS / name / "metrics.csv"
        if metrics.exists() and (limited or name not in LIMITED):
            rows = lab.from_csv(metrics)
            kept = {step: top / str(step) for step in KEPT if (top / str(step)).is_dir()}
            if ended(name, rows):
                kept.setdefault(rows[-1]["step"], top)
            found |= {f"{name}, {step} updates": place for step, place in kept.items()}
    return found


def last_stages() -> dict[str, Path]:
    """The folder of each model after its last stage."""
    return {name.partition(",")[0]: folder for name, folder in stages().items()}


def digest(folder: Path) -> str:
    """The checksum of the weights of a run, by which a study knows them again."""
    return sha256((folder / "model.msgpack").read_bytes()).hexdigest()


def stage_row(name: str, folder: Path) -> Row:
    """The row of a stage in the file that the package has."""
    run, rows = lab.load(folder), lab.from_csv(folder / "metrics.csv")
    row, sampling = errors(run.model, run.family)
    settings = vars(run.recipe.model) | vars(run.recipe.task)
    facts = {key: settings[key] for key in ("depth", "width", *lab.TASK_SETTINGS)}
    facts |= {"seed": run.recipe.training.seed, "updates": rows[-1]["step"]}
    return {"model": name.partition(",")[0], **facts, "excess": row["excess"], "sampling": sampling}


def table(models: dict[str, list[Row]]) -> lab.Lines:
    """The excess after each doubling, a line for each model."""
    rows = [{"model": name, "rows": each} for name, each in models.items()]
    columns = {
        "model": "model",
        "updates": lambda row: str(row["rows"][-1]["step"]),
        "excess after 1024, 2048, 4096, ... updates": lambda row: ", ".join(
            f"{one['excess']:.3g}" for one in row["rows"] if one["step"].bit_count() == 1
        ),
        "and at the end": lambda row: f"{row['rows'][-1]['excess']:.3g}",
        "no longer falls": lambda row: "yes" if converged(row["rows"]) else "no",
        "CPU minutes": lambda row: f"{sum(one['cpu_seconds'] for one in row['rows']) / 60:.0f}",
    }
    return records.table(rows, columns)


def markdown(record: Row) -> str:
    return f"{ABOUT}\n{lab.to_markdown(table(record['models']))}"


ABOUT = f"""\
`python -m benchmarks.converged` trains GPT-2-style decoders (LayerNorm, GELU, learned positions,
softmax attention to earlier tokens, 4 heads, 8 blocks, width 32) from outputs alone, 16 supports:
on Gaussian processes with one and two features (Gaussian kernel, lengthscale 0.57 and 0.8, x
uniform in (-1, 1), noise variance 0.05), and on linear functions of 4 features whose covariance has
the condition number 1, 10 or 100 (noise variance 0.003). SOAP, with a new state in every stage of
at most {STAGE} updates; batches of {SMALL} tasks, of {LARGE} after {GROWTH} updates. The model is
a running average, two thirds of it from the last 15 % of the updates. "Excess": mean square of the
difference from exact regression over the error of exact regression, at one query, on {VALIDATION}
tasks. "No longer falls": the last doubling, or a little more, lowered it by less than a tenth.
Training ends then, or after {MINUTES} CPU minutes, and in other depths after {GROWTH} updates.
"""


def main() -> None:
    minutes = {"type": float, "default": MINUTES, "help": "most minutes of a CPU for a model"}
    names = {"nargs": "*", "default": [*recipes()], "choices": [*recipes()]}
    args = records.options(__doc__, quick="", minutes=minutes, models=names)
    for name in args.models:
        trained(recipes()[name], RUNS / name, args.minutes)
    metrics = {name: RUNS / name / "metrics.csv" for name in recipes()}
    models = {name: lab.from_csv(path) for name, path in metrics.items() if path.exists()}
    about = meta("converged", "optax", dtype="float32", seed=0, optimiser="SOAP", rate=RATE)
    record = {"meta": about, "models": models}
    records.finish("converged", records.rounded(record), markdown, False)
    rows = [stage_row(*found) for found in stages().items() if "-gp-" in found[0]]
    lab.replace(lab.RUNS / "scaling.csv", lab.to_csv(rows))
    last = last_stages()
    for target, name in SHIPPED.items():
        for file in ("recipe.json", "model.msgpack", "metrics.csv", "meta.json"):
            lab.replace(lab.RUNS / target / file, (last[name] / file).read_bytes())


if __name__ == "__main__":
    main()
