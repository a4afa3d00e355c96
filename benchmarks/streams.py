"""`python -m benchmarks.streams`: identify the models of SolverBench through their streams.

It takes a few hours of two cores; `--folder` keeps what was identified.
"""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import product
from operator import itemgetter
from statistics import median
from typing import Any, NamedTuple
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import records
from icl_krr import experiments
from icl_krr.catalogue import candidate, candidates
from icl_krr.experiments import Lines, identify as identification, solverbench as bench, to_markdown
from icl_krr.experiments.identify import EXACT, RESOLUTION, CandidateResult, split_halves, status_of
from icl_krr.experiments.solverbench import IDENTIFIED, NEAR, TIED
from icl_krr.probes import Identification, fit_probe, identify_streams, layerwise
from icl_krr.tasks import Task, map_tasks, system
from icl_krr.transformer import Architecture, Transformer, init

PLAIN, NORMED, SUPERPOSED, TRAINED = "rotated", "LayerNorm", "superposed", "fine-tuned"
JUNK, NOISE, SINGLE = "junk", "noise", "float32"
DISTRACTOR, RANDOM, POWERS = "distractor", "random", "raw powers"

Reader = Transformer | Callable[[Task], jax.Array]

HOLDS = {
    "gradient descent, one drawn step size": "GD steps of other sizes; uses them",
    "gradient descent, rising": "GD steps of other sizes; uses them",
    "Nesterov": "Nesterov's steps; uses them",
    "averaged": "the steps of gradient descent; uses their average",
    "steepest": "steepest descent; uses it",
    "gradient descent, a kernel between": "GD on another kernel; uses it",
    "gradient descent, a mixture": "GD on another kernel; uses it",
    "gradient descent, an anisotropic": "GD on another kernel; uses it",
    "the answer 0": "the steps of gradient descent; uses nothing",
    "a linear function": "the steps of gradient descent; uses x of the query",
    "a random transformer": "random functions; uses them",
}
"""What the stream of a distractor holds and what its answer uses, by the start of its name. A
distractor without weights holds its own answers and x of the query, and has no readout."""

Row = dict[str, Any]
KNOWN = (PLAIN, JUNK, SUPERPOSED, TRAINED, NORMED, NOISE, SINGLE)
SPACES = ("state", "innovation")
READINGS = {
    "probe": "`identify` on a linear probe that is fitted to y at the queries",
    "factor": "`identify_streams` on the probe's answer: a factor and an offset for each layer",
    "state": "nearest candidate by the state, at most 0.01 away",
    "innovation": "nearest candidate by the innovation, at most 0.01 away",
    "streams": "`identify_streams` with all its controls, as if use were not measured",
    "use": "the verdict of `identify_streams`",
}
SAME = 0.01
"""A model with noise that is at most this far from the oracle still runs its solver."""

ABOUT = """\
`python -m benchmarks.streams` reads the models of SolverBench through their streams alone, with
`identify_streams`: 6 layers, 16 tasks to fit and 16 to score, all candidates of the catalogue on
the model's kernel, 12 steps. Prefix conjugate gradient takes as long as all others together; it is
offered only where it is the truth. Streams are rotated at random.

- junk: channels that no solver has are appended in every layer, layer 0 too, and all are rotated
  together: cosines and tanh of random projections of the query, of the supports' x and y, and of
  both, as large as the stream. Half are the same in all layers, half drift from layer to layer.
- superposed: the stream has 1 or 2 channels fewer than the construction.
- fine-tuned: 100 updates of Adam on the tasks, from the construction on.
- LayerNorm: each token's rotated channels are centred and divided by their size before they are
  read, as a pre-norm block would read them. The model itself has no LayerNorm.
- noise: every weight is multiplied by 1 + level z, z standard normal; the stream is then rotated.
- float32: tasks and weights in float32.
- A model with junk or LayerNorm, and a causal or one-layer model, is read as a function: its use of
  the steps is not measured.
"""

SLOW = "prefix_conjugate_gradient"
"""It takes as long as all others together, on the linear kernel."""
FAMILIES = (bench.LINEAR, bench.PROCESS)
LEVELS = (1e-3, 1e-2, 1e-1)
FIRST = ("gradient_descent", "chebyshev", "conjugate_gradient", "richardson")
"""Solvers whose noise is measured with all seeds."""
QUICK_NAMES = ("gradient_descent", "conjugate_gradient")


