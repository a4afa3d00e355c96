"""`python -m benchmarks.profiles`: can errors, layer by layer, tell which solver a model runs?

It reads the models of `benchmarks.streams`: an hour of one core, kept in `--folder`.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import icl_krr as ik
from benchmarks import records, streams
from benchmarks.streams import DISTRACTOR, JUNK, NOISE, PLAIN, RANDOM, Case, name_of, of, said_of
from icl_krr import experiments
from icl_krr.catalogue import compared
from icl_krr.experiments import Lines, identify as identification, solverbench as bench, to_markdown
from icl_krr.experiments.identify import record as whole_record, split_halves

Row = dict[str, Any]
Readout = Callable[[ik.Task], jax.Array]
OWN, FACTOR, PROBE = "its own prediction", "one factor per layer", "a linear probe"
READERS = {
    OWN: "the prediction that the model itself would make after a layer",
    FACTOR: "that prediction times a factor per layer, fitted to the targets: an ideal probe",
    PROBE: "a ridge regression of the targets on all channels, per layer: the published reading",
}
KNOWN = (PLAIN, JUNK, NOISE)
HOWS = ("error, 1:1", "gap, 1:1", "error, monotone", "gap, monotone")
"""Measures and alignments, in the order of the tables."""
OUTCOMES = ("right", "among", "wrong", "certain and wrong")

ABOUT = """\
`python -m benchmarks.profiles` reads models of known solver by their errors alone, as in published
work: read a prediction from every layer, take its mean squared error ("error") or its relative
distance to exact kernel ridge regression ("gap") on 16 tasks, and find the solver whose errors,
step by step, are nearest in log10. Kernel width, ridge and step size of every candidate are tuned
on 16 other tasks. "1:1": step l for layer l. "monotone": no earlier step for a later one, of 12.

- Candidates: {candidates}. Nulls, which run no solver: {nulls}.
- right: the nearest solver is the one that runs. among: it is not, but the one that runs is as near
  beyond chance. certain and wrong: a wrong solver is nearest, and nothing else is as near. a null
  is as near: the errors do not show that any solver runs.
- Read from: {readers}
- Wilson's 95 % intervals of shares. 6 layers, float64. Models are rotated; those with noise have
  every weight multiplied by 1 + level z.
