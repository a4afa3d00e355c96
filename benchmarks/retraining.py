"""`python -m benchmarks.retraining`: train the small models of claims C36 and C37 (80 minutes)."""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax

from benchmarks import records
from benchmarks.cost import step_cost
from benchmarks.subjects import ERRORS, QUICK
from icl_krr.experiments.shared import retrained
from icl_krr.experiments.shared.recipe import Recipe
from icl_krr.experiments.shared.retrained import STUDIES, Study
from icl_krr.experiments.shared.runs import blank, family
from icl_krr.files import to_markdown
from icl_krr.tasks import sample
from icl_krr.training import Diverged, load_weights, save_weights, train

Record = dict[str, Any]
Rates = dict[tuple[str, str], float]


def trained(recipe: Recipe, folder: Path) -> Record:
    """Train a model and save its weights: its errors, CPU seconds and FLOPs."""
    settings, drawn, start = recipe.training, family(recipe.task), time.process_time()
    model = blank(recipe, drawn)
    task = sample(jax.random.key(0), drawn)
    # the gradient costs about two forward passes
    flops = 3 * step_cost(model, task).flops * model.steps * settings.batch * settings.steps
    record: Record = {
        "seed": settings.seed,
        "learning_rate": settings.learning_rate,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(model)),
        "flops": flops,
    }
    try:
        model, rows = train(model, drawn, settings, folder=folder)
        save_weights(folder / "model.msgpack", model)
        record |= {name: rows[-1][name] for name in ERRORS}
    except Diverged:
        record |= dict.fromkeys(ERRORS)
    return record | {"cpu_seconds": time.process_time() - start}


def all_seeds(name: str, variant: str, study: Study, folder: Path, rates: Rates) -> list[Record]:
    """Train a variant with every learning rate and the first seed, then with the other seeds.

    The records of the chosen learning rate have "chosen" True. Their weights are saved together.
    `rates` holds the chosen learning rates of the studies so far.
    """
    seeds = study.seeds(variant)
    tried = (
        retrained.LEARNING_RATES if study.tuned_by is None else (rates[study.tuned_by, variant],)
    )

    def place(rate: float, seed: int) -> Path:
        return folder / name / f"{variant} {rate} {seed}".replace(" ", "-")

    def run(rate: float, seed: int) -> Record:
        print(f"{name}: {variant}, learning rate {rate}, seed {seed}", flush=True)
        own = place(rate, seed)
        own.mkdir(parents=True, exist_ok=True)
        recipe = study.recipe(variant, seed, rate)
        return records.kept(own / "done.json", partial(trained, recipe, own))

    tuning = [run(rate, seeds[0]) for rate in tried]
    finished = [record for record in tuning if record["validation"] is not None]
    best = min(finished, key=lambda record: record["validation"])["learning_rate"]
    rates[name, variant] = best
    runs = tuning + [run(best, seed) for seed in seeds[1:]]
    like = jax.tree.map(lambda leaf: leaf[0], retrained.random_models(name, variant))
    models = [load_weights(place(best, seed) / "model.msgpack", like) for seed in seeds]
    save_weights(folder / retrained.weights_file(name, variant).name, retrained.stack(models))
    return [
        {"study": name, "variant": variant, **record, "chosen": record["learning_rate"] == best}
        for record in runs
    ]


def markdown(runs: list[Record]) -> str:
    """A table of errors and of the compute of all runs, with one line for each variant."""
    header = ["models", "parameters", "learning rate"]
    header += ["error / error of exact KRR, seeds 0, 1, 2, ...", "Nadaraya-Watson", "mean", "zero"]
    header += ["CPU seconds", "GFLOPs"]
    lines, baselines = [], ("nadaraya_watson", "mean", "zero")
    for name, variant in dict.fromkeys((r["study"], r["variant"]) for r in runs):
        own = [r for r in runs if (r["study"], r["variant"]) == (name, variant)]
        chosen = [r for r in own if r["chosen"]]
        lines.append([
            f"{name}: {variant}",
            f"{chosen[0]['parameters']:,}",
            f"{chosen[0]['learning_rate']}",
            ", ".join(f"{r['ratio']:.3g}" for r in chosen),
            *(f"{sum(r[b] / r['exact'] for r in chosen) / len(chosen):.3g}" for b in baselines),
            f"{sum(r['cpu_seconds'] for r in own):.0f}",
            f"{sum(r['flops'] for r in own) / 1e9:.0f}",
        ])  # fmt: skip
    seconds, flops = (sum(r[name] for r in runs) for name in ("cpu_seconds", "flops"))
    lines.append(["all", *[""] * 6, f"{seconds:.0f}", f"{flops / 1e9:.0f}"])
    return to_markdown((header, lines))


def quick() -> dict[str, Study]:
    """The first variant of every study, with few and small steps."""
    return {
        name: study._replace(
            training=dataclasses.replace(study.training, **QUICK),
            variants=dict(list(study.variants.items())[:1]),
        )
        for name, study in STUDIES.items()
    }


def main() -> None:
    asked = records.with_folder(records.options(__doc__))
    runs, rates = [], {}
    with records.workplace(asked) as folder:
        for name, study in (quick() if asked.quick else STUDIES).items():
            for variant in study.variants:
                runs += all_seeds(name, variant, study, folder, rates)
    facts = {"learning_rates": retrained.LEARNING_RATES, "dtype": "float32"}
    record = {"meta": records.meta("retraining", "optax", **facts), "runs": runs}
    records.finish("retraining", record, markdown(runs), asked.quick)
    if asked.quick:
        return
    for name, study in STUDIES.items():
        for variant in study.variants if study.shipped else ():
            file = retrained.weights_file(name, variant)
            records.ship(asked.folder / file.name, file)


if __name__ == "__main__":
    main()
