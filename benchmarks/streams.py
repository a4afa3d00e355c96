"""`python -m benchmarks.streams`: identify the models of SolverBench through their streams.

The models are every candidate of the catalogue in disguises, models that run no candidate,
untrained and random ones, and trained encoders. All candidates that take the kernel of the model
are fitted to all of them. It takes a few hours of two cores. Rows are kept in `--folder`, so the
same command continues after an interruption. The cases come in the order of their weight, and
`--finished` reports those that the folder has. `--quick` is a smoke test; it writes no results.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.records import kept_rows, meta, options, rounded, save, with_folder
from benchmarks.streams_models import (
    JUNK,
    NOISE,
    NORMED,
    PLAIN,
    POWERS,
    RANDOM,
    SINGLE,
    STRANGER,
    SUPERPOSED,
    TRAINED,
    Reader,
    Subject,
    in_float32,
    known,
    powers,
    randoms,
    strangers,
)
from benchmarks.streams_tables import ENCODER, SPACES, markdown
from icl_krr.catalogue import candidate, candidates
from icl_krr.experiments.identify.probe_controls import in_dtype_of_tasks
from icl_krr.experiments.shared.draws import draw_tasks
from icl_krr.experiments.shared.runs import load
from icl_krr.experiments.solverbench.known import CHANGED, FEWER, KERNELS, kernels_of
from icl_krr.experiments.solverbench.models import Answers, answers_and_hats
from icl_krr.experiments.solverbench.settings import (
    LINEAR,
    PROCESS,
    QUICK,
    BenchConfig,
    Setting,
    setting,
)
from icl_krr.experiments.solverbench.verdicts import Verdict, identify_answers, verdict_of
from icl_krr.probes import fit_probe, layerwise
from icl_krr.probes.naming.answers import halves_of
from icl_krr.probes.naming.identification import (
    EXACT,
    IDENTIFIED,
    NEAR,
    TIED,
    Identification,
    Suspect,
    status_of,
)
from icl_krr.probes.naming.ruling import RESOLUTION
from icl_krr.probes.naming.stream_identify import identify_streams
from icl_krr.tasks import Task
from icl_krr.transformer import Transformer

SLOW = "prefix_conjugate_gradient"
"""A candidate that takes as long as all others together, on the linear kernel. It is offered only
where it is the truth."""
ENCODERS = ("gp-encoder", "gp-encoder-hard", "gp-encoder-2d")
FAMILIES = (LINEAR, PROCESS)
LEVELS = (1e-3, 1e-2, 1e-1)
FIRST = ("gradient_descent", "chebyshev", "conjugate_gradient", "richardson")
"""Solvers whose noise is measured with all seeds."""
QUICK_NAMES = ("gradient_descent", "conjugate_gradient")


class Case(NamedTuple):
    """One model.

    Attributes:
        kind: disguise, or kind of model that runs no candidate.
        tasks: family of tasks, or the trained encoder.
        about: the solver, or what the model runs in words.
        kernel: kernel that all candidates have.
        level: noise on the weights, channels of junk, or channels left out.
        probed: whether this is about the readings of a linear probe of the model, for comparison.
    """

    kind: str
    tasks: str
    about: str
    kernel: str
    level: float = 0.0
    seed: int = 0
    probed: bool = False

    @property
    def file(self) -> str:
        start = f"{'probed-' if self.probed else ''}{self.kind.replace(' ', '-')}"
        return f"{start}-{crc32(repr(tuple(self)).encode()):08x}"


@cache
def setting_of(family: str, config: BenchConfig) -> Setting:
    return setting(family, config)


def solvers(kind: str, level: float = 0.0, seed: int = 0, **of: Any) -> Iterator[Case]:
    """Every candidate on its kernels, or on the first of them (`one`), or some (`names`)."""
    for family in of.get("families", FAMILIES):
        for solver in of.get("names", candidates()):
            for kernel in kernels_of(solver, family)[: 1 if of.get("one") else None]:
                yield Case(kind, family, solver, kernel, level, seed)


def others(kind: str, make: Callable[[Setting], Any], seed: int = 0) -> Iterator[Case]:
    for family in FAMILIES:
        for name in make(setting_of(family, BenchConfig())):
            yield Case(kind, family, name, KERNELS[family][0], seed=seed)


def cases() -> Iterator[Case]:
    """All cases, the most important first."""
    few = partial(solvers, names=FIRST, one=True)
    plain, open_set = [*solvers(PLAIN)], [*others(STRANGER, strangers)]
    first = [*solvers(PLAIN, one=True)]
    noisy = [c for level in LEVELS for c in few(NOISE, level)]
    yield from first
    yield from open_set
    yield from solvers(JUNK, 64, one=True, families=(LINEAR,))
    yield from noisy
    for family in FAMILIES:
        yield Case(POWERS, family, POWERS, KERNELS[family][0])
    yield from few(SINGLE)
    yield from (Case(ENCODER, run, run, "gaussian") for run in ENCODERS)
    random = sorted(others(RANDOM, lambda one: randoms(one, 0)), key=lambda c: "64" in c.about)
    yield from random
    yield from (c._replace(probed=True) for c in first)
    yield from (Case(SUPERPOSED, LINEAR, name, "linear", fewer) for name, fewer in FEWER)
    yield from solvers(TRAINED, names=CHANGED[:2], one=True)
    yield from few(NORMED)
    for seed in (1, 2):
        yield from few(NOISE, LEVELS[0], seed)
    yield from few(JUNK, 256, families=(LINEAR,))
    small = [c for c in random if "width 16" in c.about or c.about.startswith("8 ")]
    yield from (c._replace(seed=1) for c in small)
    for seed in (1, 2):
        yield from solvers(PLAIN, seed=seed, one=True)
    yield from (c._replace(probed=True) for c in noisy)
    yield from solvers(JUNK, 16, one=True)
    yield from solvers(JUNK, 64, one=True, families=(PROCESS,))
    yield from (c._replace(probed=True) for c in open_set)
    yield from solvers(SINGLE, one=True)
    yield from solvers(NORMED, one=True)
    rest = tuple(name for name in candidates() if name not in FIRST)
    yield from solvers(NOISE, LEVELS[0], names=rest, one=True)
    for seed in (1, 2):
        yield from few(NOISE, LEVELS[1], seed)
        yield from few(JUNK, 64, seed)
    yield from (Case(ENCODER, run, run, "gaussian", seed=1) for run in ENCODERS)
    yield from plain
    yield from few(JUNK, 256, families=(PROCESS,))


QUICK_CASES = (
    Case(PLAIN, LINEAR, "gradient_descent", "linear"),
    Case(PLAIN, LINEAR, "gradient_descent", "linear", probed=True),
    Case(JUNK, LINEAR, "gradient_descent", "linear", 4),
    Case(NOISE, LINEAR, "conjugate_gradient", "linear", 1e-2),
    Case(SINGLE, LINEAR, "gradient_descent", "linear"),
    Case(STRANGER, LINEAR, "the answer 0", "linear"),
    Case(RANDOM, LINEAR, "8 random functions of the task", "linear"),
    Case(POWERS, LINEAR, POWERS, "linear"),
)


def subject_of(case: Case, one: Setting) -> Subject:
    if case.kind == STRANGER:
        return strangers(one)[case.about]()
    if case.kind == RANDOM:
        return randoms(one, case.seed)[case.about]()
    if case.kind == POWERS:
        return powers(one)
    kind = PLAIN if case.kind == SINGLE else case.kind
    found = known(one, kind, case.about, case.kernel, case.level)
    return in_float32(found) if case.kind == SINGLE else found


def encoder(case: Case) -> Identification:
    """The verdict on a trained encoder, on tasks of its training family."""
    run = load(case.about)
    family: Any = dataclasses.replace(run.family, num_queries=BenchConfig().num_queries)  # pyright: ignore
    drawn = draw_tasks(jax.random.key(case.seed), 2 * BenchConfig().tasks, family)
    model, both = in_dtype_of_tasks(run.model, drawn), halves_of(drawn.replace(y_query=None))
    return identify_streams(model, *both, kernels=(case.kernel,), seed=case.seed)


UNUSED = "the answer does not follow"
"""Start of the reason why a decoded candidate is ruled out because of its use."""
SAYS_NOTHING = ("its steps are nearly", "diverges")
"""Starts of the reasons of candidates whose distances say nothing."""


def own_readings(found: Identification) -> dict[str, Verdict]:
    """The readings that one result of `identify_streams` holds."""
    every = [one for one in found.suspects if not one.because.startswith(SAYS_NOTHING)]
    said = {}
    for space in SPACES:
        said[space] = nearest({one.fit.candidate: one.distances[space].mean for one in every})
    remain = [one for one in every if not one.because or one.because.startswith(UNUSED)]
    remain.sort(key=lambda one: sum(part.mean for part in one.distances.values()))
    status = status_of([max(part.mean for part in one.distances.values()) for one in remain])
    names = tuple(one.fit.candidate for one in remain)
    unused = Verdict(status, names) if status in (IDENTIFIED, TIED, NEAR) else Verdict("none")
    return said | {"streams": unused, "use": verdict_of(found)}


def nearest(distances: dict[str, float]) -> Verdict:
    """The nearest candidate, or a special case that is as near, if it is at most 0.01 away."""
    if not distances:
        return Verdict("none")
    leader = min(distances, key=lambda name: distances[name])
    far = distances[leader]
    for name in candidate(leader).contains:
        if distances.get(name, np.inf) <= far + RESOLUTION:
            leader = name
    return Verdict(IDENTIFIED, (leader,)) if far <= EXACT else Verdict("none")


def other_readings(reader: Reader, one: Setting, options: dict[str, Any]) -> dict[str, Verdict]:
    """The readings of a linear probe."""
    whole = isinstance(reader, Transformer)
    probe = fit_probe(reader if whole else jax.jit(reader), one.probing)

    def answers(task: Task) -> jax.Array:
        if isinstance(reader, Transformer):
            return layerwise(reader, task, probe)
        return probe(reader(task))[..., 0]

    tasks = one.tasks.replace(y_query=None)
    read = Answers(*map(np.asarray, jax.jit(partial(answers_and_hats, answers))(tasks)))
    found = identify_answers(tasks, read, **options)
    factor = identify_streams(lambda task: answers(task)[..., None], *halves_of(tasks), **options)
    return {"probe": verdict_of(found), "factor": verdict_of(factor)}


def examine(case: Case, config: BenchConfig, names: tuple[str, ...]) -> dict[str, Any]:
    """Identify a model, or read it in the ways of a linear probe."""
    began, subject, said = time.perf_counter(), Subject(lambda task: task.x), {}
    if case.kind == ENCODER:
        found = encoder(case)
    else:
        one = setting_of(case.tasks, dataclasses.replace(config, seed=case.seed))
        subject, single = subject_of(case, one), case.kind == SINGLE
        given = {
            "candidates": tuple(name for name in names if name != SLOW or case.about == SLOW),
            "kernels": (case.kernel,),
            "steps": 2 * config.steps,
            "seed": case.seed,
        }
        if case.probed:
            read = other_readings(subject.reader, one, given)
            return {**case._asdict(), "readings": as_json(read)}
        tasks = halves_of(one.tasks.replace(y_query=None))
        if single:
            tasks = jax.tree.map(jnp.float32, tasks)
        with jax.enable_x64(not single):
            found = identify_streams(subject.reader, *tasks, **given)
        said = own_readings(found)
    verdict = verdict_of(found)
    return {
        **case._asdict(),
        "right": subject.names,
        "label": subject.label,
        "distance to oracle": subject.gap,
        "status": verdict.status,
        "names": verdict.names,
        "readings": as_json(said),
        "suspects": [row_of(one, case.kind == ENCODER) for one in found.suspects],
        "seconds": time.perf_counter() - began,
    }


def as_json(said: dict[str, Verdict]) -> dict[str, Any]:
    return {name: one._asdict() for name, one in said.items()}


def row_of(one: Suspect, trained: bool) -> dict[str, Any]:
    """A candidate: its distances, the reason against it, and distances of untrained models."""
    row: dict[str, Any] = {"candidate": one.fit.candidate, "because": one.because}
    row |= {space: found.mean for space, found in one.distances.items()}
    if trained:
        controls: dict[str, Any] = one.evidence.controls  # pyright: ignore[reportOptionalMemberAccess]
        other = [spaces for name, spaces in controls.items() if name.startswith("untrained")]
        row["untrained"] = {space: min(part[space].mean for part in other) for space in SPACES}
    return row


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


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--family", help="only the cases of one family of tasks")
    asked = with_folder(parser)
    jax.config.update("jax_enable_x64", True)
    config, names, every = BenchConfig(), candidates(), tuple(dict.fromkeys(cases()))
    if asked.quick:
        config, names, every = BenchConfig(**QUICK, quick=True), QUICK_NAMES, QUICK_CASES
    jobs = {
        case.file: partial(examine, case, config, names)
        for case in every
        if asked.family in (None, PROCESS if case.kind == ENCODER else case.tasks)
    }
    found = kept_rows(jobs, asked)
    facts = {"seeds": [0, 1, 2], "dtype": "float64, float32 in the cases float32"}
    facts |= {
        "config": dataclasses.asdict(config),
        "not run": [case for case in every if case.file not in found],
    }
    record = {"meta": meta("streams", **facts), "rows": rounded(joined([*found.values()]))}
    print(text := markdown(record))
    if not asked.quick:
        save("solverbench-streams", record, text)


if __name__ == "__main__":
    main()
