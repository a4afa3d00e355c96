"""Which solver is a model running? Distances to every candidate, with intervals and a verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .. import checks
from ..catalogue import (
    KERNELS,
    candidate,
    candidates as all_candidates,
    find,
    make_kernel,
    taken,
)
from ..kernels import Kernel
from ..tasks import Task
from .candidate_fit import CandidateFit, fit_candidate, layer_by_layer
from .distances import (
    SPACES,
    Distance,
    answers_of_model,
    baseline_distances,
    distance,
    squared_distances,
    stratify,
)
from .hat import LayerAnswers

RESOLUTION = 1e-3
"""Differences between relative distances below this are none."""
CLOSE = 0.1
"""The relative distance up to which a model is said to run a solver: 1 % of the variance."""
IDENTIFIED, TIED, NONE = "identified", "not distinguishable", "none is close"


class Suspect(NamedTuple):
    """A candidate as it was fitted, its distances, and whether they rule it out.

    `because` says what does: the space where it is farther than the best, or a simpler candidate
    that it contains; empty for those that remain.
    """

    fit: CandidateFit
    distances: dict[str, Distance]
    because: str


class Identification(NamedTuple):
    """The verdict, every candidate in the order of its distance, and the baselines.

    `status` is "identified", "not distinguishable" (several candidates remain) or "none is close"
    (the best is farther than `CLOSE`); `remain` names the candidates that are left. `strata` are
    the edges of the condition number's, `baselines` the distances of zero and mean.
    """

    status: str
    remain: tuple[str, ...]
    suspects: tuple[Suspect, ...]
    baselines: dict[str, dict[str, Distance]]
    strata: tuple[float, ...]

    @property
    def best(self) -> Suspect:
        """The nearest candidate."""
        return self.suspects[0]


def identify(
    layer_answers: LayerAnswers,
    fitted: Task,
    scored: Task,
    *,
    candidates: tuple[str, ...] | None = None,
    kernels: tuple[str, ...] | None = None,
    steps: int | None = None,
    strata: int = 2,
    system: tuple[Kernel, float] | None = None,
    per_layer: bool = False,
    seed: int = 0,
    progress: Callable[[str], None] = lambda name: None,
) -> Identification:
    r"""Compare the answers of every layer with the steps of every candidate solver.

    `layer_answers` gives a task's answers after every layer, [L + 1, q], as `layerwise` does. Each
    candidate on each of the `kernels` that it takes (by default all of the catalogue) has its
    parameters fitted to the predictions of the batch `fitted`, all alike, and its layers aligned
    with at most `steps` steps (by default 2 L), without going back; the kernel that fits best is
    kept. On the batch `scored` the relative distance of predictions and of hat matrices $df / dy$
    then counts, mean over layers.

    A candidate is ruled out if, in one of the two spaces, its interval (95 % of 1000 resamples of
    the tasks) lies beyond that of the nearest by more than `RESOLUTION`, or if a candidate that
    remains is a special case of it. With `per_layer` parameters are refined for each layer. The
    `strata` are groups of tasks of equal size by the condition number of $K + \lambda I$, for the
    kernel and the ridge of a `system`, or of the candidate that fits best.

    Raises ValueError for tasks with several outputs or masks, unknown candidates and kernels.

    >>> import jax
    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), (2, 4))
    >>> draw = jax.vmap(ik.tasks.sample, in_axes=(0, None))
    >>> model = ik.constructions.nadaraya_watson(ik.Exponential(0.7), num_features=2)
    >>> answers = lambda task: ik.probes.layerwise(model, task)
    >>> tasks = [draw(key, config) for key in keys]
    >>> identify(answers, *tasks, candidates=("nadaraya_watson",), kernels=("exponential",)).status
    'identified'
    """
    rows = [candidate(name) for name in (all_candidates() if candidates is None else candidates)]
    asked = KERNELS if kernels is None else kernels
    kernels = tuple(find("kernel", KERNELS, name).name for name in asked)
    model = answers_of_model(layer_answers, fitted, scored)
    layers = model.answers.shape[1]
    steps = 2 * layers if steps is None else steps
    checks.count("steps", steps)
    fits = []
    for row in rows:
        takes = [kernel for kernel in taken(row.name) if kernel in kernels]
        if not takes:
            continue
        progress(row.name)
        found = [fit_candidate(row.name, kernel, fitted, model.answers, steps) for kernel in takes]
        best = min(found, key=lambda one: one.error)
        fits.append(layer_by_layer(best, fitted, model.answers, steps) if per_layer else best)
    if not fits:
        raise ValueError(f"kernels must suit a candidate, got {kernels} for {candidates}")
    first = min(fits, key=lambda one: one.error)
    by = (make_kernel(first.kernel, first.values), first.values.get("ridge", 0.0))
    edges, stratum = stratify(*(by if system is None else system), scored, strata)
    resample = np.random.default_rng(seed).multinomial(
        len(stratum), np.full(len(stratum), 1 / len(stratum)), size=1000
    )
    parts = [squared_distances(one, model, steps) for one in fits]
    measured = [
        {space: distance(part[space], one.alignment, stratum, resample) for space in SPACES}
        for one, part in zip(fits, parts, strict=True)
    ]
    because = rule_out(fits, measured)
    suspects = [Suspect(*one) for one in zip(fits, measured, because, strict=True)]
    suspects.sort(key=lambda s: (bool(s.because), sum(d.mean for d in s.distances.values())))
    remain = tuple(s.fit.candidate for s in suspects if not s.because)
    close = all(d.mean <= CLOSE for d in suspects[0].distances.values())
    status = NONE if not close else IDENTIFIED if len(remain) == 1 else TIED
    known = {name: baseline_distances(name, model, stratum, resample) for name in ("zero", "mean")}
    return Identification(status, remain, tuple(suspects), known, edges)


def rule_out(fits: list[CandidateFit], measured: list[dict[str, Distance]]) -> list[str]:
    """Why each candidate is ruled out, or nothing."""
    because, firsts = [""] * len(fits), []
    for space in SPACES:
        nearest = min(range(len(fits)), key=lambda i: measured[i][space].mean)
        firsts.append(nearest)
        reach = measured[nearest][space].interval[1] + RESOLUTION
        for i, found in enumerate(measured):
            if found[space].interval[0] > reach and not because[i]:
                because[i] = f"{space}: farther than {fits[nearest].candidate}"
    if all(because):  # another one is nearest in each space: neither can be told to be it
        because = ["" if i in firsts else reason for i, reason in enumerate(because)]
    remain = {one.candidate for one, reason in zip(fits, because, strict=True) if not reason}
    for i, one in enumerate(fits):
        simpler = [name for name in candidate(one.candidate).contains if name in remain]
        if not because[i] and simpler:
            because[i] = f"has {simpler[0]} as a special case"
    return because
