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
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.records import kept, meta, options, rounded, save
from benchmarks.streams_cases import ENCODER, QUICK_CASES, Case, cases, setting_of
from benchmarks.streams_models import (
    PLAIN,
    POWERS,
    RANDOM,
    SINGLE,
    STRANGER,
    Subject,
    in_float32,
    known,
    powers,
    randoms,
    strangers,
)
from benchmarks.streams_readings import halves, other_readings, own_readings
from benchmarks.streams_tables import markdown
from icl_krr.catalogue import candidates
from icl_krr.experiments.identify.probe_controls import in_dtype_of_tasks
from icl_krr.experiments.shared.draws import draw_tasks
from icl_krr.experiments.shared.runs import load
from icl_krr.experiments.solverbench.settings import PROCESS, QUICK, BenchConfig, Setting
from icl_krr.experiments.solverbench.verdicts import Verdict, verdict_of
from icl_krr.probes.naming.answers import halves_of
from icl_krr.probes.naming.identification import Identification, Suspect
from icl_krr.probes.naming.stream_identify import identify_streams

SLOW = "prefix_conjugate_gradient"
"""A candidate that takes as long as all others together, on the linear kernel. It is offered only
where it is the truth."""


QUICK_NAMES = ("gradient_descent", "conjugate_gradient")


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


def examine(case: Case, config: BenchConfig, names: tuple[str, ...]) -> dict[str, Any]:
    """Identify a model, or read it in the ways of a linear probe."""
    began, subject, said = time.perf_counter(), Subject(lambda task: task.x), {}
    if case.kind == ENCODER:
        found = encoder(case)
    else:
        one = setting_of(case.tasks, dataclasses.replace(config, seed=case.seed))
        subject, tasks, single = subject_of(case, one), halves(one), case.kind == SINGLE
        offered = case.about == SLOW
        given = {
            "candidates": tuple(name for name in names if name != SLOW or offered),
            "kernels": (case.kernel,),
            "steps": 2 * config.steps,
            "seed": case.seed,
        }
        if case.probed:
            read = other_readings(subject.reader, one, case.kernel, given)
            return {**case._asdict(), **as_json(read), "seconds": time.perf_counter() - began}
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
        **as_json(said),
        "suspects": [row_of(one) for one in found.suspects],
        "as near": found.as_near,
        "seconds": time.perf_counter() - began,
    }


def as_json(said: dict[str, Verdict]) -> dict[str, Any]:
    return {"readings": {name: one._asdict() for name, one in said.items()}}


def joined(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of verdicts, with the readings of a linear probe of the same model."""
    names = [name for name in Case._fields if name != "probed"]
    probed = {tuple(row[name] for name in names): row for row in rows if row["probed"]}
    found = []
    for row in rows:
        if not row["probed"]:
            more = probed.get(tuple(row[name] for name in names), {"readings": {}})
            found.append({**row, "readings": row["readings"] | more["readings"]})
    return found


def row_of(one: Suspect) -> dict[str, Any]:
    """What is kept of a candidate: its fit, distances, reason, use, and distances of controls."""
    known: Any = one.evidence
    return {
        "candidate": one.fit.candidate,
        **{space: found.mean for space, found in one.distances.items()},
        "because": one.because,
        "values": one.fit.values,
        "steps": one.fit.alignment,
        "controls": {
            name: {space: found.mean for space, found in spaces.items()}
            for name, spaces in known.controls.items()
        },
        "supports": {name: found["state"].mean for name, found in known.supports.items()},
        "ranks": known.ranks,
        "effects": known.effects,
    }


def forget_programs() -> None:
    """Programs map memory, and Linux limits the number of maps of a process."""
    maps = Path("/proc/self/maps")
    if maps.exists() and len(maps.read_text().splitlines()) > 32_000:
        jax.clear_caches()


def main() -> None:
    parser, place = options(__doc__), Path("icl-krr-streams")
    parser.add_argument("--folder", type=Path, default=place, help="rows of an earlier run")
    parser.add_argument("--finished", action="store_true", help="only what the folder has already")
    parser.add_argument("--family", help="only the cases of one family of tasks")
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    config, names, every = BenchConfig(), candidates(), tuple(dict.fromkeys(cases()))
    if asked.quick:
        config, names, every = BenchConfig(**QUICK, quick=True), QUICK_NAMES, QUICK_CASES
    rows, failed = [], {}
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) if asked.quick else asked.folder
        folder.mkdir(exist_ok=True)
        for i, case in enumerate(every, start=1):
            forget_programs()
            if asked.family not in (None, PROCESS if case.kind == ENCODER else case.tasks):
                continue
            if asked.finished and not (folder / case.file).exists():
                continue
            words = f"{i} of {len(every)}: {tuple(case)}"
            try:
                row = kept(folder / case.file, partial(examine, case, config, names))
            except ValueError as error:  # one model that cannot be read must not stop the others
                failed[repr(tuple(case))] = str(error)
                print(f"{words}: {error}", flush=True)
                continue
            said = [row["status"], *row["names"]] if not case.probed else [str(row["readings"])]
            print(f"{words}: {' '.join(said)}, {row['seconds']:.0f} s", flush=True)
            rows.append(row)
    done = {tuple(row[name] for name in Case._fields) for row in rows}
    left = [tuple(case) for case in every if tuple(case) not in done]
    earlier = [row for row in rows if "earlier" in row]  # kept from before a change, and marked
    text = markdown(joined(rows), left, failed, earlier)
    print(text)
    if asked.quick:
        return
    facts = {"seeds": [0, 1, 2], "dtype": "float64, float32 in the cases float32"}
    facts |= {"config": dataclasses.asdict(config), "not run": left, "failed": failed}
    save(
        "solverbench-streams",
        {"meta": meta("streams", **facts), "rows": rounded(joined(rows))},
        text,
    )


if __name__ == "__main__":
    main()
