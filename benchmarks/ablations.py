"""`python -m benchmarks.ablations`: what ablations say of the solver that a model runs.

Each layer of known constructions, of models that run no solver and of trained runs loses its heads,
its MLP units, or both. Patterns of these effects are compared. It takes about 11 minutes of one CPU
core. Measurements are kept in `--folder`, so the same command continues after an interruption.
`--quick` is a smoke test; its figures are not meaningful.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
from rich.console import Console

from benchmarks.ablations_measure import EFFECTS, PARTS, REPLACED, measure
from benchmarks.ablations_models import (
    KIND,
    NAMES,
    VARIANTS,
    Variant,
    build,
    config_of,
    run_setting,
)
from benchmarks.ablations_patterns import (
    SETS,
    STATEMENTS,
    Effects,
    add_case,
    by_solver,
    confusion,
    effects_of,
    interval,
    nearest,
    pattern,
    strangers,
)
from benchmarks.ablations_tables import ablations_figure, markdown
from benchmarks.records import RESULTS, draw, folder_of, kept, meta, options, save
from icl_krr.experiments.shared.runs import load
from icl_krr.experiments.solverbench.score import Share
from icl_krr.experiments.solverbench.settings import LINEAR, PROCESS, Setting, setting

SHIPPED = (
    "gp-encoder",
    "gp-encoder-2d",
    "gp-encoder-hard",
    "gp-decoder",
    "gp-decoder-2d",
    "gp-decoder-hard",
    "linear-encoder",
    "linear-decoder",
)
SIZES = {"tasks": 32, "probe_tasks": 256, "num_queries": 8}
"""Half the number of tasks, the number of tasks for probes, and the queries of a task."""
RIDGES = {"own ridge": None, "condition 100": 100.0}
"""Of constructions on the tasks of a trained run."""
RESAMPLES, SEED = 400, 0
MAIN = ("zero", "change")
QUICK_SIZES = {"tasks": 4, "probe_tasks": 16, "num_queries": 2}
QUICK_NAMES = ("gradient_descent", "chebyshev", "smoother_equal")

Record = dict[str, Any]
Show = Callable[[str], None]


class Work:
    """Where measurements are kept, and their sizes."""

    def __init__(self, folder: Path, quick: bool, show: Show):
        self.folder, self.show = folder, show
        self.sizes = QUICK_SIZES if quick else SIZES
        self.names = QUICK_NAMES if quick else NAMES
        labels = ("base", "ridge x 10") if quick else VARIANTS
        self.variants = {label: VARIANTS[label] for label in labels}
        self.families = (LINEAR,) if quick else (LINEAR, PROCESS)

    def kept(self, words: str, make: Callable[[], Any]) -> Any:
        self.show(words)
        return kept(self.folder / f"{words.replace(' ', '-')}.json", make)

    def known(self) -> list[Record]:
        """All constructions on SolverBench's tasks, in all their variants."""
        rows = []
        for family in self.families:
            for label, variant in self.variants.items():
                one = setting(family, config_of(variant, self.sizes))
                for name in self.names:
                    make = partial(built, name, one, variant, label == "base")
                    if found := self.kept(f"known {family} {name} {label}", make):
                        rows.append({"family": family, "variant": label, "solver": name, **found})
        return rows

    def trained(self, models: list[str | Path]) -> list[Record]:
        """Trained runs, each with all constructions on its tasks and of its depth."""
        rows = []
        for where in models:
            run, name = load(where), Path(where).name
            steps, digest = run.model.steps, sha256(str(Path(where)).encode()).hexdigest()[:6]
            own = run_setting(run, steps, self.sizes, None)
            found = self.kept(f"trained {name} {digest}", partial(measure, run.model, own, True))
            key = sha256(f"{own.family} {steps}".encode()).hexdigest()[:12]
            beside = []
            for label, condition in RIDGES.items():
                one = run_setting(run, steps, self.sizes, condition) if condition else own
                for solver in self.names:
                    make = partial(built, solver, one, Variant(), False)
                    if other := self.kept(f"beside {key} {solver} {label}", make):
                        beside.append({"variant": label, "solver": solver, **other})
            rows.append({"model": name, **found, "beside": beside})
        return rows


def built(name: str, one: Setting, variant: Variant, profile: bool) -> Record | None:
    model = build(name, one, variant.slower, variant.form)
    return None if model is None else measure(model, one, profile)


def pair(share: Share) -> list[int]:
    return [share.cases, share.total]


def scores(rows: list[Record], found: list[Effects]) -> list[Record]:
    """The confusion of every kind of pattern; the main one comes first."""
    kinds = [(replaced, effect) for replaced in REPLACED for effect in EFFECTS]
    both, made = len({row["family"] for row in rows}) > 1, []
    for key in sorted(kinds, key=lambda kind: kind != MAIN):
        for name, parts in reversed(SETS.items()):
            patterns = [pattern(one, key, parts) for one in found]
            own = confusion(rows, patterns)
            away = confusion(rows, patterns, other_family=True) if both else None
            shares = {"right": own.right, "alone": own.alone, "lone": own.lone, "among": own.among}
            shares["other family"] = Share.of(0, 0) if away is None else away.right
            made.append({
                "set": name,
                "replaced": key[0],
                "effect": key[1],
                **{word: pair(share) for word, share in shares.items()},
                "strangers": strangers(rows, patterns, own.within),
                "size": own.size,
                "said": own.said,
                "by variant": own.by_variant,
                "said, other family": {} if away is None else away.said,
                "within": own.within,
                "between": own.between,
            })  # fmt: skip
    return made


