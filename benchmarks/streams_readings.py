"""The readings that `benchmarks.streams` compares, each with its verdict on the same stream."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import qmc

from benchmarks.streams_models import Reader
from icl_krr.catalogue import candidate, taken
from icl_krr.experiments.solverbench.models import Answers, answers_and_hats
from icl_krr.experiments.solverbench.settings import Setting
from icl_krr.experiments.solverbench.verdicts import NONE, Verdict, identify_answers, verdict_of
from icl_krr.probes import fit_probe, layerwise
from icl_krr.probes.naming.answers import halves_of
from icl_krr.probes.naming.candidates import absolute, parameters, solve
from icl_krr.probes.naming.identification import (
    EXACT,
    IDENTIFIED,
    NEAR,
    TIED,
    Identification,
    status_of,
)
from icl_krr.probes.naming.ruling import RESOLUTION
from icl_krr.probes.naming.stream_fit import alignments
from icl_krr.probes.naming.stream_identify import identify_streams
from icl_krr.tasks import Task, map_tasks
from icl_krr.transformer import Transformer

READINGS = {
    "probe": "`identify` on a linear probe that is fitted to y at the queries",
    "profile": "nearest error of a candidate, step by step, to that of the probe, layer by layer",
    "factor": "`identify_streams` on the probe's answer: a factor and an offset for each layer",
    "state": "nearest candidate by the state, at most 0.01 away",
    "innovation": "nearest candidate by the innovation, at most 0.01 away",
    "streams": "`identify_streams` with all its controls, as if use were not measured",
    "use": "the verdict of `identify_streams`",
}
UNUSED = "the answer does not follow"
"""Start of the reason why a decoded candidate is ruled out because of its use."""
SAYS_NOTHING = ("its steps are nearly", "diverges")
"""Starts of the reasons of candidates whose distances say nothing."""
POINTS = 512
"""Points of the Halton search of error profiles."""


def own_readings(found: Identification) -> dict[str, Verdict]:
    """The readings that one result of `identify_streams` holds."""
    every = [one for one in found.suspects if not one.because.startswith(SAYS_NOTHING)]
    said = {}
    for space in ("state", "innovation"):
        said[space] = nearest({one.fit.candidate: one.distances[space].mean for one in every})
    remain = [one for one in every if not one.because or one.because.startswith(UNUSED)]
    remain.sort(key=lambda one: sum(part.mean for part in one.distances.values()))
    status = status_of([max(part.mean for part in one.distances.values()) for one in remain])
    names = tuple(one.fit.candidate for one in remain)
    unused = Verdict(status, names) if status in (IDENTIFIED, TIED, NEAR) else Verdict(NONE)
    return said | {"streams": unused, "use": verdict_of(found)}


def nearest(distances: dict[str, float]) -> Verdict:
    """The nearest candidate, or a special case that is as near, if it is at most 0.01 away."""
    if not distances:
        return Verdict(NONE)
    leader = min(distances, key=lambda name: distances[name])
    far = distances[leader]
    for name in candidate(leader).contains:
        if distances.get(name, np.inf) <= far + RESOLUTION:
            leader = name
    return Verdict(IDENTIFIED, (leader,)) if far <= EXACT else Verdict(NONE)


def other_readings(
    reader: Reader, one: Setting, kernel: str, options: dict[str, Any]
) -> dict[str, Verdict]:
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
    fitted, scored = halves(one)
    factor = identify_streams(lambda task: answers(task)[..., None], fitted, scored, **options)
    return {
        "probe": verdict_of(found),
        "profile": profile(read.answers, one, kernel, options["steps"], options["candidates"]),
        "factor": verdict_of(factor),
    }


def halves(one: Setting) -> tuple[Task, Task]:
    """The tasks to fit and those to score, without y_query."""
    return halves_of(one.tasks.replace(y_query=None))


def profile(
    answers: np.ndarray, one: Setting, kernel: str, steps: int, names: tuple[str, ...]
) -> Verdict:
    """The candidate whose errors after its steps are most like those of the layers.

    The parameters and the steps per layer are the best of a search. A distance is the root mean
    square, over layers, of the logarithm of the ratio of both errors.
    """
    own = np.log(np.mean((answers - np.asarray(one.tasks.y_query)[:, None]) ** 2, axis=(0, 2)))[1:]
    tried, far = np.array(alignments(len(own), steps)), {}
    for name in names:
        if kernel in taken(name):
            errors = profiles(name, kernel, one.name, one.config.seed, steps, HashedById(one))
            gaps = np.sqrt(np.mean((errors[:, tried] - own) ** 2, axis=-1))
            far[name] = float(np.min(np.nan_to_num(gaps, nan=np.inf)))
    return Verdict(IDENTIFIED, (min(far, key=lambda name: far[name]),))


class HashedById:
    """A setting as an argument of a cached function; the other arguments tell settings apart."""

    def __init__(self, one: Setting):
        self.one = one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashedById)

    def __hash__(self) -> int:
        return 0


@cache
def profiles(
    name: str, kernel: str, family: str, seed: int, steps: int, hashed: HashedById
) -> np.ndarray:
    """Logarithms of the errors of a candidate after its steps [points, steps + 1]."""
    row, tasks = candidate(name), hashed.one.tasks
    plain = tasks.replace(y_query=None)
    cube = qmc.Halton(len(parameters(row, kernel)), scramble=False).random(POINTS)

    @jax.jit
    def errors(points: jax.Array) -> jax.Array:
        def at(point: jax.Array) -> jax.Array:
            logs = absolute(row, kernel, point, plain)
            found = map_tasks(lambda task: solve(row, kernel, logs, task, steps), plain)
            return jnp.mean((found - tasks.y_query[:, None]) ** 2, axis=(0, 2))

        return jnp.log(jax.lax.map(at, points))

    return np.asarray(errors(cube))
