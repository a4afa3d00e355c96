"""`python -m benchmarks.fast_weights_naming`: does `identify` tell the rules of fast weights apart?

It asks of models of known rule, then of trained decoders: an hour of one core, kept in `--folder`.
"""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import icl_krr as ik
from benchmarks import records
from benchmarks.fitted import QUICK, fitted
from benchmarks.records import Row as Record, grouped
from benchmarks.streams import SLOW, changed
from icl_krr import experiments
from icl_krr.catalogue import SOLVERS, Box, candidate, register
from icl_krr.experiments import Cell, Lines, Recipe, Study, draw_tasks, project, to_markdown
from icl_krr.experiments.identify import run_oracle
from icl_krr.probes import CandidateFit, Identification, identify, identify_streams, layerwise
from icl_krr.training import Training

GATE = 0.1
RULES: dict[str, dict[str, float]] = {
    "delta_rule": {"step_size": 0.15},
    "momentum_delta_rule": {"step_size": 0.08, "momentum": 0.6},
    "implicit_delta_rule": {"step_size": 0.5},
    "preconditioned_delta_rule": {"step_size": 0.5, "initial": 2.0},
    "kalman_delta_rule": {"ridge": 0.5, "process_noise": 0.02},
    "prefix_conjugate_gradient": {"ridge": 0.5},
}
"""The rules, with the parameters of the models that run them."""
BATCH = ("gradient_descent", "conjugate_gradient")
OWN, PLAIN, ROTATED = "own readout", "stream", "rotated stream"
READINGS = (OWN, PLAIN, ROTATED)
FEATURES, SUPPORTS, QUERIES, LAYERS, TASKS = 5, 14, 4, 4, 24
EDGES: dict[str, tuple[str, dict[str, float]]] = {
    **{
        f"momentum {value:g}": ("momentum_delta_rule", {"step_size": 0.15, "momentum": value})
        for value in (0.001, 0.01, 0.1)
    },
    "implicit steps on a sphere": ("implicit_delta_rule", {"step_size": 0.5}),
    "plain steps on a sphere": ("delta_rule", {"step_size": 0.15}),
    "initial curvature 10000": ("preconditioned_delta_rule", {"step_size": 1500.0, "initial": 1e4}),
    "process noise 100": ("kalman_delta_rule", {"ridge": 0.5, "process_noise": 100.0}),
    "converged": ("prefix_conjugate_gradient", {"ridge": 0.5}),
}
"""Models near the edge between two rules, {words: (rule, parameters)}."""
BARE = "attention only"
DECODERS = ("linear-decoder-linear-2", "linear-decoder-linear-5", BARE)


class Case(NamedTuple):
    """A model of known rule: with a log gate of -GATE, one of `READINGS`, and of `EDGES` or ""."""

    rule: str
    gated: bool = False
    noise: float = 0.0
    seed: int = 0
    reading: str = OWN
    edge: str = ""


def cases() -> list[Case]:
    every = [
        Case(rule, gated, noise, seed)
        for seed in (0, 1)
        for noise in (0.0, 0.1)
        for gated in (False, True)
        for rule in RULES
    ]
    every += [Case(rule, edge=name) for name, (rule, *_) in EDGES.items()]
    every += [
        Case(rule, gated, 0.1, 0, reading)
        for reading, gated in ((ROTATED, False), (ROTATED, True), (PLAIN, False))
        for rule in RULES
        if rule != SLOW or (reading, gated) == (ROTATED, False)
    ]
    return every


def with_gate(values: dict[str, Any]) -> dict[str, Any]:
    """The keywords of a rule with a gate, from fitted values, which are positive."""
    others = {n: v for n, v in values.items() if n != "forgetting"}
    return others | {"log_gate": -values["forgetting"]}


def register_gated() -> None:
    """Add a row with a gate for each rule: `identify` then fits its log gate, too."""
    for name in RULES:
        row = SOLVERS[name]
        fitted = {n: b for n, b in (row.fitted or {}).items() if n != "decay"}
        kwargs = {
            "name": f"gated_{name}",
            "label": f"g{row.label}",
            "fitted": fitted | {"forgetting": Box(-3, 0.3)},
            "keywords_of": with_gate,
            "contains": (name, *row.contains, *(f"gated_{one}" for one in row.contains)),
        }
        register(dataclasses.replace(row, **kwargs))