class Case(NamedTuple):
    """A model: its kind, its tasks, and what it runs.

    All candidates have its kernel. The level is the noise on the weights, channels of junk, or
    channels left out. It is probed if a linear probe reads it, for comparison.
    """

    kind: str
    tasks: str
    about: str
    kernel: str
    level: float = 0.0
    seed: int = 0
    probed: bool = False


setting_of = cache(bench.bench_family)


def solvers(
    kind: str, level: float = 0.0, seed: int = 0, names: Iterable[str] = (), one: bool = False
) -> Iterator[Case]:
    """Every candidate on its kernels, or on the first of them (`one`), or some (`names`)."""
    for family in FAMILIES:
        for solver in names or candidates():
            for kernel in bench.supported_kernels(solver, family)[: 1 if one else None]:
                yield Case(kind, family, solver, kernel, level, seed)


def others(kind: str, make: Callable[[bench.BenchFamily], Any]) -> Iterator[Case]:
    for family in FAMILIES:
        for name in make(setting_of(family, bench.BenchConfig())):
            yield Case(kind, family, name, bench.FAMILY_KERNELS[family][0])


def cases() -> Iterator[Case]:
    few = partial(solvers, names=FIRST, one=True)
    plain, open_set = [*solvers(PLAIN)], [*others(DISTRACTOR, distractors)]
    noisy = [c for level in LEVELS for c in few(NOISE, level)]
    random = [*others(RANDOM, lambda one: randoms(one, 0))]
    small = [c for c in random if "width 16" in c.about or c.about.startswith("8 ")]
    yield from (*plain, *open_set, *noisy, *random)
    yield from (c._replace(seed=1) for c in small)
    yield from (c._replace(probed=True) for c in (*solvers(PLAIN, one=True), *noisy, *open_set))
    for kind, level in ((JUNK, 16), (JUNK, 64), (SINGLE, 0.0), (NORMED, 0.0), (NOISE, LEVELS[0])):
        yield from solvers(kind, level, one=True)
    yield from few(JUNK, 256)
    for seed in (1, 2):
        yield from solvers(PLAIN, seed=seed, one=True)
        for kind, level in ((NOISE, LEVELS[0]), (NOISE, LEVELS[1]), (JUNK, 64)):
            yield from few(kind, level, seed)
    yield from (Case(POWERS, name, POWERS, bench.FAMILY_KERNELS[name][0]) for name in FAMILIES)
    for name, fewer in bench.SUPERPOSED_CASES:
        yield Case(SUPERPOSED, bench.LINEAR, name, "linear", fewer)
    yield from solvers(TRAINED, names=bench.VARIED_SOLVERS[:2], one=True)


QUICK_CASES = (
    Case(PLAIN, bench.LINEAR, "gradient_descent", "linear"),
    Case(PLAIN, bench.LINEAR, "gradient_descent", "linear", probed=True),
    Case(JUNK, bench.LINEAR, "gradient_descent", "linear", 4),
    Case(NOISE, bench.LINEAR, "conjugate_gradient", "linear", 1e-2),
    Case(SINGLE, bench.LINEAR, "gradient_descent", "linear"),
    Case(DISTRACTOR, bench.LINEAR, "the answer 0", "linear"),
    Case(RANDOM, bench.LINEAR, "8 random functions of the task", "linear"),
    Case(POWERS, bench.LINEAR, POWERS, "linear"),
)


class Subject(NamedTuple):
    """A model to identify, the names that are right, and what the stream of a distractor holds."""

    reader: Reader
    names: tuple[str, ...] = ()
    label: str = ""
    gap: float | None = None  # of a model with noise, to the oracle, in its own readout


def key_of(*parts: Any) -> jax.Array:
    """A key that depends on the words of a case alone, and not on the order of the cases."""
    return jax.random.key(crc32(repr(parts).encode()))


