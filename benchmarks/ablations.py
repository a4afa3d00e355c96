"""`python -m benchmarks.ablations`: what ablations say of the solver that a model runs.

It takes 11 minutes of one core; `--folder` keeps what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import ablations_models as models, records
from benchmarks.ablations_models import CANDIDATES, EFFECTS, KIND, NAMES, PARTS, REPLACED, RIVALS
from icl_krr.experiments.shared.runs import load
from icl_krr.experiments.solverbench.score import Share
from icl_krr.experiments.solverbench.settings import LINEAR, PROCESS, Setting, setting
from icl_krr.files import to_markdown
from icl_krr.plots.style import COLORS, legend
from icl_krr.probes.resampling import INTERVAL_QUANTILES, paired_differences, resamples

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

RANGE = (1e-3, 1e3)
"""Effects are cut to this range: an effect below it is none."""
PLACES = 6
"""Relative depths at which patterns of models with different depths are compared."""
NOTABLE = np.log10(1.05)
"""An effect of less than 5 % is not counted as one in statements."""
SETS = {"whole layers": ("layer",), "heads": ("heads",), "heads, MLP, whole layers": PARTS}

Record = dict[str, Any]


class Work:
    """Where measurements are kept, and their sizes."""

    def __init__(self, folder: Path, quick: bool):
        self.folder = folder
        self.sizes = QUICK_SIZES if quick else SIZES
        self.names = QUICK_NAMES if quick else NAMES
        labels = ("base", "ridge x 10") if quick else models.VARIANTS
        self.variants = {label: models.VARIANTS[label] for label in labels}
        self.families = (LINEAR,) if quick else (LINEAR, PROCESS)

    def kept(self, words: str, make: Callable[[], Any]) -> Any:
        print(words, flush=True)
        return records.kept(self.folder / f"{words.replace(' ', '-')}.json", make)

    def known(self) -> list[Record]:
        """All constructions on SolverBench's tasks, in all their variants."""
        rows = []
        for family in self.families:
            for label, variant in self.variants.items():
                one = setting(family, models.config_of(variant, self.sizes))
                for name in self.names:
                    make = partial(built, name, one, variant, label == "base")
                    if found := self.kept(f"known {family} {name} {label}", make):
                        rows.append({"family": family, "variant": label, "solver": name, **found})
        return rows

    def trained(self, folders: list[Path]) -> list[Record]:
        """Trained runs, each with all constructions on its tasks and of its depth."""
        rows = []
        for where in folders:
            run, name = load(where), where.name
            steps = run.model.steps
            own = models.run_setting(run, steps, self.sizes, None)
            found = self.kept(f"trained {name}", partial(models.measure, run.model, own, True))
            key = sha256(f"{own.family} {steps}".encode()).hexdigest()[:12]
            beside = []
            for label, condition in RIDGES.items():
                one = models.run_setting(run, steps, self.sizes, condition) if condition else own
                for solver in self.names:
                    make = partial(built, solver, one, models.Variant(), False)
                    if other := self.kept(f"beside {key} {solver} {label}", make):
                        beside.append({"variant": label, "solver": solver, **other})
            rows.append({"model": name, **found, "beside": beside})
        return rows


class Effects(NamedTuple):
    """Logarithms (base 10) of the effects of a model, of all tasks first, then of resamples.

    `logs` has [1 + resamples, parts, L] for (replaced by, effect); `profile`, if any, and `ratio`
    are errors of a linear probe [1 + resamples, L + 1] and of the model, over those of exact KRR.
    """

    logs: dict[tuple[str, str], np.ndarray]
    profile: np.ndarray | None
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
    profile = None
    if "profile" in row:
        profile = (weights @ np.asarray(row["profile"])) / exact[:, None]
    return Effects(logs, profile, (weights @ intact["target"]) / exact)