def compared(row: Record, limits: dict[str, float]) -> Record:
    """The constructions whose patterns are nearest to a trained model's."""
    own = effects_of(row, RESAMPLES, SEED)
    others = [effects_of(other, RESAMPLES, SEED) for other in row["beside"]]
    names, said = [other["solver"] for other in row["beside"]], []
    for name, parts in reversed(SETS.items()):
        offered = by_solver([pattern(one, MAIN, parts) for one in others], names)
        one = nearest(pattern(own, MAIN, parts), offered)
        alone, close = len(one.as_near) == 1, one.distance <= limits[name]
        reading = KIND[one.name] if alone else "not distinguishable"
        said.append({
            "set": name,
            "name": one.name,
            "distance": one.distance,
            "as near": one.as_near,
            "distances": one.others,
            "within": limits[name],
            "reading": reading if close else "no construction is near",
        })  # fmt: skip
    return {"model": row["model"], "ratio": float(own.ratio[0]), "nearest": said}


def pattern_row(model: str, tasks: str, row: Record) -> Record:
    """The changes of the predictions, with 95 % intervals, of zeros in place of a part."""
    logs = 10 ** effects_of(row, RESAMPLES, SEED).logs[MAIN]
    made: Record = {"model": model, "tasks": tasks, "change": {}, "low": {}, "high": {}}
    for i, part in enumerate(PARTS):
        ends = [interval(one) for one in logs[:, i].T]
        made["change"][part] = logs[0, i].tolist()
        made["low"][part], made["high"][part] = map(list, zip(*ends, strict=True))
    return made


def stated(known: list[Record], trained: list[Record]) -> list[Record]:
    """How many models each statement is true of, [cases, models]."""
    every = [(row["solver"], effects_of(row, RESAMPLES, SEED)) for row in known]
    learnt = [effects_of(row, RESAMPLES, SEED) for row in trained]
    made = []
    for statement, holds in STATEMENTS.items():
        for replaced in REPLACED:
            if "probe" in statement and replaced != MAIN[0]:
                continue
            counts: dict[str, list[int]] = {}
            for name, found in every:
                add_case(counts.setdefault(name, [0, 0]), holds(found, replaced))
            of_trained = [0, 0]
            for found in learnt:
                add_case(of_trained, holds(found, replaced))
            words = "" if "probe" in statement else f" ({replaced})"
            made.append({"statement": statement + words, "known": counts, "trained": of_trained})
    deeper = deeper_is_better(known)
    made.append(
        {"statement": "two more layers lower the error", "known": deeper, "trained": [0, 0]}
    )
    return made


def deeper_is_better(known: list[Record]) -> dict[str, list[int]]:
    """Whether 8 layers err less than 6 on the same tasks."""
    errors = {
        (row["family"], row["solver"], row["variant"]): sum(row["intact"]["target"])
        for row in known
    }
    counts: dict[str, list[int]] = {}
    for (family, name, variant), error in errors.items():
        more = errors.get((family, name, "8 steps"))
        if variant == "base" and more is not None:
            add_case(counts.setdefault(name, [0, 0]), more < error)
    return counts


def retrained() -> dict[str, list[float]]:
    """Errors of the models of claim C37, over that of exact KRR."""
    runs = json.loads((RESULTS / "retraining.json").read_text())["runs"]
    chosen = [run for run in runs if run["study"] == "ablations" and run["chosen"]]
    names = dict.fromkeys(run["variant"] for run in chosen)
    return {name: [run["ratio"] for run in chosen if run["variant"] == name] for name in names}


def report(known: list[Record], trained: list[Record]) -> Record:
    """Everything that the tables and the figure show."""
    found = scores(known, [effects_of(row, RESAMPLES, SEED) for row in known])
    limits = {
        one["set"]: one["within"] for one in found if (one["replaced"], one["effect"]) == MAIN
    }
    patterns = [
        pattern_row(row["solver"], row["family"], row) for row in known if row["variant"] == "base"
    ]
    patterns += [pattern_row(row["model"], "own", row) for row in trained]
    return {
        "confusion": found,
        "trained": [compared(row, limits) for row in trained],
        "statements": stated(known, trained),
        "retrained": retrained(),
        "patterns": patterns,
    }


def cpu_seconds(*rows: list[Record]) -> float:
    every = [one for some in rows for row in some for one in (row, *row.get("beside", ()))]
    return sum(row["cpu_seconds"] for row in every)


def main() -> None:
    parser, place = options(__doc__), Path("icl-krr-ablations")
    parser.add_argument("--folder", type=Path, default=place, help="finished measurements")
    parser.add_argument(
        "--models", nargs="+", default=[], help="folders of trained runs, beside the reference runs"
    )
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)  # compilation takes most of the time
    models = [*map(folder_of, SHIPPED[1:2] if asked.quick else SHIPPED), *asked.models]
    with TemporaryDirectory() as temporary, Console(stderr=True).status("") as status:
        folder = Path(temporary) if asked.quick else asked.folder
        folder.mkdir(parents=True, exist_ok=True)
        work = Work(folder, asked.quick, status.update)
        known, trained = work.known(), work.trained(models)
        status.update("comparing patterns")
        record = report(known, trained)
    print(markdown(record))
    if asked.quick:
        return
    facts = {
        "seed": SEED,
        "dtype": "float64",
        "sizes": SIZES,
        "resamples": RESAMPLES,
        "variants": {name: one._asdict() for name, one in VARIANTS.items()},
        "models": [Path(where).name for where in models],
        "cpu_seconds": cpu_seconds(known, trained),
    }
    save("ablations", {"meta": meta("ablations", **facts), **record}, markdown(record))
    draw("ablations", ablations_figure(record))


if __name__ == "__main__":
    main()