def candidate_subject(case: Case, one: bench.BenchFamily) -> Subject:
    """A variant of the construction of a solver; the level is the noise or the channels of junk.

    In float32, it has the streams of the rotated model.
    """
    model, level = bench.candidate_model(case.about, case.kernel, one), case.level
    variant = PLAIN if case.kind == SINGLE else case.kind
    key = key_of(case.about, case.kernel, variant, level, one.config.seed)
    weights, gap, tasks = model.weights, None, bench.training_tasks(one.probing)
    assert weights is not None
    at = jnp.arange(weights.steps + 1) if model.layers is None else jnp.array(model.layers)
    if variant == NOISE:
        weights = bench.perturbed(weights, jax.random.fold_in(key, 1), level)
        gap = to_oracle(weights, at, model, one)
    if variant == TRAINED:
        weights = bench.fine_tuned(weights, tasks, 10 if one.config.quick else 100)
    if variant == SUPERPOSED:
        width, updates = weights.layout.width - int(level), 20 if one.config.quick else 2000
        weights = bench.superposed(weights, tasks, key, width, updates)
    else:
        weights = bench.rotated(weights, key)
    if case.kind == SINGLE:
        weights = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), weights)
    reader: Reader = weights
    if variant in (JUNK, NORMED) or model.layers is not None:
        change = {JUNK: partial(with_junk, key=key, count=int(level)), NORMED: normed}
        reader = partial(changed, weights, at, change.get(variant, lambda task, streams: streams))
    return Subject(reader, model.truth.names, gap=gap)


def to_oracle(weights: Transformer, at: jax.Array, model: Any, one: bench.BenchFamily) -> float:
    """The distance of a model's answers to the oracle, as SolverBench writes it in its labels."""

    def predictions(task: Task) -> tuple[jax.Array, jax.Array]:
        return layerwise(weights, task)[at][1:], model.solution(task)["prediction"][1:]

    model_predictions, right = map(np.asarray, jax.jit(partial(map_tasks, predictions))(one.tasks))
    size = lambda part: np.sqrt(np.sum(part**2, axis=(0, 2)))  # noqa: E731
    return float(np.mean(size(model_predictions - right) / size(right)))


def changed(weights: Transformer, at: jax.Array, change: Callable, task: Task) -> jax.Array:
    return change(task, identification.streams_at(weights, task, ("query",))[0][at])


def normed(task: Task, streams: jax.Array) -> jax.Array:
    """Each token's channels with mean 0 and size 1, as a pre-norm block reads them."""
    centred = streams - jnp.mean(streams, axis=-1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-6)


def with_junk(task: Task, streams: jax.Array, key: jax.Array, count: int) -> jax.Array:
    """Append channels that no solver has, about as large as the stream, and rotate all of them."""
    size = jnp.sqrt(jnp.mean(streams**2))
    both = jnp.concatenate([streams, size * features(task, len(streams) - 1, key, count)], axis=-1)
    turn = jax.random.orthogonal(jax.random.fold_in(key, 9), both.shape[-1])
    return both @ turn.astype(both.dtype)


def features(task: Task, depth: int, key: jax.Array, count: int) -> jax.Array:
    """Random functions of the queries, of the supports, and of both, [L + 1, q, count].

    A third of each kind. Half of the channels are the same in all layers; the others have other
    random weights in every layer, which drift from layer to layer.
    """
    p, dtype = task.x.shape[-1], task.x.dtype
    keys = jax.random.split(key, 6)
    draw = lambda i, *shape: jax.random.normal(keys[i], shape, dtype)  # noqa: E731
    drift = jnp.concatenate([jnp.zeros((1, count), dtype), draw(0, depth, count) / 2])
    drift = jnp.cumsum(drift, axis=0) * (jnp.arange(count) % 2)
    projected = task.x_query @ draw(1, p, count)
    waves = jnp.cos(task.y[:, None] * draw(3, 1, count))
    supports = jnp.mean(jnp.tanh(task.x @ draw(2, p, count)) * waves, axis=0)
    context = 4 * supports * draw(4, 1, count)[0]
    kind = jnp.arange(count) % 3
    inside = jnp.where(kind != 1, projected, 0) + jnp.where(kind != 0, context, 0)
    phase = draw(5, 1, count)[0] * jnp.pi
    grown = inside[None] * (1 + drift[:, None]) + phase + drift[:, None]
    return jnp.where(jnp.arange(count) % 4 < 2, jnp.cos(grown) * 2**0.5, jnp.tanh(grown))


