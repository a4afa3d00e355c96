"""`python -m benchmarks.ablations`: what ablations say of the solver that a model runs.

It takes 11 minutes of one core; `--folder` keeps what was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import records
from benchmarks.ablations_models import (
    CANDIDATES,
    EFFECTS,
    KIND,
    NAMES,
    PARTS,
    REPLACED,
    RIVALS,
    VARIANTS,
    Variant,
    build,
    config_of,
    measure,
    run_setting,
)
from benchmarks.ablations_patterns import (
    RANGE,
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
from icl_krr.experiments.shared.runs import load
from icl_krr.experiments.solverbench.score import Share
from icl_krr.experiments.solverbench.settings import LINEAR, PROCESS, Setting, setting
from icl_krr.files import to_markdown
from icl_krr.plots.style import COLORS, legend

SHIPPED = [
    *("gp-encoder", "gp-encoder-2d", "gp-encoder-hard", "gp-decoder", "gp-decoder-2d"),
    *("gp-decoder-hard", "linear-encoder", "linear-decoder"),
]
SIZES = {"tasks": 32, "probe_tasks": 256, "num_queries": 8}
"""Half the number of tasks, the number of tasks for probes, and the queries of a task."""
RIDGES = {"own ridge": None, "condition 100": 100.0}
"""Of constructions on the tasks of a trained run."""
RESAMPLES, SEED = 400, 0
MAIN = ("zero", "change")
QUICK_SIZES = {"tasks": 4, "probe_tasks": 16, "num_queries": 2}
QUICK_NAMES = ("gradient_descent", "chebyshev", "smoother_equal")

Record = dict[str, Any]


class Work:
    """Where measurements are kept, and their sizes."""

    def __init__(self, folder: Path, quick: bool):
        self.folder = folder
        self.sizes = QUICK_SIZES if quick else SIZES
        self.names = QUICK_NAMES if quick else NAMES
        labels = ("base", "ridge x 10") if quick else VARIANTS
        self.variants = {label: VARIANTS[label] for label in labels}
        self.families = (LINEAR,) if quick else (LINEAR, PROCESS)

    def kept(self, words: str, make: Callable[[], Any]) -> Any:
        print(words, flush=True)
        return records.kept(self.folder / f"{words.replace(' ', '-')}.json", make)

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

    def trained(self, models: list[Path]) -> list[Record]:
        """Trained runs, each with all constructions on its tasks and of its depth."""
        rows = []
        for where in models:
            run, name = load(where), where.name
            steps, digest = run.model.steps, sha256(str(where).encode()).hexdigest()[:6]
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
                **{word: [share.cases, share.total] for word, share in shares.items()},
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
    runs = records.read("retraining")["runs"]
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


TITLES = {"heads": "all heads", "units": "the MLP", "layer": "the whole layer"}
BESIDE = ("gradient_descent", "richardson", "random_encoder")
"""Constructions whose distances to trained models the table shows, near or not."""
EFFECT_WORDS = {
    "change": "distance to the intact predictions",
    "target": "error to the targets",
    "exact": "distance to exact KRR",
}


def shown(name: str) -> str:
    return name.replace("_", " ")


def counted(cases: int, total: int) -> str:
    return str(Share.of(cases, total))


def score_table(record: Record) -> str:
    header = ["parts removed", "replaced by", "effect", "right", "of lone names, right"]
    header += ["right among those as near", "as near (mean)", "right, other tasks' family"]
    header += ["one solver (95 %)", "two solvers (5 %)"]
    lines = []
    for one in record["confusion"]:
        lines.append([
            one["set"],
            one["replaced"],
            EFFECT_WORDS[one["effect"]],
            *(counted(*one[name]) for name in ("right", "lone", "among")),
            f"{one['size']:.1f}",
            counted(*one["other family"]),
            f"{one['within']:.2g}",
            f"{one['between']:.2g}",
        ])  # fmt: skip
    return to_markdown((header, lines))


def variant_table(record: Record) -> str:
    """Right names by the setting in which a model differs, for the main kind of pattern."""
    found = record["confusion"][: len(SETS)]
    header = ["setting that no other model has", *(one["set"] for one in found)]
    lines = [
        [name, *(counted(*one["by variant"][name]) for one in found)]
        for name in found[0]["by variant"]
    ]
    return to_markdown((header, lines))


def stranger_table(record: Record) -> str:
    """Models whose solver is not among the names: how many get one candidate's name alone."""
    found = record["confusion"][: len(SETS)]
    kinds = {"candidate": "a candidate, without the patterns of its own solver"}
    kinds |= {kind: kind for kind in ("other solver", "no solver")}
    lines = [
        [words, *(counted(*one["strangers"][kind]) for one in found)]
        for kind, words in kinds.items()
        if kind in found[0]["strangers"]
    ]
    return to_markdown((["what the model runs", *(one["set"] for one in found)], lines))


def trained_table(record: Record) -> str:
    header = ["model", "error / exact error", "parts removed", "nearest", "distance"]
    header += ["as near", *(f"distance to {shown(name)}" for name in BESIDE)]
    header += ["one solver (95 %)", "reading"]
    lines = []
    for row in record["trained"]:
        for one in row["nearest"]:
            near = [shown(name) for name in one["as near"] if name != one["name"]]
            lines.append([
                row["model"],
                f"{row['ratio']:.3g}",
                one["set"],
                shown(one["name"]),
                f"{one['distance']:.2g}",
                ", ".join(near),
                *(f"{one['distances'].get(name, np.nan):.2g}" for name in BESIDE),
                f"{one['within']:.2g}",
                one["reading"],
            ])  # fmt: skip
    return to_markdown((header, lines))