def candidate_names() -> tuple[str, ...]:
    return (*RULES, *(f"gated_{name}" for name in RULES), *BATCH)


def tasks_of(noise: float, seed: int, sphere: bool, count: int) -> tuple[ik.Task, ik.Task]:
    """Tasks to fit and tasks to score; on a sphere, all inputs have length 1."""
    sizes: Record = {"num_features": FEATURES, "num_supports": SUPPORTS, "num_queries": QUERIES}
    family = ik.tasks.LinearRegression(**sizes, noise=noise)
    key = jax.random.fold_in(jax.random.key(seed), 50)
    tasks = draw_tasks(key, count, family).replace(y_query=None)
    return halves(jax.vmap(partial(project, sphere=jnp.array(sphere)))(tasks))


def halves(tasks: ik.Task) -> tuple[ik.Task, ik.Task]:
    return jax.tree.map(lambda leaf: leaf[::2], tasks), jax.tree.map(lambda leaf: leaf[1::2], tasks)


def model_of(case: Case) -> tuple[ik.Transformer, jax.Array]:
    """The construction, and the steps that count as its layers.

    The answer of a rule that takes in one support a step is known after the last: its layers repeat
    it. Conjugate gradient has one step for each layer, or has converged before the first.
    """
    row = SOLVERS[case.rule]
    kwargs = EDGES[case.edge][1] if case.edge else RULES[case.rule]
    kwargs = kwargs | ({"log_gate": -GATE} if case.gated else {})
    repeats = row.sequential or case.edge == "converged"
    steps = SUPPORTS if repeats else LAYERS
    model = ik.constructions.lookup(row)(ik.Linear(), num_features=FEATURES, steps=steps, **kwargs)
    return model, jnp.array([0, *[steps] * LAYERS] if repeats else [*range(LAYERS + 1)])


def identified(case: Case, count: int) -> Record:
    """Identify a model of known rule."""
    began = time.perf_counter()
    with jax.enable_x64(True):
        tasks = tasks_of(case.noise, case.seed, case.edge.endswith("sphere"), count)
        model, at = model_of(case)
        kwargs: Record = {
            "candidates": candidate_names(), "kernels": ("linear",), "steps": 2 * LAYERS,
            "seed": case.seed,
        }  # fmt: skip
        if case.reading == OWN:
            result = identify(lambda task: layerwise(model, task)[at], *tasks, **kwargs)
        else:
            reader = partial(changed, ik.dense(model), at, turn(case))
            result = identify_streams(reader, *tasks, **kwargs)
    return {**case._asdict(), **row_of(result), "seconds": time.perf_counter() - began}


def turn(case: Case) -> Callable[[ik.Task, jax.Array], jax.Array]:
    """What is done to the streams: nothing, or a rotation.

    The streams are rotated, and not the weights: a model whose weights are rotated divides rounding
    errors by rounding errors at tokens where its divisors should be 0.
    """
    if case.reading == PLAIN:
        return lambda task, streams: streams
    key = jax.random.fold_in(jax.random.key(case.seed), 51)
    return lambda task, h: h @ jax.random.orthogonal(key, h.shape[-1], dtype=h.dtype)


def row_of(result: Identification) -> Record:
    return {
        "status": result.status,
        "remain": result.remain,
        "tied": result.tied,
        "candidates": [
            {"name": one.fit.candidate, **means(one.distances)} for one in result.candidates
        ],
    }


def means(spaces: Any) -> Record:
    return {space: part.mean for space, part in spaces.items()}


def decoders(quick: bool) -> dict[str, Recipe]:
    """Recipes of decoders with linear attention: of two depths, and one without anything else."""
    task = experiments.TaskRecipe("linear", 3, 12, 1, noise=0.05)
    training = Training(2000, learning_rate=0.002, loss="every", log_every=500, validation=2048)
    shallow, deep = (experiments.ModelRecipe("decoder", "linear", 32, depth) for depth in (2, 5))
    bare = dataclasses.replace(shallow, layer_norm=False, hidden=0)
    models = dict(zip(DECODERS, (shallow, deep, bare), strict=True))
    if quick:
        models, training = {BARE: bare}, dataclasses.replace(training, **QUICK)
    return {name: Recipe(task, model, training) for name, model in models.items()}