def distractors(one: bench.BenchFamily) -> dict[str, Callable[[], Subject]]:
    """All models of the open set, by name; those without weights with answers as a stream."""
    key = jax.random.fold_in(jax.random.key(one.config.seed), 9)
    family_key = jax.random.fold_in(key, int(one.name != bench.LINEAR))

    def of_weights(name: str, build: Callable[[], Transformer]) -> Subject:
        weights = build()
        if not isinstance(weights.spec, Architecture):
            weights = bench.rotated(weights, key_of(name, one.name))
        label = next((words for start, words in HOLDS.items() if name.startswith(start)), "")
        return Subject(weights, label=label)

    def of_function(name: str, function: Callable[[Task], jax.Array]) -> Subject:
        reader = partial(with_queries, lambda t: function(t)[..., None], key_of(name, one.name))
        return Subject(reader, label="its own answers, x of the query")

    every = [
        (of_weights, bench.distractor_transformers(one, family_key)),
        (of_function, bench.distractor_functions(one)),
    ]
    return {name: partial(make, name, part) for make, some in every for name, part in some.items()}


def with_queries(function: Callable, key: jax.Array, task: Task) -> jax.Array:
    """The channels [L + 1, q, c] of a function and x of the query, rotated together."""
    channels = function(task)
    x = jnp.broadcast_to(task.x_query, (len(channels), *task.x_query.shape))
    both = jnp.concatenate([channels, x], axis=-1)
    return both @ jax.random.orthogonal(key, both.shape[-1]).astype(both.dtype)


def powers(one: bench.BenchFamily) -> Subject:
    """A stream whose layer l holds k(x)^T K^j y for all j < l: the span of many solvers' steps."""
    kernel = one.kernel("linear" if one.name == bench.LINEAR else "gaussian")
    depth = one.config.steps
    high, key = one.largest_eigenvalue(kernel), key_of(POWERS, one.name)

    def predictions(task: Task) -> jax.Array:
        gram, cross, _ = system(kernel, task)
        each = [task.y]
        for _ in range(depth - 1):
            each.append(gram @ each[-1] / high)
        all_powers = jnp.stack([cross @ one for one in each], axis=-1)
        return jnp.tril(jnp.ones((depth + 1, depth)), -1)[:, None] * all_powers

    reader = partial(with_queries, predictions, key)
    return Subject(reader, label="k(x)^T K^j y for all j < l: the span, and no steps")


def randoms(one: bench.BenchFamily, seed: int) -> dict[str, Callable[[], Subject]]:
    """Untrained encoders, and random functions of the task that drift from layer to layer."""
    depth, builders = one.config.steps, {}
    shape: Any = {"num_features": one.tasks.num_features, "depth": depth, "heads": 4}
    for width, norm in product((16, 32, 64), (True, False)):
        name = f"untrained encoder, width {width}, {'with' if norm else 'without'} LayerNorm"
        spec = Architecture(width=width, layer_norm=norm, **shape)
        builders[name] = partial(init, key_of(name, one.name, seed), spec)
    for count in (8, 32, 128):
        name = f"{count} random functions of the task"
        drawn = {"depth": depth, "key": key_of(name, one.name, seed), "count": count}
        builders[name] = lambda drawn=drawn: partial(features, **drawn)
    return {name: lambda make=make: Subject(make()) for name, make in builders.items()}


def subject_of(case: Case, one: bench.BenchFamily) -> Subject:
    if case.kind == DISTRACTOR:
        return distractors(one)[case.about]()
    if case.kind == RANDOM:
        return randoms(one, case.seed)[case.about]()
    return powers(one) if case.kind == POWERS else candidate_subject(case, one)


NO_NAME = bench.Verdict(bench.NONE)
UNUSED = "the answer does not follow"
"""Start of the reason why a decoded candidate is ruled out because of its use."""
SAYS_NOTHING = ("its steps are nearly", "diverges")
"""Starts of the reasons of candidates whose distances say nothing."""


def informative(result: Identification) -> list[CandidateResult]:
    """The candidates whose distances say something."""
    return [one for one in result.candidates if not one.reason.startswith(SAYS_NOTHING)]


def own_readings(result: Identification) -> dict[str, bench.Verdict]:
    """The readings that one result of `identify_streams` holds."""
    every, verdicts = informative(result), {}
    for space in SPACES:
        verdicts[space] = nearest({one.fit.candidate: one.distances[space].mean for one in every})
    remain = [one for one in every if not one.reason or one.reason.startswith(UNUSED)]
    remain.sort(key=lambda one: sum(part.mean for part in one.distances.values()))
    status = status_of([max(part.mean for part in one.distances.values()) for one in remain])
    names = tuple(one.fit.candidate for one in remain)
    unused = bench.Verdict(status, names) if status in (IDENTIFIED, TIED, NEAR) else NO_NAME
    return verdicts | {"streams": unused, "use": bench.verdict_of(result)}


