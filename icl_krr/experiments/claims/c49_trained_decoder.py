"""C49: whether trained decoders have the errors of preconditioned Richardson iteration."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from ...catalogue import name_of
from ...probes import Probe, fit_probe, has_slot, layerwise
from ...tasks import Task, map_tasks
from ...transformer import Transformer
from ..identify.error_profile import CANDIDATES, Protocol, Reading, Rival, known_of, targets_of
from ..identify.probe_controls import in_dtype_of_tasks, untrained
from ..identify.profile_fit import Search
from ..identify.profile_paths import NULLS, path
from ..shared.runs import load
from .claim import FALSE, FAMILY, Claim, Verdict, at_least, at_most, judge, named
from .measuring import Plot, Rows, draw_tasks

TRAINED, RANDOM = "trained", "untrained"
RICHARDSON = "richardson"


class Config(NamedTuple):
    """Settings: `search` has the points of a search, and the points that are refined."""

    runs: tuple[str, ...] = ("gp-decoder-4", "gp-decoder-8", "gp-decoder-12")
    tasks: int = 16
    probe_tasks: int = 256
    num_queries: int = 8
    steps: int = 24
    candidates: tuple[str, ...] = CANDIDATES[:-1]
    search: tuple[int, int] = (192, 2)


def run(config: Config, key: jax.Array) -> tuple[Rows, Verdict]:
    """Read decoders and untrained models of their shapes by a linear probe, on the same tasks."""
    loaded = {name: load(name) for name in config.runs}
    family: Any = loaded[config.runs[0]].family
    family = dataclasses.replace(family, num_queries=config.num_queries)
    counts = config.probe_tasks, config.tasks, config.tasks
    probing, *both = (
        draw_tasks(jax.random.fold_in(key, i), n, family) for i, n in enumerate(counts)
    )
    kernel, ridge = family.optimal()
    both = [targets_of(tasks, kernel, ridge) for tasks in both]
    known = known_of(kernel, float(ridge))
    options: Any = {"candidates": config.candidates, "search": Search(*config.search)}
    protocol, rows = Protocol(both, (name_of(kernel),), config.steps, known, **options), []
    for i, (name, one) in enumerate(loaded.items()):
        model = in_dtype_of_tasks(one.model, probing)
        other = untrained(model, probing, jax.random.fold_in(key, len(counts) + i))
        for words, each in ((TRAINED, model), (RANDOM, other)):
            if each is None:
                continue
            probe = None if has_slot(each) else fit_probe(each, probing)
            answers = [answers_of(each, probe, targets.tasks) for targets in both]
            found, about = protocol.read(answers), {"run": name, "model": words}
            tuned = partial(predicted, protocol, answers[1])
            rows += [about | of_reading(reading, tuned) for reading in found.readings]
            errors = 10 ** found.curves["error"]
            rows += [about | {"layer": at, "error": float(e)} for at, e in enumerate(errors)]
    return rows, judge(*named(checks(rows, config.candidates)))


@jax.jit
def answers_of(model: Transformer, probe: Probe | None, tasks: Task) -> jax.Array:
    """Predictions after every layer [tasks, layer, query]."""
    return map_tasks(partial(layerwise, model, probe=probe), tasks)


@partial(jax.jit, static_argnums=(0, 1, 4))
def steps_of(name: str, kernel: str, logs: jax.Array, tasks: Task, steps: int) -> jax.Array:
    """Predictions of a solver or a null after every step [tasks, step, query]."""
    return map_tasks(lambda task: path(name, kernel, logs, task, steps), tasks)


def predicted(protocol: Protocol, answers: jax.Array, rival: Rival) -> float:
    """The relative distance of predictions after layers and at the steps they are compared with.

    It is the root mean square over tasks, layers and queries, with the parameters of the errors.
    """
    count = protocol.tuners[rival.kernel].steps_of(rival.name)
    made = steps_of(rival.name, rival.kernel, rival.tuned.logs, protocol.scored.tasks, count)
    theirs, ours = np.asarray(made)[:, list(rival.tuned.steps)], np.asarray(answers)[:, 1:]
    return float(np.sqrt(np.mean((ours - theirs) ** 2) / np.mean(ours**2)))


def of_reading(reading: Reading, tuned: Any) -> dict[str, Any]:
    """What a reading says, with distances of errors and of predictions."""
    null = next(one for one in reading.rivals if one.name in NULLS)
    ours = next(one for one in reading.rivals if one.name == RICHARDSON)
    return {
        "measure": reading.measure,
        "alignment": reading.alignment,
        "named": reading.nearest.name,
        "null is as near": any(name in NULLS for name in reading.as_near),
        "Richardson is as near": RICHARDSON in (reading.nearest.name, *reading.as_near),
        **{f"distance, {one.name}": one.far for one in reading.rivals},
        "distance, nearest null": null.far,
        "predictions, nearest": tuned(reading.nearest),
        "predictions, richardson": tuned(ours),
        "predictions, nearest null": tuned(null),
    }


def checks(rows: Rows, candidates: Sequence[str]) -> dict[str, Any]:
    return {"x": at_most(0.0, 1.0, stated=True), "y": at_least(1.0, 0.0)}


CLAIM = Claim(
    title="trained decoders run preconditioned Richardson iteration",
    statement="...",
    truth="...",
    source="Yan et al. 2026, abstract",
    quote="Empirically, we train GPT-2-style transformers on Gaussian-process regression tasks to "
    "further test the preconditioned Richardson interpretation. Through linear probing, we compare "
    "the transformer's layer-wise predictions with the step-wise outputs of classical KRR solvers "
    "and find that its error profiles align most consistently with preconditioned Richardson "
    "iteration.",
    expected=FALSE,
    told=FAMILY,
    run=run,
    quick=Config(
        runs=("gp-decoder-4",),
        tasks=8,
        probe_tasks=128,
        num_queries=4,
        steps=8,
        candidates=("richardson", "conjugate_gradient"),
        search=(32, 1),
    ),
    plot=Plot(x="layer", y="error", by=("run", "model")),
)
