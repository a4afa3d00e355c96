"""`python -m benchmarks.profiles`: can errors, layer by layer, tell which solver a model runs?

The published protocol (`icl-krr identify RUN --protocol error-profile`) reads models whose solver
is known: the models of SolverBench, rotated, among channels of junk and with noise on the weights,
and models that run no candidate. The models are those of `python -m benchmarks.streams`, whose
verdicts stand beside. It takes about an hour of one CPU core. Rows are kept in `--folder`, so the
same command continues after an interruption. `--quick` is a smoke test; it writes no results.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.profiles_tables import FACTOR, OWN, PROBE, confusion_figure, markdown
from benchmarks.records import draw, kept, meta, options, rounded, save
from benchmarks.streams import forget_programs, subject_of
from benchmarks.streams_cases import FIRST, LEVELS, Case, others, setting_of, solvers
from benchmarks.streams_models import JUNK, NOISE, PLAIN, RANDOM, STRANGER, randoms, strangers
from icl_krr.catalogue import candidates
from icl_krr.experiments.identify.error_profile import CANDIDATES, Protocol, known_of, targets_of
from icl_krr.experiments.identify.profile_tables import record
from icl_krr.experiments.solverbench.known import KERNELS, exact
from icl_krr.experiments.solverbench.open_set import functions_of
from icl_krr.experiments.solverbench.settings import LINEAR, QUICK, BenchConfig, Setting
from icl_krr.probes import fit_probe, layerwise
from icl_krr.probes.naming.answers import halves_of
from icl_krr.tasks import Task, map_tasks
from icl_krr.transformer import Transformer

Row = dict[str, Any]


def cases() -> Iterator[Case]:
    """The models, the most important first."""
    yield from solvers(PLAIN, names=CANDIDATES, one=True)
    yield from others(STRANGER, strangers)
    yield from solvers(JUNK, 64, names=CANDIDATES, one=True)
    yield from (c for level in LEVELS for c in solvers(NOISE, level, names=FIRST, one=True))
    for seed in (1, 2):
        yield from solvers(PLAIN, seed=seed, names=CANDIDATES, one=True)
    yield from solvers(PLAIN, names=set_apart(), one=True)
    yield from solvers(PLAIN, names=CANDIDATES)
    yield from others(RANDOM, lambda one: randoms(one, 0))


def set_apart() -> tuple[str, ...]:
    """Candidates of `identify` that the protocol does not compare."""
    return tuple(name for name in candidates() if name not in CANDIDATES)


@cache
def protocol_of(family: str, kernel: str, config: BenchConfig) -> Protocol:
    """The protocol on the tasks of a family, with the kernel of the model first."""
    one = setting_of(family, config)
    made = one.kernel(kernel)
    both = [targets_of(tasks, made, one.ridge(made)) for tasks in halves_of(one.tasks)]
    kernels = dict.fromkeys((kernel, *KERNELS[family]))
    known = known_of(made, one.ridge(made))
    return Protocol(both, tuple(kernels), 2 * config.steps, known, config.seed)


def readers(case: Case, one: Setting, reader: Any) -> dict[str, Callable[[Task], jax.Array]]:
    """The ways to read predictions [L + 1, q] from a model."""
    found = {}
    if own := own_reader(case, one, reader):
        found[OWN] = own
        found[FACTOR] = partial(scaled, own, factors(own, one.probing))
    plain = reader if isinstance(reader, Transformer) else jax.jit(reader)
    found[PROBE] = partial(probed, reader, fit_probe(plain, one.probing))
    return found


def own_reader(case: Case, one: Setting, reader: Any) -> Callable[[Task], jax.Array] | None:
    if case.kind == STRANGER and case.about in (functions := functions_of(one)):
        return functions[case.about]
    if case.kind in (PLAIN, JUNK):
        model = exact(case.about, case.kernel, one)
        assert model.weights is not None
        weights = model.weights
        layers = slice(None) if model.layers is None else jnp.array(model.layers)
        return lambda task: layerwise(weights, task)[layers]
    if case.kind != RANDOM and isinstance(reader, Transformer):
        return partial(layerwise, reader)
    return None


def probed(reader: Any, probe: Any, task: Task) -> jax.Array:
    if isinstance(reader, Transformer):
        return layerwise(reader, task, probe)
    return probe(reader(task))[..., 0]


def factors(own: Callable[[Task], jax.Array], tasks: Task) -> jax.Array:
    """The factor of every layer [L + 1] with the least error on the tasks of the probes."""
    answers = jax.jit(partial(map_tasks, own))(tasks)
    products = jnp.sum(answers * tasks.y_query[:, None], axis=(0, 2))
    size = jnp.sum(answers**2, axis=(0, 2))
    return jnp.where(size > 0, products / jnp.where(size > 0, size, 1), 0)


def scaled(own: Callable[[Task], jax.Array], by: jax.Array, task: Task) -> jax.Array:
    return own(task) * by[:, None]


def examine(case: Case, config: BenchConfig) -> Row:
    """Read one model in all ways."""
    began = time.perf_counter()
    one = setting_of(case.tasks, dataclasses.replace(config, seed=case.seed))
    protocol = protocol_of(case.tasks, case.kernel, one.config)
    subject, found = subject_of(case, one), {}
    for name, read in readers(case, one, subject.reader).items():
        answer = jax.jit(partial(map_tasks, read))
        answers = [np.asarray(answer(t.tasks)) for t in (protocol.fitted, protocol.scored)]
        if np.all(np.isfinite(np.concatenate(answers))):
            found[name] = record(protocol.read(answers))
    return {
        **case._asdict(),
        "right": [name for name in subject.names if name in CANDIDATES],
        "runs": list(subject.names),
        "label": subject.label,
        "read": found,
        "seconds": time.perf_counter() - began,
    }


def shortened(row: Row) -> Row:
    """A row without the steps and parameters of candidates that are not nearest, for the record."""
    kept = {}
    for reader, found in row["read"].items():
        readings = [
            one
            | {
                "candidates": [
                    part
                    if part["candidate"] == one["nearest"]
                    else {key: part[key] for key in part if key not in ("steps", "values")}
                    for part in one["candidates"]
                ]
            }
            for one in found["readings"]
        ]
        kept[reader] = found | {"readings": readings}
    return row | {"read": kept}


def quick_cases() -> tuple[Case, ...]:
    return (
        Case(PLAIN, LINEAR, "gradient_descent", "linear"),
        Case(STRANGER, LINEAR, "a share of exact KRR", "linear"),
    )


def main() -> None:
    parser, place = options(__doc__), Path("icl-krr-profiles")
    parser.add_argument("--folder", type=Path, default=place, help="rows of an earlier run")
    parser.add_argument("--finished", action="store_true", help="only what the folder has already")
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    config, every = BenchConfig(), tuple(dict.fromkeys(cases()))
    if asked.quick:
        config, every = BenchConfig(**QUICK, quick=True), quick_cases()
    rows = []
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) if asked.quick else asked.folder
        folder.mkdir(exist_ok=True)
        for i, case in enumerate(every, start=1):
            forget_programs()
            if asked.finished and not (folder / case.file).exists():
                continue
            row = kept(folder / case.file, partial(examine, case, config))
            rows.append(row)
            said = [one["nearest"] for one in row["read"][PROBE]["readings"]]
            print(f"{i} of {len(every)}: {tuple(case)}: {said}, {row['seconds']:.0f} s", flush=True)
    left = len(every) - len(rows)
    text = markdown(rows, left)
    print(text)
    if asked.quick:
        return
    seeds = sorted({row["seed"] for row in rows})
    facts = {"seeds": seeds, "dtype": "float64", "not run": left}
    facts |= {"config": dataclasses.asdict(config)}
    record = {"meta": meta("profiles", **facts), "rows": [*map(shortened, rows)]}
    save("error-profiles", rounded(record), text)
    draw("error-profiles", confusion_figure(rows))


if __name__ == "__main__":
    main()