def nearest(distances: dict[str, float]) -> bench.Verdict:
    """The nearest candidate, or a special case that is as near, if it is at most 0.01 away."""
    if not distances:
        return NO_NAME
    leader = min(distances, key=lambda name: distances[name])
    least = distances[leader]
    for name in candidate(leader).contains:
        if distances.get(name, np.inf) <= least + RESOLUTION:
            leader = name
    return bench.Verdict(IDENTIFIED, (leader,)) if least <= EXACT else NO_NAME


def probed(reader: Reader, probing: Task) -> Callable[[Task], jax.Array]:
    """Predictions [L + 1, q] of a linear probe that is fitted to the tasks `probing`."""
    if isinstance(reader, Transformer):
        return partial(layerwise, reader, probe=fit_probe(reader, probing))
    probe = fit_probe(jax.jit(reader), probing)
    return lambda task: probe(reader(task))[..., 0]


def other_readings(reader: Reader, one: bench.BenchFamily, kwargs: Row) -> dict[str, bench.Verdict]:
    """The readings of a linear probe."""
    predictions = probed(reader, one.probing)
    tasks = one.tasks.replace(y_query=None)
    arrays = jax.jit(partial(bench.predictions_and_hats, predictions))(tasks)
    result = bench.identify_answers(tasks, bench.Answers(*map(np.asarray, arrays)), **kwargs)
    factor = identify_streams(lambda t: predictions(t)[..., None], *split_halves(tasks), **kwargs)
    return {"probe": bench.verdict_of(result), "factor": bench.verdict_of(factor)}


def examine(case: Case, config: bench.BenchConfig, names: tuple[str, ...]) -> dict[str, Any]:
    """Identify a model, or read it in the ways of a linear probe."""
    began, config = time.perf_counter(), dataclasses.replace(config, seed=case.seed)
    one, single = setting_of(case.tasks, config), case.kind == SINGLE
    subject = subject_of(case, one)
    offered = tuple(n for n in names if n != SLOW or case.about == SLOW)
    kwargs: dict[str, Any] = {"kernels": (case.kernel,), "candidates": offered}
    kwargs |= {"steps": 2 * config.steps, "seed": case.seed}
    if case.probed:
        read = other_readings(subject.reader, one, kwargs)
        return {**case._asdict(), "readings": as_json(read)}
    tasks = split_halves(one.tasks.replace(y_query=None))
    if single:
        tasks = jax.tree.map(jnp.float32, tasks)
    with jax.enable_x64(not single):
        result = identify_streams(subject.reader, *tasks, **kwargs)
    verdict = bench.verdict_of(result)
    return {
        **case._asdict(),
        "right": subject.names,
        "label": subject.label,
        "distance to oracle": subject.gap,
        "status": verdict.status,
        "names": verdict.names,
        "readings": as_json(own_readings(result)),
        "candidates": [row_of(one) for one in result.candidates],
        "seconds": time.perf_counter() - began,
    }


def as_json(verdicts: dict[str, bench.Verdict]) -> dict[str, Any]:
    return {name: one._asdict() for name, one in verdicts.items()}


def row_of(one: CandidateResult) -> dict[str, Any]:
    """A candidate: its distances, and the reason against it."""
    distances = {space: distance.mean for space, distance in one.distances.items()}
    return {"candidate": one.fit.candidate, "reason": one.reason, **distances}


