"""`python -m benchmarks.ablations`: what ablations say of the solver that a model runs.

It takes 6 minutes of one core; `--folder` keeps what was measured.
"""

from collections.abc import Iterable
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure

from benchmarks import ablations_models as models, converged, records
from benchmarks.ablations_models import CANDIDATES, EFFECTS, KIND, NAMES, PARTS, REPLACED
from benchmarks.records import Row as Record, digits, table
from icl_krr.experiments import Cell, Study, load, to_markdown
from icl_krr.experiments.identify import paired_differences, resamples
from icl_krr.experiments.solverbench import LINEAR, PROCESS, BenchFamily, Share, bench_family
from icl_krr.plots import curves_figure

ENCODERS = ("gp-encoder", "linear-encoder")
"""Trained models that are read beside those of `benchmarks.converged`."""
SIZES = {"tasks": 32, "probe_tasks": 256, "num_queries": 8}
"""Half the number of tasks, the number of tasks for probes, and the queries of a task."""
RIDGES = {"own ridge": None, "condition 100": 100.0}
"""Of constructions on the tasks of a trained run."""
RESAMPLES, SEED = 400, 0
MAIN = ("zero", "change")
QUICK_SIZES = {"tasks": 4, "probe_tasks": 16, "num_queries": 2}
QUICK_NAMES = ("gradient_descent", "chebyshev", "smoother_equal")

RANGE = (1e-3, 1e3)
"""Effects are cut to this range: an effect below it is none."""
PLACES = 6
"""Relative depths at which patterns of models with different depths are compared."""
SETS = {"whole layers": ("layer",), "heads": ("heads",), "heads, MLP, whole layers": PARTS}


def constructed(quick: bool, folder: Path) -> list[Record]:
    """All constructions on SolverBench's tasks, in all their variants."""
    sizes = QUICK_SIZES if quick else SIZES

    @cache
    def tasks(family: str, label: str) -> BenchFamily:
        return bench_family(family, models.config_of(models.VARIANTS[label], sizes))

    def measure(cell: Cell) -> Record | None:
        family, label, name = cell.values()
        return built(name, tasks(family, label), models.VARIANTS[label])

    axes = {
        "family": (LINEAR,) if quick else (LINEAR, PROCESS),
        "variant": ("base", "ridge x 10") if quick else models.VARIANTS,
        "solver": QUICK_NAMES if quick else NAMES,
    }
    study = Study("known constructions", sizes, axes, measure)
    return [cell | row for cell, row in records.finished(study, folder / "known")]


def trained(quick: bool, folder: Path, places: dict[str, Path]) -> list[Record]:
    """Trained runs, each with all constructions on its tasks and of its depth."""
    sizes = QUICK_SIZES if quick else SIZES
    runs = {name: load(place) for name, place in places.items()}

    @cache
    def tasks(name: str, condition: float | None = None) -> BenchFamily:
        return models.run_setting(runs[name], sizes, condition)

    def measure(cell: Cell) -> Record:
        name = cell["model"]
        return models.measure(runs[name].model, tasks(name))

    def measure_beside(cell: Cell) -> Record | None:
        one = tasks(cell["tasks of"], RIDGES[cell["variant"]])
        return built(cell["solver"], one, models.Variant())

    axes = {"tasks of": places, "variant": RIDGES, "solver": QUICK_NAMES if quick else NAMES}
    weights = lambda cell: converged.digest(places[cell["model"]])  # noqa: E731
    own = Study("trained", sizes, {"model": places}, measure, weights)
    other = Study("beside", sizes, axes, measure_beside)
    model_rows, beside = (records.finished(study, folder / study.name) for study in (own, other))
    return [
        cell | row | {"beside": [c | r for c, r in beside if c["tasks of"] == cell["model"]]}
        for cell, row in model_rows
    ]


class Effects(NamedTuple):
    """Logarithms (base 10) of the effects of a model, of all tasks first, then of resamples.

    `logs` has [1 + resamples, parts, L] for (replaced by, effect); `ratio` is the error of the
    model over that of exact KRR.
    """

    logs: dict[tuple[str, str], np.ndarray]
    ratio: np.ndarray


