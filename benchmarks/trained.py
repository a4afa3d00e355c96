"""`python -m benchmarks.trained --models FOLDERS`: what do trained models run, by every reading?

The folders are those of `benchmarks.decoders` and `benchmarks.subjects`; 1 to 3 minutes a model.
"""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure

from benchmarks import records
from benchmarks.profiles import HOWS, Row, least, share, short, with_null
from icl_krr import probes
from icl_krr.catalogue import SOLVERS, compared
from icl_krr.experiments import Cell, Lines, Study, identify, load, to_markdown
from icl_krr.experiments.identify import IDENTIFIED, NEAR, NULLS, TIED
from icl_krr.kernels import name_of
from icl_krr.plots import COLORS, legend
from icl_krr.probes import Identification, effective, fit_probe, layerwise
from icl_krr.tasks import map_tasks
from icl_krr.training import reference
from icl_krr.transformer import Transformer

SIZES: dict[str, Any] = {"tasks": 16, "probe_tasks": 256, "num_queries": 4, "seed": 0}
STEPS = 2
"""Steps of a solver for each layer."""
FEW = 12
"""Tasks that fit what is decoded from the streams, and as many that score it."""
QUICK: dict[str, Any] = {"tasks": 4, "probe_tasks": 16, "num_queries": 2, "seed": 0}
QUICK_NAMES = ("gradient_descent",)

NAMED = (IDENTIFIED, NEAR, TIED)
IN_STREAMS = tuple(name for name in compared("gaussian") if not SOLVERS[name].contains)
"""Solvers whose steps are decoded from the streams. Heavy ball's and Chebyshev's differ from those
of gradient descent by a factor after the first step, and take several times as long to fit."""
PRECONDITIONED = {
    "richardson (preconditioned)": ("richardson",),
    "richardson or preconditioned_chebyshev": ("richardson", "preconditioned_chebyshev"),
}
PARTS = ("probe", "streams")
DECODERS = "GPT-2-style decoders"
NAMES_OF_GROUPS = (DECODERS, "second grid, Gaussian processes", "second grid, linear functions")
ABOUT = """\
`python -m benchmarks.trained` reads trained models in every way that the library has. Candidates:
{probe} (of the streams: {streams}). Kernel width, ridge and step size
of each are fitted anew for every reading.

- profile: the nearest solver by its errors, layer by layer (`icl-krr identify --protocol
  error-profile`), for two measures and two alignments. A linear probe reads each layer.
- probe: the nearest solver by predictions and hat matrices of these probes (`identify`).
- state, innovation: the nearest solver whose steps, or changes of steps, linear maps decode from
  the stream (`identify_streams`); a distance of 1 says nothing, 0.01 is close.
- use: the verdict of `identify_streams` with all its controls and, if a solver is left, the test
  whether the model's answer follows its decoded steps.
- filter: ridge and kernel width of the exact regression whose hat matrix is nearest to that of the
  model's own prediction, over those of the tasks, and its distance.
- Controls: nulls that run no solver, and a model of the same shape with random weights.
- A probe reads every layer but the last, where the model itself predicts. A model with random
  weights is read by a probe of its last layer, too.
- Preconditioned Chebyshev is no candidate on linear functions, where Richardson has the
  exponential kernel and the streams are compared with two solvers. Newton-Schulz is none on
  Gaussian processes. "error / exact" is that of the 16 tasks that are scored.
"""


def names_and_distances(result: Identification) -> Row:
    """The verdict, every candidate with its distances, the nearest first, and the controls."""
    mean = lambda spaces: {space: part.mean for space, part in spaces.items()}  # noqa: E731
    return {
        "status": result.status,
        "remain": result.remain,
        "candidates": {one.fit.candidate: mean(one.distances) for one in result.candidates},
        "controls": {name: mean(spaces) for name, spaces in result.baselines.items()},
    }