def statement_table(record: Record) -> str:
    """How many models of each solver a statement is true of."""
    header = ["statement", "trained", *(shown(name) for name in CANDIDATES)]
    header += ["other solvers", "no solver"]
    lines = []
    for one in record["statements"]:
        cells = [f"{one['trained'][0]}/{one['trained'][1]}"]
        groups = [(name,) for name in CANDIDATES]
        groups += [RIVALS, tuple(name for name in NAMES if KIND[name] == "no solver")]
        for names in groups:
            found = [one["known"][name] for name in names if name in one["known"]]
            cases, total = (sum(pair[k] for pair in found) for k in (0, 1))
            cells.append(f"{cases}/{total}" if total else "-")
        lines.append([one["statement"], *cells])
    return to_markdown((header, lines))


def retrained_table(record: Record) -> str:
    header = ["retrained model", "training seeds", "error / exact error (least to largest)"]
    lines = [
        [name, str(len(ratios)), f"{min(ratios):.3g} to {max(ratios):.3g}"]
        for name, ratios in record["retrained"].items()
    ]
    return to_markdown((header, lines))


def pattern_table(record: Record) -> str:
    header = ["model", "tasks", *(f"without {TITLES[part]}, by layer" for part in PARTS)]
    lines = []
    for row in record["patterns"]:
        cells = [" ".join(f"{value:.2g}" for value in row["change"][part]) for part in PARTS]
        lines.append([shown(row["model"]), row["tasks"], *cells])
    return to_markdown((header, lines))


SECTIONS = {
    "Does the nearest pattern name the solver?": score_table,
    "Right names by setting": variant_table,
    "Named by one candidate alone, although the model runs none of those offered": stranger_table,
    "Trained models: the nearest pattern of constructions on the same tasks": trained_table,
    "Statements: true of how many models": statement_table,
    "Retrained without a part (benchmarks.retraining)": retrained_table,
    "Changes |f' - f| / |f| without a part of a layer": pattern_table,
}


def markdown(record: Record) -> str:
    return "\n".join(f"{title}\n\n{make(record)}" for title, make in SECTIONS.items())


def draw(axis: Axes, values: list[float], label: str, color: str, style: str) -> None:
    count = len(values)
    where = (np.arange(count) + 0.5) / count
    axis.plot(
        where, np.clip(values, *RANGE), style, color=color, label=label, linewidth=1, markersize=3
    )


def ablations_figure(record: Record) -> Figure:
    """Changes without heads, MLP or whole layers: constructions above, trained models below."""
    figure = Figure(figsize=(9.6, 7.6), layout="constrained")
    axes = figure.subplots(2, len(PARTS), sharex=True, sharey=True)
    known = [row for row in record["patterns"] if row["tasks"] == "process"]
    trained = [row for row in record["patterns"] if row["tasks"] == "own"]
    marks = {"candidate": "o-", "other solver": "s--", "no solver": "^:"}
    for k, part in enumerate(PARTS):
        for i, row in enumerate(known):
            style = marks[KIND[row["model"]]]
            label = f"{shown(row['model'])} ({KIND[row['model']]})"
            draw(axes[0, k], row["change"][part], label, COLORS[i % len(COLORS)], style)
        for i, row in reversed([*enumerate(trained)]):
            style = "o-" if "encoder" in row["model"] else "s--"
            named = i < len(COLORS)  # more have no colour of their own
            color = COLORS[i] if named else "#bbbbbb"
            label = f"{row['model']} (trained)" if named else "further trained models"
            draw(axes[1, k], row["change"][part], label, color, style)
        axes[0, k].set_title(f"without {TITLES[part]}", fontsize=9)
        axes[1, k].set_xlabel("layer / number of layers")
    for row, words in zip(axes, ("constructions", "trained models"), strict=True):
        row[0].set_ylabel(f"relative change of predictions, {words}", fontsize=8)
    for axis in axes.flat:
        axis.set_yscale("log")
        axis.grid(alpha=0.25)
    figure.suptitle(
        "One layer at a time, zeros in place of the part; Gaussian process tasks above, the run's "
        "own tasks below; seed 0, float64",
        fontsize=8,
    )
    legend(figure, *axes.flat, ncols=4)
    return figure


def main() -> None:
    asked = records.with_folder(records.options(__doc__))
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)  # compilation takes most of the time
    models = [*map(records.folder_of, SHIPPED[1:2] if asked.quick else SHIPPED)]
    with records.workplace(asked) as folder:
        work = Work(folder, asked.quick)
        known, trained = work.known(), work.trained(models)
    every = [*known, *trained, *(other for row in trained for other in row["beside"])]
    facts = {
        "seed": SEED,
        "dtype": "float64",
        "sizes": SIZES,
        "resamples": RESAMPLES,
        "variants": {name: one._asdict() for name, one in VARIANTS.items()},
        "models": [where.name for where in models],
        "cpu_seconds": sum(row["cpu_seconds"] for row in every),
    }
    record = {"meta": records.meta("ablations", **facts), **report(known, trained)}
    records.finish("ablations", record, markdown(record), asked.quick)
    if not asked.quick:
        records.draw("ablations", ablations_figure(record))


if __name__ == "__main__":
    main()