def effects_of(row: Record, number: int = RESAMPLES, seed: int = SEED) -> Effects:
    """The effects on all tasks, and on bootstrap resamples of the tasks, the same for all rows."""
    intact = {name: np.asarray(row["intact"][name]) for name in EFFECTS}
    count = len(intact["change"])
    weights = np.concatenate([np.ones((1, count)), resamples(count, number, seed)])
    logs = {}
    for replaced, squares in row["removed"].items():
        for name in EFFECTS:
            power = 1.0 if name == "target" else 0.5
            total = np.einsum("rb,plb->rpl", weights, np.asarray(squares[name]))
            size = np.maximum(weights @ intact[name], np.finfo(float).tiny)[:, None, None]
            logs[replaced, name] = np.log10(((total / size) ** power).clip(*RANGE))
    exact = weights @ np.asarray(row["exact error"])
    return Effects(logs, (weights @ intact["target"]) / exact)


def at_places(logs: np.ndarray) -> np.ndarray:
    """A pattern [..., L] at `PLACES` relative depths, interpolated between the layers."""
    layers = logs.shape[-1]
    where = (np.arange(PLACES) + 0.5) / PLACES * layers - 0.5
    below = np.clip(np.floor(where), 0, layers - 1).astype(int)
    above = np.minimum(below + 1, layers - 1)
    share = np.clip(where - below, 0, 1)
    return (1 - share) * logs[..., below] + share * logs[..., above]


def pattern(effects: Effects, key: tuple[str, str], parts: Iterable[str]) -> np.ndarray:
    """The pattern [1 + resamples, numbers] of some parts at common relative depths."""
    chosen = effects.logs[key][:, [PARTS.index(part) for part in parts]]
    return at_places(chosen).reshape(len(chosen), -1)


class Nearest(NamedTuple):
    """The solver with the nearest pattern, its distance (root mean square), and those as near."""

    name: str
    distance: float
    tied: list[str]  # names that paired intervals do not tell from the nearest


def nearest(model_pattern: np.ndarray, by_name: dict[str, list[np.ndarray]]) -> Nearest:
    """Compare a pattern with the patterns of each name, of which the nearest counts."""
    distances = np.stack([
        np.min([np.sqrt(np.mean((model_pattern - other) ** 2, axis=1)) for other in others], axis=0)
        for others in by_name.values()
    ])  # fmt: skip
    names, every = list(by_name), np.ones(len(by_name), bool)
    differences = paired_differences(distances[:, :1], distances[:, None, 1:], every)
    tied = [name for name, low in zip(names, differences.low[:, 0], strict=True) if low <= 0]
    best = differences.leader
    return Nearest(names[best], float(distances[best, 0]), tied)


def by_solver(pairs: Iterable[tuple[str, np.ndarray]]) -> dict[str, list[np.ndarray]]:
    groups = records.grouped(pairs, itemgetter(0))
    return {name: [one for _, one in members] for name, members in groups.items()}


def add_case(line: list[int], holds: bool) -> None:
    """Count a case [holds, all]."""
    line[0] += bool(holds)
    line[1] += 1


Patterns = list[np.ndarray]


def offers(rows: list[Record], patterns: Patterns, i: int, away: bool) -> dict[str, Patterns]:
    """The patterns of all other settings than that of a model, by solver."""
    return by_solver(
        (other["solver"], one)
        for other, one in zip(rows, patterns, strict=True)
        if (other["family"] != rows[i]["family"]) == away
        and (away or other["variant"] != rows[i]["variant"])
    )


def confusion(
    rows: list[Record],
    patterns: Patterns,
    other_family: bool = False,
    names: tuple[str, ...] = CANDIDATES,
) -> Record:
    """Leave one setting out: name each model by the nearest pattern of all other settings.

    With `other_family`, the patterns are those of models on the other family of tasks, and solvers
    that this family does not have are not asked for. Counts are [cases, models]: "right" names, of
    all and of those "lone" models for which no other solver is as near as the nearest, and models
    whose solver is "among" those that are as near, of which there are "size" in the mean. 95 % of
    the distances between settings of one solver are "within", and 5 % of those of two "between".
    """
    lone, among, right = [0, 0], [0, 0], [0, 0]
    by_variant: dict[str, list[int]] = {}
    tied_counts, within, between = [], [], []
    for i, row in enumerate(rows):
        by_name = offers(rows, patterns, i, other_family)
        for name, others in by_name.items():
            gaps = [np.sqrt(np.mean((patterns[i][0] - one[0]) ** 2)) for one in others]
            (within if name == row["solver"] else between).extend(gaps)
        if row["solver"] not in names or row["solver"] not in by_name:
            continue
        one = nearest(patterns[i], by_name)
        is_right = one.name == row["solver"]
        tied_counts.append(len(one.tied))
        add_case(right, is_right)
        if len(one.tied) == 1:
            add_case(lone, is_right)
        add_case(among, row["solver"] in one.tied)
        add_case(by_variant.setdefault(row["variant"], [0, 0]), is_right)
    return {
        "right": right,
        "lone": lone,
        "among": among,
        "size": float(np.mean(tied_counts)),
        "by variant": by_variant,
        "within": float(np.quantile(within, 0.95)),
        "between": float(np.quantile(between, 0.05)),
    }