def examine(where: Path, sizes: Row, names: tuple[str, ...]) -> Row:
    """Read one model in all ways."""
    began, run, config = time.perf_counter(), load(where), identify.IdentifyConfig(**sizes)
    family, key = identify.family_of(run, config), jax.random.key(config.seed)
    probing, scored, fitted = identify.tasks_of(run, config)
    best = reference(family, jax.random.fold_in(key, 4))
    name, system = name_of(best.kernel), (best.kernel, float(best.ridge))
    kernels, steps = (name, "exponential"), STEPS * run.model.steps
    both = [identify.profile_targets(tasks, *system) for tasks in (fitted, scored)]
    values = identify.exact_hyperparameters(*system)
    protocol = identify.Protocol(both, kernels, steps, values, config.seed, names)
    model = identify.in_dtype_of_tasks(run.model, fitted)
    other = identify.untrained(model, fitted, jax.random.fold_in(key, 3))
    assert isinstance(other, Transformer)
    layers = partial(layerwise, model, probe=fit_probe(model, probing))
    record: Row = {"exact": best.losses(scored)["exact"]}
    readouts = {"model": layers, "untrained": identify.read_by_probe(other, probing)}
    for words, predictions in readouts.items():
        run_on = jax.jit(partial(map_tasks, predictions))
        last = identify.run_model(predictions, fitted, scored).hats[:, -1]
        gap = effective("regression", name, scored, last)["distance"] if np.any(last) else None
        record[words] = short(protocol.read([run_on(part.tasks) for part in both]))
        record[words]["filter"] = gap
    kwargs: Any = {"candidates": names, "kernels": kernels, "steps": steps, "seed": config.seed}
    result = probes.identify(layers, fitted, scored, system=system, **kwargs)
    record["probe"] = names_and_distances(result)
    few = (jax.tree.map(lambda leaf: leaf[:FEW], part.tasks) for part in both)
    kwargs |= {"kernels": (name,), "candidates": tuple(n for n in names if n in IN_STREAMS)}
    record["streams"] = names_and_distances(probes.identify_streams(model, *few, **kwargs))
    return record | {"seconds": time.perf_counter() - began}


def group_of(name: str) -> str:
    return NAMES_OF_GROUPS[0 if "-depth" in name else 1 if name.startswith("gp-") else 2]


def nearest_far(reading: Row) -> float:
    return reading["distances"][reading["nearest"]]


def nearest(record: Row, *spaces: str) -> tuple[str, float]:
    """The candidate with the least distance in these spaces, and the mean of its distances."""
    sizes = {
        name: sum(distances[space] for space in spaces) / len(spaces)
        for name, distances in record["candidates"].items()
    }
    best = min(sizes, key=lambda name: sizes[name])
    return best, sizes[best]


SPACES = {
    "predictions of a probe": ("probe", "prediction"),
    "hat matrices of a probe": ("probe", "hat"),
    "state": ("streams", "state"),
    "innovation": ("streams", "innovation"),
}
READINGS: dict[str, Callable[[Row], str]] = {
    **{f"profile: {how}": lambda row, how=how: row["model"][how]["nearest"] for how in HOWS},
    "probe": lambda row: nearest(row["probe"], "prediction", "hat")[0],
    "state": lambda row: nearest(row["streams"], "state")[0],
    "innovation": lambda row: nearest(row["streams"], "innovation")[0],
}
"""The nearest solver by each reading, whatever its distance."""


def agree(row: Row) -> bool:
    """Whether all readings have the same nearest solver of those that all of them compare."""
    common, names = [*row["streams"]["candidates"]], set()
    for how in HOWS:
        names.add(min(common, key=lambda name: row["model"][how]["distances"][name]))
    for part, *spaces in (("probe", "prediction", "hat"), SPACES["state"], SPACES["innovation"]):
        here = {name: gap for name, gap in row[part]["candidates"].items() if name in common}
        names.add(nearest({"candidates": here}, *spaces)[0])
    return len(names) == 1


def null_is_nearer(row: Row, how: str) -> bool:
    """Whether a null is nearer than every solver."""
    return least(row["model"][how], NULLS) < nearest_far(row["model"][how])


def nearest_control(row: Row, part: str, space: str) -> float:
    return min(one[space] for one in row[part]["controls"].values() if space in one)


def nearer_than_controls(row: Row, part: str, space: str) -> bool:
    """Whether the nearest solver is nearer than every control."""
    return nearest(row[part], space)[1] < nearest_control(row, part, space)


def grouped(rows: dict[str, Row]) -> dict[str, list[Row]]:
    every = records.grouped(rows, group_of)
    return {n: [rows[name] for name in every[n]] for n in NAMES_OF_GROUPS if n in every}


def by_group(rows: dict[str, Row], key: str, cells: dict[str, Callable[[list[Row]], str]]) -> Lines:
    """A line for every statement, a column for every group of models."""
    groups = grouped(rows)
    header = [key, *(f"{group} ({len(members)})" for group, members in groups.items())]
    return header, [[words, *map(of, groups.values())] for words, of in cells.items()]