def at_places(logs: np.ndarray) -> np.ndarray:
    """A pattern [..., L] at `PLACES` relative depths, interpolated between the layers."""
    layers = logs.shape[-1]
    where = (np.arange(PLACES) + 0.5) / PLACES * layers - 0.5
    below = np.clip(np.floor(where), 0, layers - 1).astype(int)
    above = np.minimum(below + 1, layers - 1)
    share = np.clip(where - below, 0, 1)
    return (1 - share) * logs[..., below] + share * logs[..., above]


def pattern(found: Effects, key: tuple[str, str], parts: Iterable[str]) -> np.ndarray:
    """The pattern [1 + resamples, numbers] of some parts at common relative depths."""
    chosen = found.logs[key][:, [PARTS.index(part) for part in parts]]
    return at_places(chosen).reshape(len(chosen), -1)


class Nearest(NamedTuple):
    """The solver with the nearest pattern, its distance (root mean square), and the other names."""

    name: str
    distance: float
    others: dict[str, float]  # distances of all names
    as_near: list[str]  # names that paired intervals do not tell from the nearest


def nearest(own: np.ndarray, by_name: dict[str, list[np.ndarray]]) -> Nearest:
    """Compare a pattern with the patterns of each name, of which the nearest counts."""
    distances = np.stack([
        np.min([np.sqrt(np.mean((own - other) ** 2, axis=1)) for other in others], axis=0)
        for others in by_name.values()
    ])  # fmt: skip
    names, every = list(by_name), np.ones(len(by_name), bool)
    found = paired_differences(distances[:, :1], distances[:, None, 1:], every)
    near = [name for name, low in zip(names, found.low[:, 0], strict=True) if low <= 0]
    each = dict(zip(names, distances[:, 0].tolist(), strict=True))
    return Nearest(names[found.leader], each[names[found.leader]], each, near)


def by_solver(patterns: list[np.ndarray], names: list[str]) -> dict[str, list[np.ndarray]]:
    found: dict[str, list[np.ndarray]] = {}
    for name, one in zip(names, patterns, strict=True):
        found.setdefault(name, []).append(one)
    return found


def add_case(line: list[int], holds: bool | None) -> None:
    """Count a case [holds, all]; None is no case."""
    if holds is not None:
        line[0] += bool(holds)
        line[1] += 1


class Score(NamedTuple):
    """How often the nearest pattern of another setting belongs to the same solver."""

    right: Share
    alone: Share  # right, and no other solver is as near
    lone: Share  # right, of those models for which no other solver is as near as the nearest
    among: Share  # the right solver is among those that are as near
    size: float  # mean number of solvers that are as near, the nearest included
    said: dict[str, dict[str, int]]  # {solver: {nearest solver: count}}
    by_variant: dict[str, list[int]]  # {variant of the model: [right, models]}
    within: float  # 95 % quantile of the distances between settings of one solver
    between: float  # 5 % quantile of the distances between settings of different solvers


Patterns = list[np.ndarray]


def offers(
    rows: list[Record], patterns: Patterns, i: int, other_family: bool = False
) -> dict[str, Patterns]:
    """The patterns of all other settings than that of a model, by solver."""
    kept = [
        (other["solver"], one)
        for other, one in zip(rows, patterns, strict=True)
        if (other["family"] != rows[i]["family"]) == other_family
        and (other_family or other["variant"] != rows[i]["variant"])
    ]
    return by_solver([one for _, one in kept], [name for name, _ in kept])