def distractors(rows: list[Record], patterns: Patterns, limit: float) -> dict[str, list[int]]:
    """Models whose solver is not offered: how many are given the name of one candidate alone.

    These are models that run no candidate, and candidates without the patterns of their own solver.
    A name counts if its distance is at most `limit` and no other candidate is as near.
    """
    counts: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        by_name = offers(rows, patterns, i, away=False)
        by_name = {n: o for n, o in by_name.items() if n in CANDIDATES and n != row["solver"]}
        one = nearest(patterns[i], by_name)
        named = len(one.tied) == 1 and one.distance <= limit
        add_case(counts.setdefault(KIND[row["solver"]], [0, 0]), named)
    return counts


def built(name: str, one: BenchFamily, variant: models.Variant) -> Record | None:
    model = models.build(name, one, variant.slower, variant.form)
    return None if model is None else models.measure(model, one)


def scores(rows: list[Record], all_effects: list[Effects]) -> list[Record]:
    """The confusion of every kind of pattern; the main one comes first."""
    kinds = [(replaced, effect) for replaced in REPLACED for effect in EFFECTS]
    both, score_rows = len({row["family"] for row in rows}) > 1, []
    for key in sorted(kinds, key=lambda kind: kind != MAIN):
        for name, parts in reversed(SETS.items()):
            patterns = [pattern(one, key, parts) for one in all_effects]
            row = {"set": name, "replaced": key[0], "effect": key[1], **confusion(rows, patterns)}
            away = confusion(rows, patterns, other_family=True)["right"] if both else [0, 0]
            row |= {"other family": away, "distractors": distractors(rows, patterns, row["within"])}
            score_rows.append(row)
    return score_rows


def compared(row: Record, limits: dict[str, float]) -> Record:
    """The constructions whose patterns are nearest to a trained model's."""
    effects = effects_of(row)
    others, verdicts = [(other["solver"], effects_of(other)) for other in row["beside"]], []
    for name, parts in reversed(SETS.items()):
        patterns = by_solver((other, pattern(one, MAIN, parts)) for other, one in others)
        one = nearest(pattern(effects, MAIN, parts), patterns)
        alone, close = len(one.tied) == 1, one.distance <= limits[name]
        reading = KIND[one.name] if alone else "not distinguishable"
        verdicts.append({
            "set": name,
            "name": one.name,
            "distance": one.distance,
            "tied": one.tied,
            "within": limits[name],
            "reading": reading if close else "no construction is near",
        })  # fmt: skip
    return {"model": row["model"], "ratio": float(effects.ratio[0]), "nearest": verdicts}


def pattern_row(model: str, tasks: str, row: Record) -> Record:
    """The changes of the predictions with zeros in place of a part."""
    changes = (10 ** effects_of(row).logs[MAIN][0]).tolist()
    return {"model": model, "tasks": tasks, "change": dict(zip(PARTS, changes, strict=True))}


def report(constructed_rows: list[Record], trained: list[Record]) -> Record:
    """Everything that the tables and the figures show."""
    rows = scores(constructed_rows, [effects_of(row) for row in constructed_rows])
    limits = {one["set"]: one["within"] for one in rows if (one["replaced"], one["effect"]) == MAIN}
    base = [row for row in constructed_rows if row["variant"] == "base"]
    patterns = [pattern_row(row["solver"], row["family"], row) for row in base]
    patterns += [pattern_row(row["model"], "own", row) for row in trained]
    named = [compared(row, limits) for row in trained]
    return {"confusion": rows, "trained": named, "patterns": patterns}


ROW_WORDS = {"candidate": "a candidate, without the patterns of its own solver"}
TASK_WORDS = {"process": "Gaussian process tasks", "own": "the run's own tasks"}
TITLES = {"heads": "all heads", "units": "the MLP", "layer": "the whole layer"}
EFFECT_WORDS = {
    "change": "distance to the intact predictions",
    "target": "error to the targets",
    "exact": "distance to exact KRR",
}


def display_name(name: str) -> str:
    return name.replace("_", " ")