def names_table(rows: dict[str, Row]) -> Lines:
    """The nearest solver by each reading: number of models, by group."""

    def counts(members: list[Row], of: Callable[[Row], str]) -> str:
        return ", ".join(f"{name} {n}" for name, n in Counter(map(of, members)).most_common())

    return by_group(rows, "reading", {n: partial(counts, of=of) for n, of in READINGS.items()})


def agreement_table(rows: dict[str, Row]) -> Lines:
    """What can be said of the models of each group, with counts."""
    first = HOWS[0]
    ties = lambda row: row["model"][first]["tied"]  # noqa: E731
    statements: dict[str, Callable[[Row], bool]] = {
        "all four profiles have the same nearest solver": lambda row: (
            len({row["model"][how]["nearest"] for how in HOWS}) == 1
        ),
        "all seven readings have the same nearest solver, of the solvers that all compare": agree,
        **{
            f"{how}: the nearest is {words}{whose}": (
                lambda row, how=how, names=names, of=of: row[of][how]["nearest"] in names
            )
            for how in HOWS[::2]
            for words, names in PRECONDITIONED.items()
            for whose, of in (("", "model"), (", of the untrained model", "untrained"))
        },
        "error, 1:1: richardson is the nearest or as near": lambda row: (
            "richardson" in (row["model"][first]["nearest"], *ties(row))
        ),
        "error, 1:1: one solver for certain, no other and no null as near": lambda row: (
            not ties(row)
        ),
        "error, 1:1: a null, which runs no solver, is as near": lambda row: with_null(
            row["model"][first]
        ),
        **{
            f"{how}: a null is nearer than every solver": partial(null_is_nearer, how=how)
            for how in HOWS
        },
        **{
            f"{words}: the nearest solver is nearer than every control": (
                partial(nearer_than_controls, part=part, space=space)
            )
            for words, (part, space) in SPACES.items()
        },
        "the untrained model has the same nearest solver (error, 1:1)": lambda row: (
            row["model"][first]["nearest"] == row["untrained"][first]["nearest"]
        ),
        "probe: a solver is close (0.1 in predictions and hat matrices)": lambda row: (
            row["probe"]["status"] in NAMED
        ),
        "streams: a solver is named or close": lambda row: row["streams"]["status"] in NAMED,
    }
    shares = {words: lambda members, f=f: share(map(f, members)) for words, f in statements.items()}
    return by_group(rows, "statement", shares)


def distances_table(rows: dict[str, Row]) -> Lines:
    """Median distance of the nearest solver, of the nearest null, and of untrained models."""

    def middle(members: list[Row], of: Callable[[Row], float]) -> str:
        return f"{median(map(of, members)):.2g}"

    def of_profile(members: list[Row], how: str) -> str:
        solver = middle(members, lambda row: nearest_far(row["model"][how]))
        null = middle(members, lambda row: least(row["model"][how], NULLS))
        other = middle(members, lambda row: nearest_far(row["untrained"][how]))
        return f"{solver}; null {null}; untrained {other}"

    def of_space(members: list[Row], part: str, space: str) -> str:
        solver = middle(members, lambda row: nearest(row[part], space)[1])
        control = middle(members, lambda row: nearest_control(row, part, space))
        return f"{solver}; nearest control {control}"

    def of_filter(members: list[Row]) -> str:
        trained = middle(members, lambda row: row["model"]["filter"])
        return f"{trained}; untrained {middle(members, lambda row: row['untrained']['filter'])}"

    names = ("probe: predictions", "probe: hat matrices", "state", "innovation")
    return by_group(
        rows,
        "reading",
        {f"profile: {how} (log10)": partial(of_profile, how=how) for how in HOWS}
        | {
            words: partial(of_space, part=part, space=space)
            for words, (part, space) in zip(names, SPACES.values(), strict=True)
        }
        | {"filter: exact regression, last layer": of_filter},
    )