def confusion(
    rows: list[Record],
    patterns: Patterns,
    other_family: bool = False,
    names: tuple[str, ...] = CANDIDATES,
) -> Score:
    """Leave one setting out: name each model by the nearest pattern of all other settings.

    With `other_family`, the patterns are those of models on the other family of tasks, and solvers
    that this family does not have are not asked for.
    """
    said: dict[str, dict[str, int]] = {}
    by_variant: dict[str, list[int]] = {}
    rights, near, among, within, between = [], [], [], [], []
    for i, row in enumerate(rows):
        offered = offers(rows, patterns, i, other_family)
        for name, others in offered.items():
            gaps = [np.sqrt(np.mean((patterns[i][0] - one[0]) ** 2)) for one in others]
            (within if name == row["solver"] else between).extend(gaps)
        if row["solver"] not in names or row["solver"] not in offered:
            continue
        one = nearest(patterns[i], offered)
        line = said.setdefault(row["solver"], {})
        line[one.name] = line.get(one.name, 0) + 1
        rights.append(one.name == row["solver"])
        near.append(len(one.as_near))
        among.append(row["solver"] in one.as_near)
        add_case(by_variant.setdefault(row["variant"], [0, 0]), rights[-1])
    lone = [right for right, count in zip(rights, near, strict=True) if count == 1]
    return Score(
        Share.of(sum(rights), len(rights)),
        Share.of(sum(lone), len(rights)),
        Share.of(sum(lone), len(lone)),
        Share.of(sum(among), len(rights)),
        float(np.mean(near)),
        said,
        by_variant,
        float(np.quantile(within, 0.95)),
        float(np.quantile(between, 0.05)),
    )


def strangers(rows: list[Record], patterns: Patterns, limit: float) -> dict[str, list[int]]:
    """Models whose solver is not offered: how many are given the name of one candidate alone.

    These are models that run no candidate, and candidates without the patterns of their own solver.
    A name counts if its distance is at most `limit` and no other candidate is as near.
    """
    found: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        offered = offers(rows, patterns, i)
        offered = {n: o for n, o in offered.items() if n in CANDIDATES and n != row["solver"]}
        one = nearest(patterns[i], offered)
        named = len(one.as_near) == 1 and one.distance <= limit
        add_case(found.setdefault(KIND[row["solver"]], [0, 0]), named)
    return found