def score_table(record: Record) -> str:
    columns = {
        "parts removed": "set",
        "replaced by": "replaced",
        "effect": lambda one: EFFECT_WORDS[one["effect"]],
        "right": lambda one: Share.of(*one["right"]),
        "of lone names, right": lambda one: Share.of(*one["lone"]),
        "right among those as near": lambda one: Share.of(*one["among"]),
        "as near (mean)": lambda one: f"{one['size']:.1f}",
        "right, other tasks' family": lambda one: Share.of(*one["other family"]),
        "one solver (95 %)": digits("within", 2),
        "two solvers (5 %)": digits("between", 2),
    }
    return to_markdown(table(record["confusion"], columns))


def set_table(record: Record, title: str, key: str) -> str:
    """Shares for the main kind of pattern, a column for each set of parts."""
    sets = record["confusion"][: len(SETS)]
    lines = [
        [ROW_WORDS.get(name, name), *(str(Share.of(*one[key][name])) for one in sets)]
        for name in sets[0][key]
    ]
    return to_markdown(([title, *(one["set"] for one in sets)], lines))


def trained_table(record: Record) -> str:
    columns = {
        "model": "model",
        "error / exact error": digits("ratio"),
        "parts removed": "set",
        "nearest": lambda one: display_name(one["name"]),
        "distance": digits("distance", 2),
        "tied": lambda one: ", ".join(display_name(n) for n in one["tied"] if n != one["name"]),
        "one solver (95 %)": digits("within", 2),
        "reading": "reading",
    }
    every = [row | one for row in record["trained"] for one in row["nearest"]]
    return to_markdown(table(every, columns))


def pattern_table(record: Record) -> str:
    columns = {"model": lambda row: display_name(row["model"]), "tasks": "tasks"}
    for part in PARTS:
        columns[f"without {TITLES[part]}, by layer"] = lambda row, part=part: " ".join(
            f"{value:.2g}" for value in row["change"][part]
        )
    return to_markdown(table(record["patterns"], columns))


SECTIONS = {
    "Does the nearest pattern name the solver?": score_table,
    "Right names by setting": partial(
        set_table, title="setting that no other model has", key="by variant"
    ),
    "Named by one candidate alone, although the model runs none of those offered": partial(
        set_table, title="what the model runs", key="distractors"
    ),
    "Trained models: the nearest pattern of constructions on the same tasks": trained_table,
    "Changes |f' - f| / |f| without a part of a layer": pattern_table,
}


def markdown(record: Record) -> str:
    return "\n".join(f"{title}\n\n{make(record)}" for title, make in SECTIONS.items())


def patterns_figure(record: Record, tasks: str) -> Figure:
    """Changes without heads, MLP or whole layers, of all models on some tasks."""
    panels: dict[str, Record] = {}
    for part in PARTS:
        curves = panels[f"layer / number of layers, without {TITLES[part]}"] = {}
        for row in record["patterns"]:
            values = np.clip(row["change"][part], *RANGE)
            places = (np.arange(len(values)) + 0.5) / len(values)
            if row["tasks"] == tasks:
                kind = KIND.get(row["model"], "trained")
                curves[f"{display_name(row['model'])} ({kind})"] = places, values
    title = f"Zeros in place of a part of one layer; {TASK_WORDS[tasks]}; seed {SEED}, float64"
    return curves_figure(panels, "relative change of the predictions", title, log="y")


def main() -> None:
    args = records.options(__doc__, folder=True)
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)  # compilation takes most of the time
    places = {name: records.folder_of(name) for name in ENCODERS}
    places = dict([*places.items()][:1]) if args.quick else converged.last_stages() | places
    parts = (constructed(args.quick, args.folder), trained(args.quick, args.folder, places))
    every = [*parts[0], *parts[1], *(other for row in parts[1] for other in row["beside"])]
    facts = {
        "seed": SEED,
        "dtype": "float64",
        "sizes": SIZES,
        "resamples": RESAMPLES,
        "variants": {name: one._asdict() for name, one in models.VARIANTS.items()},
        "models": [*places],
        "cpu_seconds": sum(row["cpu_seconds"] for row in every),
    }
    record = {"meta": records.meta("ablations", **facts), **report(*parts)}
    figures = {
        "ablations": partial(patterns_figure, tasks="process"),
        "ablations-trained": partial(patterns_figure, tasks="own"),
    }
    records.finish("ablations", record, markdown, args.quick, figures)


if __name__ == "__main__":
    main()