def answered(folder: Path, seed: int, count: int) -> Record:
    """Ask of a trained decoder which rule it runs: by its answers, and by its streams.

    Rules with a gate are not asked of streams, where a fit of what is far takes minutes.
    """
    trained_run, progress = experiments.load(folder), partial(print, "   ", flush=True)
    with jax.enable_x64(True):
        family: Any = dataclasses.replace(trained_run.family, num_queries=QUERIES)  # pyright: ignore
        drawn = draw_tasks(jax.random.key(seed), count, family).replace(y_query=None)
        fitted, scored = halves(drawn)
        model = jax.tree.map(lambda leaf: jnp.asarray(leaf, drawn.x.dtype), trained_run.model)

        def predictions(task: ik.Task) -> jax.Array:
            last = layerwise(model, task)[-1]
            return jnp.stack([0 * last, *[last] * LAYERS])

        kwargs: Record = {"kernels": ("linear",), "seed": seed, "progress": progress}
        names = candidate_names()
        result = identify(predictions, fitted, scored, candidates=names, steps=2 * LAYERS, **kwargs)
        row = row_of(result)
        row["baselines"] = {name: means(spaces) for name, spaces in result.baselines.items()}
        ours = ik.map_tasks(partial(ik.predict_along, model), scored)
        for one, candidate_result in zip(row["candidates"], result.candidates, strict=True):
            one["along"] = along_distance(candidate_result.fit, scored, ours)
        row["exact along"] = away(ours, ik.map_tasks(partial(exact_along, family), scored), family)
        kwargs |= {"candidates": (*RULES,), "steps": 2 * model.depth}
        by_stream = identify_streams(model, fitted, scored, **kwargs)
    return {**row, "by stream": row_of(by_stream)}


def along_distance(fit: CandidateFit, tasks: ik.Task, predictions: jax.Array) -> float | None:
    """The distance of answers at all supports to those of a rule, with its fitted parameters."""
    row = candidate(fit.candidate)
    if not row.causal:
        return None
    step = -1 if row.sequential else max(fit.alignment)

    def along(task: ik.Task) -> jax.Array:
        return run_oracle(row, fit.kernel, jnp.asarray(fit.logs), task, 2 * LAYERS).along[step]

    return away(predictions, ik.map_tasks(along, tasks), tasks)


def exact_along(family: Any, task: ik.Task) -> jax.Array:
    """Ridge regression on every prefix, with the ridge of the family."""
    kernel, ridge = family.optimal()
    steps = task.num_features + 1
    return ik.solvers.prefix_conjugate_gradient(kernel, task, ridge=ridge, steps=steps).along[-1]


def away(ours: jax.Array, other: jax.Array, sizes: Any) -> float:
    """The relative distance at the supports after the first, over all tasks."""
    at = slice(1, sizes.num_supports)
    return float(jnp.linalg.norm(ours[:, at] - other[:, at]) / jnp.linalg.norm(ours[:, at]))


def markdown(record: Record) -> str:
    """All tables."""
    parts, rows, learnt = [], record["known"], record["trained"]
    edges, plain = ([row for row in rows if bool(row["edge"]) == at] for at in (True, False))
    for reading, reading_rows in grouped(plain, itemgetter("reading")).items():
        parts += [f"## Known rules, {reading}\n", to_markdown(confusion(reading_rows))]
    parts += ["## How far the others are\n", to_markdown(separation(plain))]
    if edges:
        parts += ["## Near the edge between two rules\n", to_markdown(edge_table(edges))]
    if learnt:
        parts += ["## Trained decoders with linear attention\n", to_markdown(decoder_table(learnt))]
    return "\n".join(parts)


def short(name: str) -> str:
    return name.replace("_rule", "").replace("_", " ")


def truth(row: Record) -> str:
    return f"gated_{row['rule']}" if row["gated"] else row["rule"]


def verdict(row: Record) -> str:
    """The column of a model in the confusion matrix."""
    if row["status"] in ("identified", "not distinguishable"):
        return " or ".join(map(short, row["remain"]))
    return row["status"]


def confusion(rows: list[Record]) -> Lines:
    """What a model runs, and how often each verdict was given."""
    names = [f"{gate}{name}" for gate in ("", "gated_") for name in (*RULES, *BATCH)]
    verdicts = {*map(verdict, rows)}
    columns = [short(name) for name in names if short(name) in verdicts]
    columns += sorted(verdicts - {*columns})
    runs = sorted(grouped(rows, truth).items(), key=lambda group: names.index(group[0]))
    lines = [
        [short(name), *(str([*map(verdict, rule_rows)].count(one) or "") for one in columns)]
        for name, rule_rows in runs
    ]
    return ["runs", *columns], lines


