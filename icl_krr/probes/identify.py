"""Identify the solver that a model runs: distances to every candidate, intervals and a verdict."""

from __future__ import annotations

from collections.abc import Callable

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
from ..kernels import Kernel, check_kernel
from ..tasks import Task
from ..tasks.task import check_axes
from .candidate_fit import CandidateFit, fit_candidate, layer_by_layer
from .distances import (
    BASELINES,
    SPACES,
    Distance,
    answers_of_model,
    baseline_distances,
    distance,
    squared_distances,
    stratify,
)
from .hat import LayerAnswers
from .identification import CLOSE, IDENTIFIED, NONE, NOTHING, TIED, Identification, Suspect

RESOLUTION = 1e-3
"""Two relative distances count as equal if they differ by less than this value."""


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
    r"""Compare the predictions of every layer with the steps of every candidate solver.

    1. Every candidate is fitted to the predictions on the batch `fitted`, with the same parameters
       for all tasks. Each layer is aligned with one step. The aligned steps never decrease from
       layer to layer. Each candidate keeps the kernel that fits best.
    2. On the batch `scored`, the relative distances of predictions and of hat matrices $df / dy$
       are averaged over layers. Intervals cover 95 % of 1000 bootstrap resamples of the tasks.
    3. A candidate is ruled out if its interval in one of the two spaces lies more than `RESOLUTION`
       = 0.001 above the interval of the nearest candidate. It is also ruled out if a remaining
       candidate is a special case of it, or if every layer is aligned with its start and a
       remaining candidate takes steps.
    4. Three baselines run no solver: 0, the mean of y, and the prediction before the first layer.
       If the same rule does not rule out all of them, no solver is identified.

    Args:
        layer_answers: function from a task with y [n] to the predictions before the first layer and
            after every layer [L + 1, q], such as `partial(layerwise, model)`.
        fitted: batch of tasks for the parameters and the alignment, y [b, n], without masks.
        scored: batch of other tasks for the distances, y [b, n], without masks.
        candidates: names of candidate solvers; default: all candidates of the catalogue.
        kernels: names of kernels; default: all kernels of the catalogue. Each candidate is fitted
            with every kernel of this list that it accepts.
        steps: largest number of solver steps, >= 1, 2 L by default.
        strata: number of groups, 2 by default. The tasks are sorted by the condition number of
            $K + \lambda I$ and split into groups of equal size.
        system: kernel and ridge for this condition number; default: those of the candidate that
            fits best.
        per_layer: whether to refine the parameters for each layer, False by default.
        seed: seed of the bootstrap resamples, 0 by default.
        progress: function that is called with the name of each candidate before its fit. The
            default does nothing.

    Returns:
        An `Identification`.

    Raises:
        TypeError: `layer_answers` does not return one array of floating-point numbers.
        ValueError: a candidate or kernel is unknown, no candidate accepts any of the kernels, the
            tasks have several outputs or masks, or `layer_answers` does not return [L + 1, q].

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
    checks.function("layer_answers", layer_answers)
    check_axes(fitted, 1, "fitted")
    check_axes(scored, 1, "scored")
    for name, chosen in (("candidates", candidates), ("kernels", kernels)):
        if chosen is not None:
            checks.names(name, chosen)
    checks.count("strata", strata)
    checks.count("seed", seed, minimum=0)
    checks.flag("per_layer", per_layer)
    if system is not None:
        if not isinstance(system, tuple) or len(system) != 2:
            raise TypeError(f"system must be a pair (kernel, ridge), got {checks.shown(system)}")
        check_kernel(system[0])
        checks.positive_scalar("ridge of system", system[1])
    asked = all_candidates() if candidates is None else candidates
    rows = list({row.name: row for row in map(candidate, asked)}.values())
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
        raise ValueError(
            f"kernels must contain a kernel that a candidate accepts, got {', '.join(kernels)} for "
            f"candidates {', '.join(row.name for row in rows)}"
        )
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
    known = {name: baseline_distances(name, model, stratum, resample) for name in BASELINES}
    as_near = unbeaten(measured, known)
    because = rule_out(fits, measured)
    if as_near:
        trivial = f"no nearer than {BASELINES[as_near[0]]}"
        because = [reason or trivial for reason in because]
    suspects = [Suspect(*one) for one in zip(fits, measured, because, strict=True)]
    suspects.sort(key=lambda s: (bool(s.because), sum(d.mean for d in s.distances.values())))
    remain = tuple(s.fit.candidate for s in suspects if not s.because)
    close = all(d.mean <= CLOSE for d in suspects[0].distances.values())
    status = NONE if not close else IDENTIFIED if len(remain) == 1 else TIED
    status = NOTHING if as_near else status
    return Identification(status, remain, tuple(suspects), known, edges, as_near)


def unbeaten(
    measured: list[dict[str, Distance]], baselines: dict[str, dict[str, Distance]]
) -> tuple[str, ...]:
    """The baselines that the rule for candidates does not rule out, the nearest first."""
    reach = {}
    for space in SPACES:
        nearest = min((found[space] for found in measured), key=lambda one: one.mean)
        reach[space] = nearest.interval[1] + RESOLUTION
    names = [
        name
        for name, found in baselines.items()
        if all(found[space].interval[0] <= reach[space] for space in SPACES)
    ]
    return tuple(sorted(names, key=lambda name: sum(d.mean for d in baselines[name].values())))


def rule_out(fits: list[CandidateFit], measured: list[dict[str, Distance]]) -> list[str]:
    """The reason why each candidate is ruled out, or an empty string."""
    because, firsts = [""] * len(fits), []
    for space in SPACES:
        nearest = min(range(len(fits)), key=lambda i: measured[i][space].mean)
        firsts.append(nearest)
        reach = measured[nearest][space].interval[1] + RESOLUTION
        for i, found in enumerate(measured):
            if found[space].interval[0] > reach and not because[i]:
                because[i] = f"{space}: farther than {fits[nearest].candidate}"
    if all(because):  # the two spaces have different nearest candidates: keep both
        because = ["" if i in firsts else reason for i, reason in enumerate(because)]
    stays = [not np.any(one.alignment) for one in fits]
    if any(not (still or reason) for still, reason in zip(stays, because, strict=True)):
        for i, still in enumerate(stays):
            if still and not because[i]:  # its start says nothing about the steps after it
                because[i] = "takes no step"
    remain = {one.candidate for one, reason in zip(fits, because, strict=True) if not reason}
    for i, one in enumerate(fits):
        simpler = [name for name in candidate(one.candidate).contains if name in remain]
        if not because[i] and simpler:
            because[i] = f"has {simpler[0]} as a special case"
    return because