def interval(values: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of values of which the first is that of all tasks."""
    low, high = np.quantile(values[1:], INTERVAL_QUANTILES)
    return float(low), float(high)


def above(values: np.ndarray, least: float = NOTABLE) -> bool:
    """Whether the value of all tasks is at least `least` and its interval lies above 0."""
    return bool(values[0] >= least and interval(values)[0] > 0)


def of_part(found: Effects, part: str, effect: str, replaced: str) -> np.ndarray:
    return found.logs[replaced, effect][:, PARTS.index(part)]


def heads_most(found: Effects, replaced: str) -> bool:
    gap = of_part(found, "heads", "change", replaced) - of_part(found, "units", "change", replaced)
    return above(np.mean(gap, axis=1))


def hurts(part: str, least: float) -> Callable[[Effects, str], bool]:
    def holds(found: Effects, replaced: str) -> bool:
        logs = of_part(found, part, "target", replaced)
        return float(np.mean([above(one) for one in logs.T])) >= least

    return holds


def trend(sign: int) -> Callable[[Effects, str], bool]:
    def holds(found: Effects, replaced: str) -> bool:
        logs = of_part(found, "layer", "change", replaced)
        half = logs.shape[1] // 2
        late = np.mean(logs[:, -half:], axis=1) - np.mean(logs[:, :half], axis=1)
        return above(sign * late)

    return holds


def falls(found: Effects, replaced: str) -> bool | None:
    if found.profile is None:
        return None
    return bool(np.all(np.diff(found.profile[0]) < 0))


STATEMENTS: dict[str, Callable[[Effects, str], bool | None]] = {
    "removing the heads of a layer changes the predictions more than removing its MLP": heads_most,
    "removing the heads hurts, in most layers": hurts("heads", 0.5),
    "removing the MLP hurts, in most layers": hurts("units", 0.5),
    "removing any layer hurts": hurts("layer", 1.0),
    "late layers matter less": trend(-1),
    "late layers matter more": trend(1),
    "the error of a linear probe falls at every layer": falls,
}
"""Statements about a model, by what decides them from its effects and the kind of removal."""


def built(name: str, one: Setting, variant: models.Variant, profile: bool) -> Record | None:
    model = models.build(name, one, variant.slower, variant.form)
    return None if model is None else models.measure(model, one, profile)


def scores(rows: list[Record], found: list[Effects]) -> list[Record]:
    """The confusion of every kind of pattern; the main one comes first."""
    kinds = [(replaced, effect) for replaced in REPLACED for effect in EFFECTS]
    both, made = len({row["family"] for row in rows}) > 1, []
    for key in sorted(kinds, key=lambda kind: kind != MAIN):
        for name, parts in reversed(SETS.items()):
            patterns = [pattern(one, key, parts) for one in found]
            own = confusion(rows, patterns)
            away = confusion(rows, patterns, other_family=True) if both else None
            shares = {"right": own.right, "lone": own.lone, "among": own.among}
            shares["other family"] = Share.of(0, 0) if away is None else away.right
            made.append({
                "set": name,
                "replaced": key[0],
                "effect": key[1],
                **{word: [share.cases, share.total] for word, share in shares.items()},
                "strangers": strangers(rows, patterns, own.within),
                "size": own.size,
                "by variant": own.by_variant,
                "within": own.within,
                "between": own.between,
            })  # fmt: skip
    return made


def compared(row: Record, limits: dict[str, float]) -> Record:
    """The constructions whose patterns are nearest to a trained model's."""
    own = effects_of(row)
    others = [effects_of(other) for other in row["beside"]]
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
    """The changes of the predictions with zeros in place of a part."""
    changes = (10 ** effects_of(row).logs[MAIN][0]).tolist()
    return {"model": model, "tasks": tasks, "change": dict(zip(PARTS, changes, strict=True))}


def stated(known: list[Record], trained: list[Record]) -> list[Record]:
    """How many models each statement is true of, [cases, models]."""
    every = [(row["solver"], effects_of(row)) for row in known]
    learnt = [effects_of(row) for row in trained]
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


def report(known: list[Record], trained: list[Record]) -> Record:
    """Everything that the tables and the figure show."""
    found = scores(known, [effects_of(row) for row in known])
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
    candidates = [name for name in CANDIDATES if name in record["statements"][0]["known"]]
    header = ["statement", "trained", *map(shown, candidates)]
    header += ["other solvers", "no solver"]
    lines = []
    for one in record["statements"]:
        cells = [f"{one['trained'][0]}/{one['trained'][1]}"]
        groups = [(name,) for name in candidates]
        groups += [RIVALS, tuple(name for name in NAMES if KIND[name] == "no solver")]
        for names in groups:
            found = [one["known"][name] for name in names if name in one["known"]]
            cases, total = (sum(pair[k] for pair in found) for k in (0, 1))
            cells.append(f"{cases}/{total}" if total else "-")
        lines.append([one["statement"], *cells])
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
    folders = [*map(records.folder_of, SHIPPED[1:2] if asked.quick else SHIPPED)]
    with records.workplace(asked) as folder:
        work = Work(folder, asked.quick)
        known, trained = work.known(), work.trained(folders)
    every = [*known, *trained, *(other for row in trained for other in row["beside"])]
    facts = {
        "seed": SEED,
        "dtype": "float64",
        "sizes": SIZES,
        "resamples": RESAMPLES,
        "variants": {name: one._asdict() for name, one in models.VARIANTS.items()},
        "models": [where.name for where in folders],
        "cpu_seconds": sum(row["cpu_seconds"] for row in every),
    }
    record = {"meta": records.meta("ablations", **facts), **report(known, trained)}
    records.finish("ablations", record, markdown(record), asked.quick)
    if not asked.quick:
        records.draw("ablations", ablations_figure(record))


if __name__ == "__main__":
    main()