"""


def cases() -> Iterator[Case]:
    yield from streams.solvers(PLAIN, names=compared())
    yield from streams.solvers(PLAIN, one=True)
    for seed in (1, 2):
        yield from streams.solvers(PLAIN, seed=seed, names=compared(), one=True)
    yield from streams.solvers(JUNK, 64, names=compared(), one=True)
    for level in streams.LEVELS:
        yield from streams.solvers(NOISE, level, names=streams.FIRST, one=True)
    yield from streams.others(DISTRACTOR, streams.distractors)
    yield from streams.others(RANDOM, lambda one: streams.randoms(one, 0))


@cache
def protocol_of(family: str, kernel: str, config: bench.BenchConfig) -> identification.Protocol:
    """The protocol on the tasks of a family, with the kernel of the model first."""
    one = streams.setting_of(family, config)
    kernel_object = one.kernel(kernel)
    ridge, halves = one.ridge(kernel_object), split_halves(one.tasks)
    both = [identification.profile_targets(tasks, kernel_object, ridge) for tasks in halves]
    kernels = dict.fromkeys((kernel, *bench.FAMILY_KERNELS[family]))
    values = identification.exact_hyperparameters(kernel_object, ridge)
    return identification.Protocol(both, tuple(kernels), 2 * config.steps, values, config.seed)


def readers(case: Case, one: bench.BenchFamily, reader: Any) -> dict[str, Readout]:
    """The ways to read predictions [L + 1, q] from a model."""
    functions = {}
    if model_reader := own_reader(case, one, reader):
        functions[OWN] = model_reader
        by = factors(model_reader, one.probing)
        functions[FACTOR] = lambda task, model_reader=model_reader: model_reader(task) * by[:, None]
    functions[PROBE] = streams.probed(reader, one.probing)
    return functions


def own_reader(case: Case, one: bench.BenchFamily, reader: Any) -> Readout | None:
    if case.kind == DISTRACTOR and case.about in (functions := bench.distractor_functions(one)):
        return functions[case.about]
    if case.kind in (PLAIN, JUNK):
        model = bench.candidate_model(case.about, case.kernel, one)
        assert model.weights is not None
        weights = model.weights
        layers = slice(None) if model.layers is None else jnp.array(model.layers)
        return lambda task: ik.probes.layerwise(weights, task)[layers]
    if case.kind != RANDOM and isinstance(reader, ik.Transformer):
        return partial(ik.probes.layerwise, reader)
    return None


def factors(reader: Readout, tasks: ik.Task) -> jax.Array:
    """The factor of every layer [L + 1] with the least error on the tasks of the probes."""
    predictions = jax.jit(partial(ik.map_tasks, reader))(tasks)
    products = jnp.sum(predictions * tasks.y_query[:, None], axis=(0, 2))
    size = jnp.sum(predictions**2, axis=(0, 2))
    return jnp.where(size > 0, products / jnp.where(size > 0, size, 1), 0)


def short(profile: Any) -> Row:
    """The last error of a profile, and for each way to compare: who is nearest, and distances."""
    record = whole_record(profile)
    return {"error": 10 ** record["log10 after layers"]["error"][-1]} | {
        f"{one['measure']}, {one['alignment']}": {
            "nearest": one["nearest"],
            "tied": one["tied"],
            "distances": {part["candidate"]: part["distance"] for part in one["candidates"]},
        }
        for one in record["readings"]
    }


def examine(case: Case, config: bench.BenchConfig) -> Row:
    """Read one model in all ways."""
    began = time.perf_counter()
    one = streams.setting_of(case.tasks, dataclasses.replace(config, seed=case.seed))
    protocol = protocol_of(case.tasks, case.kernel, one.config)
    subject, profiles = streams.subject_of(case, one), {}
    for name, read in readers(case, one, subject.reader).items():
        predict = jax.jit(partial(ik.map_tasks, read))
        predictions = [np.asarray(predict(t.tasks)) for t in (protocol.fitted, protocol.scored)]
        if np.all(np.isfinite(np.concatenate(predictions))):
            profiles[name] = short(protocol.read(predictions))
    return {
        **case._asdict(),
        "right": [name for name in subject.names if name in compared()],
        "runs": list(subject.names),
        "read": profiles,
        "seconds": time.perf_counter() - began,
    }


def listed(rows: Iterable[Row]) -> list[Row]:
    """Models that run a candidate of the protocol."""
    return [row for row in rows if row["right"]]


def read_by(rows: Iterable[Row], reader: str, how: str = HOWS[0]) -> list[tuple[Row, Row]]:
    """The models that were read so, each with what the reading says."""
    return [(row, row["read"][reader][how]) for row in rows if reader in row["read"]]


def outcome_of(row: Row, reading: Row) -> str:
    if reading["nearest"] in row["right"]:
        return "right"
    if {*reading["tied"]} & {*row["right"]}:
        return "among"
    return "wrong" if reading["tied"] else "certain and wrong"


def with_null(reading: Row) -> bool:
    return bool({*reading["tied"]} & {*identification.NULLS})


def share(flags: Iterable[bool]) -> str:
    values = list(flags)
    return str(bench.Share.of(sum(values), len(values))) if values else "-"


def least(reading: Row, names: Iterable[str]) -> float:
    return min((reading["distances"].get(name, np.inf) for name in names), default=np.inf)


def summary(rows: list[Row]) -> Lines:
    header = ["read from", "measure", "alignment", "models", "right", "among", "wrong"]
    header += ["certain and wrong", "a null is as near", "right one", "next one"]
    header += ["distractors named for certain", "distractors: a null is as near"]
    lines = []
    for reader in READERS:
        for how in HOWS:
            each = read_by(listed(of(rows, *KNOWN)), reader, how)
            if not each:
                continue
            outcomes = [outcome_of(row, reading) for row, reading in each]
            right_distances = [least(reading, row["right"]) for row, reading in each]
            rest = [least(reading, {*compared()} - {*row["right"]}) for row, reading in each]
            other = [reading for _, reading in read_by(of(rows, DISTRACTOR, RANDOM), reader, how)]
            cells = [share(one == name for one in outcomes) for name in OUTCOMES]
            cells += [share(with_null(reading) for _, reading in each)]
            cells += [f"{median(right_distances):.2g}", f"{median(rest):.2g}"]
            cells += [share(not reading["tied"] for reading in other), share(map(with_null, other))]
            lines.append([reader, *how.split(", "), str(len(each)), *cells])
    return header, lines


def right_from(rows: list[Row], reader: str) -> str:
    """The share of models whose nearest candidate is right, by the error, 1:1."""
    return share(said["nearest"] in row["right"] for row, said in read_by(listed(rows), reader))


def candidates_of(rows: list[Row]) -> list[str]:
    """The candidates with which models were compared when they were read."""
    readings = [row["read"][PROBE][HOWS[0]] for row in rows]
    return [name for name in compared() if any(name in one["distances"] for one in readings)]


def counted(rows: list[Row], reader: str, how: str) -> tuple[list[str], np.ndarray]:
    each = read_by(listed(of(rows, PLAIN)), reader, how)
    pairs = [(row["right"][0], next(iter(reading["distances"]))) for row, reading in each]
    candidates = candidates_of(rows)
    return matrix(pairs, candidates, [*candidates, *identification.NULLS])


def matrix(
    pairs: Iterable[tuple[str, str]], lines: list[str], names: list[str]
) -> tuple[list[str], np.ndarray]:
    """How often each name was said of each truth, (truth, name)."""
    counts = np.zeros((len(lines), len(names)), int)
    for truth, name in pairs:
        counts[lines.index(truth), names.index(name)] += 1
    return names, counts


@cache
def through_streams() -> dict[tuple, Row]:
    """Verdicts of `benchmarks.streams`, by case."""
    return {name_of(row): row for row in records.read("solverbench-streams")["rows"]}


def beside(rows: list[Row]) -> Lines:
    """The readings through the stream, on the same models."""
    header = ["reading", "models", "right", "wrong", "no name", "distractors", "named", "close to"]
    pairs = [(row, other) for row in rows if (other := through_streams().get(name_of(row)))]
    known = [(r, s) for r, s in pairs if r["kind"] in KNOWN and r["right"]]
    strange, lines = [s for r, s in pairs if r["kind"] in (DISTRACTOR, RANDOM)], []
    kinds = (("right",), ("wrong", "close to another"), ("among", "close", "none"))
    verdicts = ((bench.IDENTIFIED, bench.TIED), (bench.NEAR,))
    for name in ("state", "innovation", "streams", "use"):
        outcomes = [bench.outcome({"names": row["runs"]}, said_of(s, name)) for row, s in known]
        statuses = [said_of(s, name).status for s in strange]
        cells = [str(len(known)), *(share(one in kind for one in outcomes) for kind in kinds)]
        cells += [str(len(strange)), *(share(one in some for one in statuses) for some in verdicts)]
        lines.append([f"{name}: {streams.READINGS[name]}", *cells])
    return header, lines


def markdown(record: Row) -> str:
    rows, left = record["rows"], record["meta"]["not run"]
    about = ABOUT.format(
        candidates=", ".join(candidates_of(rows)),
        nulls="; ".join(one.words for one in identification.NULLS.values()),
        readers="; ".join(f"{name}: {words}" for name, words in READERS.items()) + ".",
    )
    tables = {
        "What each reading says of models of known solver, and of models that run no candidate. "
        '"Right one" and "next one": median distance in log10 of the solver that runs, and of the '
        "nearest other one": summary(rows),
        "The same models through their streams (`python -m benchmarks.streams`, all candidates of "
        "the catalogue)": beside(rows),
    }
    parts = [about, f"{len(rows)} models; {left} were not run.\n"]
    parts += [f"{title}:\n\n{to_markdown(table)}\n" for title, table in tables.items() if table[1]]
    return "\n".join(parts)


def confusion_figure(record: Row) -> Figure:
    """Confusion matrices of the error profile on rotated models, beside that of the stream."""
    rows = record["rows"]
    known_rows, candidates = listed(of(rows, PLAIN)), candidates_of(rows)
    panels = [
        ("error, 1:1, own prediction", *counted(rows, OWN, HOWS[0])),
        ("error, 1:1, linear probe", *counted(rows, PROBE, HOWS[0])),
        ("error, monotone, linear probe", *counted(rows, PROBE, HOWS[2])),
    ]
    names, pairs = [*candidates, "another solver", "no name"], []
    for row in known_rows:
        if other := through_streams().get(name_of(row)):
            verdict, label = said_of(other), "no name"
            if verdict.status in (bench.IDENTIFIED, bench.TIED):
                right = {*verdict.names} <= {*row["runs"]}
                label = row["right"][0] if right else verdict.names[0]
            pairs.append((row["right"][0], label if label in names else "another solver"))
    panels.append(("through the stream, with use", *matrix(pairs, candidates, names)))
    figure = Figure(figsize=(18, 5.4), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True)
    for axis, (title, columns, counts) in zip(axes, panels, strict=True):
        share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        axis.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for (i, j), count in np.ndenumerate(counts):
            if count:
                color = "white" if share[i, j] > 0.5 else "black"
                axis.text(j, i, str(count), ha="center", va="center", color=color)
        words = [name.replace("_", " ") for name in columns]
        axis.set_xticks(range(len(words)), words, rotation=60, ha="right", fontsize=8)
        axis.set_yticks(range(len(candidates)), [name.replace("_", " ") for name in candidates])
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("nearest candidate, or name")
    figure.axes[0].set_ylabel("solver that runs")
    seeds = ", ".join(map(str, sorted({row["seed"] for row in known_rows})))
    title = f"Rotated models of known solver: number of models by name (seeds {seeds}, float64)"
    figure.suptitle(title, fontsize=11)
    return figure


QUICK_CASES = (
    Case(PLAIN, bench.LINEAR, "gradient_descent", "linear"),
    Case(DISTRACTOR, bench.LINEAR, "a share of exact KRR", "linear"),
)


def main() -> None:
    args = records.options(__doc__, folder=True)
    jax.config.update("jax_enable_x64", True)
    config, every = bench.BenchConfig(), tuple(dict.fromkeys(cases()))
    if args.quick:
        config, every = bench.BenchConfig(**bench.QUICK, quick=True), QUICK_CASES
    settings, axes = dataclasses.asdict(config), {"case": every}
    study = experiments.Study("profiles", settings, axes, lambda at: examine(at["case"], config))
    rows = [row for _, row in records.finished(study, args.folder)]
    facts = {"seeds": sorted({row["seed"] for row in rows}), "dtype": "float64"}
    facts |= {"config": settings, "not run": len(every) - len(rows)}
    record = records.rounded({"meta": records.meta("profiles", **facts), "rows": rows})
    figures = {"error-profiles": confusion_figure}
    records.finish("error-profiles", record, markdown, args.quick, figures)


if __name__ == "__main__":
    main()
