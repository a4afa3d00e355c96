"""Identify the solver that a model runs: distances to every candidate, intervals and a verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import checks
from ...catalogue import (
    KERNELS,
    Solver,
    candidate,
    candidates as all_candidates,
    find,
    make_kernel,
    taken,
)
from ...kernels import Kernel, check_kernel
from ...tasks import Task
from ...tasks.task import check_axes
from ..reading.derivatives import LayerAnswers
from .answers import ModelAnswers, answers_of_arrays, answers_of_model
from .candidate_fit import CandidateFit, fit_candidate, layer_by_layer
from .distances import BASELINES, Distance, baseline_gaps, candidate_gaps, distance, stratify
from .identification import EXACT, NOTHING, Identification, Statement, Suspect, status_of
from .ladder import NULLS, ladder
from .ruling import CLOSE, Gaps, is_close, is_regular, rule_out

RAISED = 4
"""A candidate with a layer at the last step gets this many times as many steps."""


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
       layer to layer. Each candidate keeps the kernel that fits best. A candidate with
       a layer at the last step is fitted again with 4 times as many steps if it is within 0.1 or
       if no candidate is within 0.01.
    2. On the batch `scored`, the relative distances of predictions and of hat matrices $df / dy$
       are averaged over layers. Intervals cover 95 % of 1000 bootstrap resamples of the tasks.
    3. The differences of these distances from those of the nearest candidate are compared on the
       same resamples, with intervals that hold for all candidates together. A candidate is ruled
       out if it is farther by more than `RESOLUTION` = 0.001 in one of the two spaces and not
       nearer in the other, or if it diverges. It is also ruled out if a remaining candidate is a
       special case of it and as near, or if every layer is aligned with its start and a remaining
       candidate takes steps.
    4. Three baselines run no solver: 0, the mean of y, and the prediction before the first layer.
       Three nulls have a value of their own at every layer, but take no steps: exact kernel ridge
       regression with a ridge per layer, gradient flow with a time per layer, and an interpolation
       between 0 and exact kernel ridge regression. They are fitted and scored as candidates are.
       If the same rule does not rule out all of these, no solver is identified. If no candidate is
       close, only the baselines count.
    5. One remaining candidate is identified if its distance is at most 0.01 in both spaces and its
       steps are regular. Otherwise the model is at most close to it.
    6. The ladder has weaker statements, from "homogeneous in y" to "a polynomial of K".

    Args:
        layer_answers: function from a task with y [n] to the predictions before the first layer and
            after every layer [L + 1, q], such as `partial(layerwise, model)`. Tasks with y [n, r]
            have predictions [L + 1, q, r].
        fitted: batch of tasks for the parameters and the alignment.
        scored: batch of other tasks for the distances, of the same shapes except for b. With
            fewer than 12 tasks, the bootstrap intervals are too short.
        candidates: names of candidate solvers; default: all candidates of the catalogue.
        kernels: names of kernels; default: all kernels of the catalogue. Each candidate is fitted
            with every kernel of this list that it accepts.
        steps: largest number of solver steps, >= 1, 4 L by default (see 1).
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
        ValueError: a candidate or kernel is unknown, no candidate accepts any of the kernels, or
            `layer_answers` does not return [L + 1, q].

    Source of the intervals: Westfall, Young, Resampling-based multiple testing, 1993.

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
    for name, tasks in (("fitted", fitted), ("scored", scored)):
        check_axes(tasks, 1, name)
    options = Options(candidates, kernels, steps, strata, system, per_layer, seed, progress)
    return compare(answers_of_model(layer_answers, fitted, scored), options)


def identify_arrays(
    tasks: Task,
    answers: npt.ArrayLike,
    hats: npt.ArrayLike,
    *,
    other_hats: npt.ArrayLike | None = None,
    **options: Any,
) -> Identification:
    """Identify the solver of a model of any library, from arrays of its predictions.

    The first half of the tasks fits the candidates, and the second half scores them. Otherwise
    this is `identify`. Choose float64: distances of hat matrices below 1e-3 need it. The bootstrap
    intervals are too short with fewer than 12 tasks in each half.

    Args:
        tasks: batch of b >= 4 tasks, better 24 or more. A mask makes contexts of mixed length.
        answers: predictions before the first layer and after every layer [b, L + 1, q], or
            [b, L + 1, q, r] for y [b, n, r].
        hats: derivatives of these predictions with respect to y [b, L + 1, q, n], or
            [b, L + 1, q, r, n, r].
        other_hats: the same derivatives where each task has the outputs y of the next task, and
            the last has those of the first. They tell whether the model is linear in y. Default:
            the ladder has no such statement.
        **options: keyword arguments of `identify` from `candidates` on.

    Returns:
        An `Identification`.

    Raises:
        TypeError: an array is not floating point, or an option is unknown.
        ValueError: an array does not fit `tasks` or is not finite, or an option is out of range.

    >>> import jax, jax.numpy as jnp
    >>> import icl_krr as ik
    >>> config = ik.tasks.LinearRegression(num_features=2, num_supports=4)
    >>> keys = jax.random.split(jax.random.key(0), 24)
    >>> tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, config)
    >>> slopes = 0.1 * np.einsum("bqp,bnp->bqn", tasks.x_query, tasks.x)  # one gradient step
    >>> hats = np.stack([0 * slopes, slopes], axis=1)
    >>> answers = np.einsum("blqn,bn->blq", hats, tasks.y)
    >>> names = ("gradient_descent", "nadaraya_watson")
    >>> found = identify_arrays(tasks, answers, hats, candidates=names, kernels=("linear",))
    >>> found.status, found.remain
    ('identified', ('gradient_descent',))
    """
    model = answers_of_arrays(tasks, answers, hats, other_hats)
    return compare(model, Options(**options))


@dataclass(frozen=True)
class Options:
    """The keyword arguments of `identify`, checked before anything is compiled."""

    candidates: tuple[str, ...] | None = None
    kernels: tuple[str, ...] | None = None
    steps: int | None = None
    strata: int = 2
    system: tuple[Kernel, float] | None = None
    per_layer: bool = False
    seed: int = 0
    progress: Callable[[str], None] = lambda name: None

    def __post_init__(self):
        for name in ("candidates", "kernels"):
            if getattr(self, name) is not None:
                checks.names(name, getattr(self, name))
        for name, least in (("strata", 1), ("seed", 0)):
            checks.count(name, getattr(self, name), least)
        if self.steps is not None:
            checks.count("steps", self.steps)
        checks.flag("per_layer", self.per_layer)
        checks.function("progress", self.progress)
        system = self.system
        if system is not None:
            if not isinstance(system, tuple) or len(system) != 2:
                raise TypeError(
                    f"system must be a pair (kernel, ridge), got {checks.shown(system)}"
                )
            check_kernel(system[0])
            checks.positive_scalar("ridge of system", system[1])
        if not any(self.kernels_of(row) for row in self.rows):
            raise ValueError(
                "kernels must contain a kernel that a candidate accepts, got "
                f"{', '.join(self.tried)} for candidates {', '.join(row.name for row in self.rows)}"
            )

    @property
    def rows(self) -> list[Solver]:
        asked = all_candidates() if self.candidates is None else self.candidates
        return list({row.name: row for row in map(candidate, asked)}.values())

    @property
    def tried(self) -> tuple[str, ...]:
        asked = KERNELS if self.kernels is None else self.kernels
        return tuple(find("kernel", KERNELS, name).name for name in asked)

    def kernels_of(self, row: Solver) -> list[str]:
        return [kernel for kernel in taken(row.name) if kernel in self.tried]


def compare(model: ModelAnswers, options: Options) -> Identification:
    """Fit all candidates and nulls to the answers of a model, and rule out what is farther."""
    steps = 4 * model.answers.shape[1] if options.steps is None else options.steps
    fits, tried = [], []
    for row in options.rows:
        if kernels := options.kernels_of(row):
            options.progress(row.name)
            fits.append(fit(row.name, kernels, model, steps))
            tried.append(steps)
    none_fits = min(one.error for one in fits) > EXACT
    for i, one in enumerate(fits):
        may_fit = one.error <= CLOSE  # then it is worth a search of its own
        if at_limit(one, steps) and (none_fits or may_fit):
            options.progress(f"{one.candidate}, more steps")
            rest = model.fitted, model.answers, RAISED * steps
            more = fit_candidate(one.candidate, one.kernel, *rest, near=None if may_fit else one)
            if more.error < one.error:
                fits[i], tried[i] = more, RAISED * steps
    if options.per_layer:
        fits = [
            layer_by_layer(one, model.fitted, model.answers, most)
            for one, most in zip(fits, tried, strict=True)
        ]
    gaps = [candidate_gaps(one, model, most) for one, most in zip(fits, tried, strict=True)]
    limits = [most if at_limit(one, most) else None for one, most in zip(fits, tried, strict=True)]
    options.progress("the ladder")
    rungs = ladder(model, options.tried)
    known = {name: baseline_gaps(name, model) for name in BASELINES}
    known |= {rung.name: rung.gaps for rung in rungs if rung.name in NULLS}
    first = min(fits, key=lambda one: one.error)
    by = (make_kernel(first.kernel, first.values), first.values.get("ridge", 0.0))
    system = by if options.system is None else options.system
    edges, stratum = stratify(*system, model.scored, options.strata)
    count = len(stratum)
    resample = np.random.default_rng(options.seed).multinomial(
        count, np.full(count, 1 / count), size=1000
    )
    because, as_near = rule_out(fits, gaps, known, resample)
    if not any(is_close(part) for part, reason in zip(gaps, because, strict=True) if not reason):
        as_near = tuple(name for name in as_near if name in BASELINES)
    if as_near:
        trivial = f"no nearer than {(BASELINES | NULLS)[as_near[0]]}"
        because = [reason or trivial for reason in because]

    def measured(parts: Gaps) -> dict[str, Distance]:
        return {space: distance(part, stratum, resample) for space, part in parts.items()}

    suspects = [
        Suspect(one, measured(part), reason, is_regular(one.alignment, part), limit)
        for one, part, reason, limit in zip(fits, gaps, because, limits, strict=True)
    ]
    suspects.sort(key=lambda s: (bool(s.because), sum(d.mean for d in s.distances.values())))
    remain = [s for s in suspects if not s.because]
    return Identification(
        NOTHING if as_near else status_of(remain),
        tuple(s.fit.candidate for s in remain),
        tuple(suspects),
        {name: measured(parts) for name, parts in known.items()},
        edges,
        as_near,
        tuple(Statement(r.name, r.kernel, r.values, measured(r.gaps)) for r in rungs),
        model.left_out,
    )


def fit(name: str, kernels: list[str], model: ModelAnswers, steps: int) -> CandidateFit:
    """The candidate with the kernel that fits best."""
    found = [fit_candidate(name, k, model.fitted, model.answers, steps) for k in kernels]
    return min(found, key=lambda one: one.error)


def at_limit(one: CandidateFit, steps: int) -> bool:
    """Whether a layer is aligned with the last step of a solver that takes steps."""
    row = candidate(one.candidate)
    return row.iterates and not row.sequential and max(one.alignment) == steps