def joined(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of verdicts, with the readings of a linear probe of the same model."""
    probed = {name_of(row): row["readings"] for row in rows if row["probed"]}
    return [
        {name: part for name, part in row.items() if name != "probed"}
        | {"readings": row["readings"] | probed.get(name_of(row), {})}
        for row in rows
        if not row["probed"]
    ]


def name_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """What tells the models of cases apart."""
    return tuple(row[name] for name in Case._fields if name != "probed")


def markdown(record: dict[str, Any]) -> str:
    """All tables, and which of the cases were not run."""
    rows, left = record["rows"], record["meta"]["not run"]
    words = [f"- {name}: {about}." for name, about in READINGS.items()]
    ends = f"Not run (models): {counted(left)}." if left else "All cases were run."
    parts = [ABOUT, f"{len(rows)} verdicts. {ends}\n", *record["meta"].get("notes", ())]
    tables: dict[str, Callable[[list[Row]], Lines]] = {
        "Readings side by side, on models of seed 0 (Wilson's 95 % interval). Readings of a probe "
        "were run on fewer models": readings,
        "Known models, by variant": variants,
        "Noise on the weights, by solver: verdicts, and distance of the model's own answers to the "
        "oracle": noise,
        "float32: distance of the right candidate": single,
        "Distractors, one by one": distractor_table,
        "Untrained encoders and random functions": randoms_table,
    }
    for title, make in tables.items():
        header, lines = make(rows)
        title += ":\n\n" + "\n".join(words) if make is readings else ""
        parts.append(f"{title}\n\n{to_markdown((header, lines)) if lines else 'Not run.'}\n")
    return "\n".join(parts)


def counted(cases: Iterable[tuple]) -> str:
    """How many cases there are of each kind."""
    groups = Counter(
        f"{kind}{f' {level:g}' if level else ''}, {tasks}, seed {seed}"
        + (", probed" if probed else "")
        for kind, tasks, _, _, level, seed, probed in cases
    )
    return "; ".join(f"{words} ({count})" for words, count in groups.items())


def said_of(row: Row, reading: str = "use") -> bench.Verdict:
    record = row["readings"].get(reading) or row
    return bench.Verdict(record["status"], tuple(record["names"]))


def of(rows: Iterable[Row], *kinds: str) -> list[Row]:
    return [row for row in rows if row["kind"] in kinds]


def outcome_of(row: Row, reading: str = "use") -> str:
    return bench.outcome({"names": row["right"]}, said_of(row, reading))


def shares(outcomes: list[str], names: Iterable[str]) -> list[str]:
    return [str(bench.Share.of(outcomes.count(name), len(outcomes))) for name in names]


def readings(rows: list[Row]) -> Lines:
    """What every reading says of rotated models, of models with noise, and of distractors."""
    header = ["reading", "models", "right", "among", "close", "none", "close to another", "wrong"]
    header += ["distractors named", "distractors close to"]
    lines = []
    for reading in READINGS:
        read = [row for row in rows if reading in row["readings"] and row["seed"] == 0]
        noisy = of(read, NOISE)
        groups = {
            "rotated": of(read, PLAIN),
            f"noise, within {SAME:g} of the oracle": [r for r in noisy if is_same(r)],
            f"noise, farther than {SAME:g}": [r for r in noisy if not is_same(r)],
        }
        ends = verdict_shares(of(read, DISTRACTOR), reading)[:2]
        for words, some in groups.items():
            cells = shares([outcome_of(row, reading) for row in some], bench.OUTCOMES)
            lines.append([reading, words, *cells, *ends])
            ends = ["", ""]
    return header, lines


def verdict_shares(rows: list[Row], reading: str = "use") -> list[str]:
    """The shares of models that are named, close to a solver, and neither."""
    statuses = [said_of(row, reading).status for row in rows]
    named = [IDENTIFIED if status == TIED else status for status in statuses]
    return shares(named, (IDENTIFIED, NEAR, bench.NONE))


def is_same(row: Row) -> bool:
    """Whether a model with noise still runs its solver."""
    return row["distance to oracle"] <= SAME


def largest_distance(candidate_row: Row) -> float:
    return max(candidate_row[space] for space in SPACES)


def right_one(row: Row) -> Row | None:
    """The candidate that is right, at its own name, if it was offered."""
    right = [one for one in row["candidates"] if one["candidate"] in row["right"]]
    return min(right, key=largest_distance) if right else None


def next_one(row: Row) -> Row | None:
    """The nearest wrong candidate that converges and does not contain the right one."""
    wrong = [
        one
        for one in row["candidates"]
        if one["candidate"] not in row["right"]
        and not {*candidate(one["candidate"]).contains} & {*row["right"]}
        and "diverges" not in one["reason"]
    ]
    return min(wrong, key=largest_distance) if wrong else None


def variants(rows: list[Row]) -> Lines:
    header = ["variant", "models", *bench.OUTCOMES]
    header += ["right candidate: median, largest", "next: smallest"]
    lines = []
    some = sorted(of(rows, *KNOWN), key=lambda row: (KNOWN.index(row["kind"]), row["level"]))
    for (kind, level), group_rows in records.grouped(some, itemgetter("kind", "level")).items():
        outcomes = [outcome_of(row) for row in group_rows]
        gaps = [largest_distance(one) for row in group_rows if (one := right_one(row))]
        after = [largest_distance(one) for row in group_rows if (one := next_one(row))]
        cells = [str(outcomes.count(name)) for name in bench.OUTCOMES]
        distance_cell = f"{median(gaps):.2g}, {max(gaps):.2g}" if gaps else "-"
        cells += [distance_cell, f"{min(after):.2g}" if after else "-"]
        lines.append([f"{kind} {level:g}" if level else kind, str(len(group_rows)), *cells])
    return header, lines


def noise(rows: list[Row]) -> Lines:
    header = ["tasks", "solver", "noise", "seeds", *bench.OUTCOMES]
    header += ["to the oracle", "right candidate"]
    lines = []
    groups = records.grouped(of(rows, NOISE), itemgetter("tasks", "about", "level"))
    for (tasks, solver, level), some in groups.items():
        outcomes = [outcome_of(row) for row in some]
        gaps = ", ".join(f"{row['distance to oracle']:.2g}" for row in some)
        right = ", ".join(f"{largest_distance(one):.2g}" for row in some if (one := right_one(row)))
        counts = [str(outcomes.count(name)) for name in bench.OUTCOMES]
        lines.append([tasks, solver, f"{level:g}", str(len(some)), *counts, gaps, right])
    return header, lines


def single(rows: list[Row]) -> Lines:
    header = ["tasks", "solver", "kernel", "verdict", "state, float32", "innovation, float32"]
    header += ["state, float64", "innovation, float64"]
    whole = {(r["tasks"], r["about"], r["kernel"]): r for r in of(rows, PLAIN) if r["seed"] == 0}
    lines = []
    for row in of(rows, SINGLE):
        other = whole.get((row["tasks"], row["about"], row["kernel"]))
        both = [right_one(one) if one else None for one in (row, other)]
        cells = [f"{one[space]:.2g}" if one else "-" for one in both for space in SPACES]
        lines.append([row["tasks"], row["about"], row["kernel"], words_of(row), *cells])
    return header, lines


def words_of(row: Row, reading: str = "use") -> str:
    one = said_of(row, reading)
    return one.status + (f": {', '.join(one.names)}" if one.names else "")


def distractor_table(rows: list[Row]) -> Lines:
    header = ["tasks", "model", "the stream holds", "verdict", "as if use were not measured"]
    header += ["nearest", *SPACES, "reason"]
    lines = []
    for row in of(rows, DISTRACTOR, POWERS):
        best, verdicts = row["candidates"][0], [words_of(row), words_of(row, "streams")]
        cells = [best["candidate"], *(f"{best[space]:.2g}" for space in SPACES), best["reason"]]
        lines.append([row["tasks"], row["about"], row["label"], *verdicts, *cells])
    return header, lines


def randoms_table(rows: list[Row]) -> Lines:
    groups: dict[str, list[Row]] = {}
    for kind in ("untrained encoder", "random functions"):
        kind_rows = [row for row in of(rows, RANDOM) if kind in row["about"]]
        for tasks, some in records.grouped(kind_rows, itemgetter("tasks")).items():
            groups[f"{tasks}, {kind}"] = some
    if groups:
        groups["all, and distractors"] = of(rows, RANDOM, DISTRACTOR, POWERS)
    lines = [[words, str(len(some)), *verdict_shares(some)] for words, some in groups.items()]
    return ["tasks", "models", "named", "close to", "none"], lines


def main() -> None:
    args = records.options(__doc__, folder=True)
    jax.config.update("jax_enable_x64", True)
    config, names, every = bench.BenchConfig(), candidates(), tuple(dict.fromkeys(cases()))
    if args.quick:
        config = bench.BenchConfig(**bench.QUICK, quick=True)
        names, every = QUICK_NAMES, QUICK_CASES
    sizes, axes = dataclasses.asdict(config), {"case": every}
    study = experiments.Study("streams", sizes, axes, lambda at: examine(at["case"], config, names))
    results = records.finished(study, args.folder)
    done = {cell["case"] for cell, _ in results}
    facts = {
        "seeds": [0, 1, 2],
        "dtype": "float64, float32 in the cases float32",
        "config": sizes,
        "not run": [case for case in every if case not in done],
    }
    rows = records.rounded(joined([row for _, row in results]))
    record = {"meta": records.meta("streams", **facts), "rows": rows}
    records.finish("solverbench-streams", record, markdown, args.quick)


if __name__ == "__main__":
    main()