def models_table(rows: dict[str, Row]) -> Lines:
    """Every model: its error, the nearest solver by each reading, and the verdicts."""
    header = ["model", "error / exact", "profile: error, 1:1", "tied", "error, monotone"]
    header += ["probe", "state", "innovation", "streams, with use", "filter: distance"]
    lines = []
    for name, row in rows.items():
        readings, verdict = row["model"], row["streams"]["status"]
        first, others = readings[HOWS[0]], readings[HOWS[2]]
        leaders = [nearest(row["probe"], "prediction", "hat")]
        leaders += [nearest(row["streams"], space) for space in ("state", "innovation")]
        if verdict in NAMED:
            verdict += f": {', '.join(row['streams']['remain'])}"
        cells = [f"{first['nearest']}, {nearest_far(first):.2g}", ", ".join(first["tied"]) or "-"]
        cells += [f"{others['nearest']}, {nearest_far(others):.2g}"]
        cells += [*(f"{who}, {size:.2g}" for who, size in leaders), verdict]
        error = f"{readings['error'] / row['exact']:.3g}"
        lines.append([name, error, *cells, f"{readings['filter']:.2g}"])
    return header, lines


def distances_figure(record: Row) -> Figure:
    """Every model: the distance of its nearest solver, and that of the nearest control."""
    rows = record["models"]
    figure = Figure(figsize=(12, 4.4), layout="constrained")
    axes = figure.subplots(1, 3)

    def of_profile(row: Row) -> tuple[float, float]:
        return nearest_far(row["model"][HOWS[0]]), least(row["model"][HOWS[0]], NULLS)

    def of_space(row: Row, part: str, space: str) -> tuple[float, float]:
        return nearest(row[part], space)[1], nearest_control(row, part, space)

    panels: dict[str, Callable[[Row], tuple[float, float]]] = {
        "error profile, 1:1 (log10)": of_profile,
        "hat matrices of a linear probe": partial(of_space, part="probe", space="hat"),
        "states decoded from the stream": partial(of_space, part="streams", space="state"),
    }
    for axis, (title, of) in zip(axes, panels.items(), strict=True):
        for (group, members), color in zip(grouped(rows).items(), COLORS, strict=False):
            x, y = zip(*map(of, members), strict=True)
            axis.plot(x, y, "o", color=color, markersize=4, alpha=0.8, label=group)
        axis.axline((1, 1), slope=1, color="black", linewidth=0.8, label="equal")
        axis.set(xscale="log", yscale="log", xlabel="distance of the nearest solver")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.25)
    axes[0].set_ylabel("distance of the nearest control")
    figure.suptitle("Trained models (tasks with seed 0, float64)", fontsize=11)
    legend(figure, *axes)
    return figure


def markdown(record: Row) -> str:
    rows = record["models"]
    tables = {
        "The nearest solver by each reading, whatever its distance (number of models)": names_table,
        "Statements, and of how many models they are true (Wilson's 95 % interval)": (
            agreement_table
        ),
        "Median distances: the nearest solver; its control": distances_table,
        "Models, one by one": models_table,
    }
    by_part = {of: {n for row in rows.values() for n in row[of]["candidates"]} for of in PARTS}
    names = {of: ", ".join(n for n in compared() if n in by_part[of]) for of in PARTS}
    parts = [ABOUT.format(**names), f"{len(rows)} models.\n"]
    parts += [f"{title}:\n\n{to_markdown(make(rows))}\n" for title, make in tables.items()]
    return "\n".join(parts)


def main() -> None:
    models = {"type": Path, "nargs": "*", "default": [], "help": "folders of runs"}
    args = records.options(__doc__, folder=True, models=models)
    folders = [path.parent for top in args.models for path in top.glob("*/model.msgpack")]
    first = lambda path: (path.name[-1], args.models.index(path.parent), path.name)  # noqa: E731
    every, sizes, names = sorted(folders, key=first), SIZES, compared()  # by training seed
    if args.quick:
        sizes, names, every = QUICK, QUICK_NAMES, [records.folder_of("gp-decoder-2d")]
    where, settings = {path.name: path for path in every}, sizes | {"candidates": names}
    if not 0 < len(where) == len(every):
        raise SystemExit("--models must name folders with runs, each of another name")

    def weights(cell: Cell) -> str:
        return sha256((where[cell["model"]] / "model.msgpack").read_bytes()).hexdigest()

    measure = lambda cell: examine(where[cell["model"]], sizes, names)  # noqa: E731
    study = Study("trained", settings, {"model": where}, measure, weights)
    with jax.enable_x64(True):
        folders = records.finished(study, args.folder)
    rows = {cell["model"]: row for cell, row in folders}
    facts = {"dtype": "float64", "sizes": SIZES, "steps of a solver per layer": STEPS}
    record = {"meta": records.meta("trained", **facts), "models": records.rounded(rows)}
    records.finish("trained", record, markdown, args.quick, {"trained": distances_figure})


if __name__ == "__main__":
    main()