def distance(one: Record) -> float:
    """The larger of the distances in both spaces."""
    return max(value for space, value in one.items() if space in SPACES and value is not None)


SPACES = ("prediction", "hat", "state", "innovation")


def separation(rows: list[Record]) -> Lines:
    """How far each model is from its rule, and from the nearest rule that does not contain it."""
    lines = []
    for (reading, name), models in grouped(rows, lambda r: (r["reading"], truth(r))).items():
        largest, others = 0.0, []
        for row in models:
            distances = {one["name"]: distance(one) for one in row["candidates"]}
            largest = max(largest, distances[name])
            same = {name, *(one for one in distances if name in candidate(one).contains)}
            others += [(gap, other) for other, gap in distances.items() if other not in same]
        plain = [one for one in others if not one[1].startswith("gated_")]
        first, without = min(others), min(plain)
        cells = [f"{short(other)} {gap:.2g}" for gap, other in (first, without)]
        lines.append([reading, short(name), f"{largest:.2g}", *cells])
    return ["read by", "runs", "its rule", "nearest other", "nearest other without a gate"], lines


def edge_table(rows: list[Record]) -> Lines:
    lines = []
    for row in rows:
        nearest = sorted(row["candidates"], key=distance)[:4]
        cells = ", ".join(f"{short(one['name'])} {distance(one):.1g}" for one in nearest)
        names = ", ".join(map(short, row["remain"])) or ", ".join(row["tied"])
        lines.append([f"{short(row['rule'])}, {row['edge']}", row["status"], names, cells])
    return ["runs", "status", "remain, or as near", "nearest"], lines


def decoder_table(rows: list[Record]) -> Lines:
    header = ["decoder, seed", "error / exact", "status", "nearest: predictions, hat matrices",
              "the same at all supports", "exact ridge regression there",
              "nearest baseline or null", "by the stream"]  # fmt: skip
    lines = []
    for row in rows:
        best = row["candidates"][0]
        baseline = min(row["baselines"].items(), key=lambda one: distance(one[1]))
        along = "-" if best["along"] is None else f"{best['along']:.2g}"
        stream = row["by stream"]
        first = stream["candidates"][0]
        line = [f"{row['model']}, {row['seed']}", f"{row['ratio']:.3g}", row["status"]]
        line += [f"{short(best['name'])} {best['prediction']:.2g}, {best['hat']:.2g}"]
        line += [along, f"{row['exact along']:.2g}"]
        line += [f"{baseline[0]} {baseline[1]['prediction']:.2g}, {baseline[1]['hat']:.2g}"]
        lines.append([*line, f"{stream['status']}; {short(first['name'])} {distance(first):.2g}"])
    return header, lines


def main() -> None:
    args = records.options(__doc__, folder=True)
    register_gated()
    every, grid, count, top = cases(), decoders(args.quick), TASKS, args.folder
    if args.quick:
        every, count = every[:1], 8

    def read(cell: Cell) -> Record:
        folder = top / f"{cell['model'].replace(' ', '-')}-{cell['seed']}"
        return fitted(grid[cell["model"]], folder) | answered(folder, 7, count)

    settings = {"tasks": count}
    study = Study("known", settings, {"case": every}, lambda cell: identified(cell["case"], count))
    learnt = Study("trained", settings, {"model": grid, "seed": (0,)}, read)
    rows = [row for _, row in records.finished(study, top / "known")]
    trained_rows = [{**cell, **row} for cell, row in records.finished(learnt, top)]
    facts = {
        "seeds": {"tasks": [0, 1], "training": [0]},
        "dtype": "float64; float32 in training",
        "rules": RULES,
        "edges": EDGES,
        "gate": GATE,
        "sizes": {"p": FEATURES, "n": SUPPORTS, "q": QUERIES, "layers": LAYERS, "tasks": TASKS},
        "recipes": {name: dataclasses.asdict(recipe) for name, recipe in grid.items()},
    }
    meta = records.meta("fast_weights_naming", "optax", **facts)
    record = {"meta": meta, "known": rows, "trained": trained_rows}
    records.finish("fast-weights-naming", record, markdown, args.quick)


if __name__ == "__main__":
    main()
