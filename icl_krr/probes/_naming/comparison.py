"""From the predictions of a model to a verdict: fit, refit, measure distances, eliminate."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..._core import checks
from ..._core.messages import time_left
from ...catalogue import KERNELS, candidate, candidates as all_candidates, find, taken
from ...kernels import Kernel, make_kernel
from ...kernels._kernel import check_kernel
from .._resampling import RESAMPLES, resamples
from . import distances
from .candidate_fit import CandidateFit, fit_candidate
from .distances import BASELINES, Distance, Gaps, candidate_gaps
from .elimination import CLOSE, RESOLUTION, diverges, eliminate, is_regular, measure, total_distance
from .identification import EXACT, Identification, identification
from .layer_predictions import ModelPredictions
from .nested_models import NULLS, fit_nested_models

STEP_FACTOR = 4
"""If a layer is aligned with the last step of a candidate, the candidate is fitted again with so
many times as many steps."""


@dataclass(frozen=True)
class Options:
    """The keyword arguments of `identify`, checked before anything is compiled."""

    candidates: tuple[str, ...] | None = None
    kernels: tuple[str, ...] | None = None
    steps: int | None = None
    strata: int = 2
    system: tuple[Kernel, float] | None = None
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
        checks.function("progress", self.progress)
        if (system := self.system) is not None:
            if not isinstance(system, tuple) or len(system) != 2:
                raise TypeError(
                    f"system must be a pair (kernel, ridge), got {checks.short_repr(system)}"
                )
            check_kernel(system[0])
            checks.positive_scalar("ridge of system", system[1])
        if not any(self.kernels_by_candidate.values()):
            raise ValueError(
                "kernels must contain a kernel that a candidate accepts, got "
                f"{', '.join(self.kernel_names)} for candidates "
                f"{', '.join(self.kernels_by_candidate)}"
            )

    @property
    def kernel_names(self) -> tuple[str, ...]:
        if self.kernels is None:
            return tuple(name for name, entry in KERNELS.items() if entry.usual)
        return tuple(find("kernel", KERNELS, name).name for name in self.kernels)

    @property
    def kernels_by_candidate(self) -> dict[str, list[str]]:
        """The kernels to try with every candidate."""
        names = all_candidates() if self.candidates is None else self.candidates
        solvers = [candidate(name).name for name in names]
        return {name: [one for one in taken(name) if one in self.kernel_names] for name in solvers}

    def fits(self, fit: Callable[[str, list[str]], CandidateFit]) -> list[CandidateFit]:
        """Every candidate that accepts a kernel, fitted by a function of its name and kernels."""
        tried = {name: kernels for name, kernels in self.kernels_by_candidate.items() if kernels}
        fits, done, total = [], 0, sum(map(len, tried.values()))
        begin = time.monotonic()
        for name, kernels in tried.items():
            self.progress(f"{name}, {time_left(begin, done, total)}" if done else name)
            fits.append(fit(name, kernels))
            done += len(kernels)
        return fits


class BoundedFit(NamedTuple):
    """A fitted candidate, and the largest number of steps that it was tried with."""

    fit: CandidateFit
    steps: int

    @property
    def limit(self) -> int | None:
        """The number of steps, if the solver takes steps and a layer is aligned with the last."""
        entry = candidate(self.fit.candidate)
        reached = entry.iterates and not entry.sequential and max(self.fit.alignment) == self.steps
        return self.steps if reached else None


def compare(model: ModelPredictions, options: Options) -> Identification:
    """Fit all candidates and nulls to the predictions of a model, and eliminate candidates."""
    predictions = model.fitted_predictions
    steps = 4 * predictions.shape[1] if options.steps is None else options.steps

    def fit(name: str, kernels: list[str]) -> CandidateFit:
        each = [fit_candidate(name, one, model.fitted, predictions, steps) for one in kernels]
        return min(each, key=lambda fit: fit.error)

    fitted = _refit([BoundedFit(one, steps) for one in options.fits(fit)], model, options)
    fits, gaps = [one.fit for one in fitted], [candidate_gaps(*one, model) for one in fitted]
    options.progress("nested models")
    nested = fit_nested_models(model, options.kernel_names)
    baselines = {name: distances.baseline_gaps(name, model) for name in BASELINES}
    baselines |= {one.name: one.gaps for one in nested if one.name in NULLS}
    # Distances on the scored tasks, which are put into groups and drawn again and again
    best = min(fits, key=lambda fit: fit.error)
    by = (make_kernel(best.kernel, best.values), best.values.get("ridge", 0.0))
    system = by if options.system is None else options.system
    edges, stratum = distances.stratify(*system, model.scored, options.strata)
    resample = resamples(len(stratum), RESAMPLES, options.seed)
    reasons, tied = eliminate_candidates(fits, gaps, baselines, resample)

    def of_spaces(gaps: Gaps) -> dict[str, Distance]:
        return {space: distances.distance(one, stratum, resample) for space, one in gaps.items()}

    candidates = [
        distances.CandidateResult(
            one.fit, of_spaces(gap), reason, is_regular(one.fit.alignment, gap), one.limit
        )
        for one, gap, reason in zip(fitted, gaps, reasons, strict=True)
    ]
    return identification(
        candidates,
        {name: of_spaces(gap) for name, gap in baselines.items()},
        tied,
        edges,
        tuple(distances.NestedModelResult(*one[:3], of_spaces(one.gaps)) for one in nested),
        model.num_excluded,
    )


def _refit(fitted: list[BoundedFit], model: ModelPredictions, options: Options) -> list[BoundedFit]:
    """The candidates, fitted again with more steps if a layer is aligned with the last step."""
    none_fits = min(one.fit.error for one in fitted) > EXACT
    refitted = []
    for one in fitted:
        fit, may_fit = one.fit, one.fit.error <= CLOSE  # then it is worth a search of its own
        if one.limit and (none_fits or may_fit):
            options.progress(f"{fit.candidate}, more steps")
            rest = model.fitted, model.fitted_predictions, STEP_FACTOR * one.steps
            more = fit_candidate(fit.candidate, fit.kernel, *rest, initial=None if may_fit else fit)
            if more.error < fit.error:
                one = BoundedFit(more, STEP_FACTOR * one.steps)
        refitted.append(one)
    return refitted


def eliminate_candidates(
    fits: list[CandidateFit], gaps: list[Gaps], baselines: dict[str, Gaps], resample: np.ndarray
) -> tuple[list[str], tuple[str, ...]]:
    """Why each candidate is ruled out, or "", and what is tied with the nearest candidate.

    If no candidate is close, nulls do not count. None remains if a baseline or null is tied.
    """
    diverged = [diverges(one["prediction"]) for one in gaps]
    if all(diverged):  # then the nearest of them is told
        diverged = [False] * len(diverged)
    divergence = ["diverges on a scored task" if one else "" for one in diverged]
    reasons, is_tied = eliminate(fits, measure([*gaps, *baselines.values()], resample), divergence)
    close = any(
        not reason and all(part.mean <= CLOSE for part in candidate_gaps.values())
        for candidate_gaps, reason in zip(gaps, reasons, strict=True)
    )
    names = [
        name
        for name, is_near in zip(baselines, is_tied[len(fits) :], strict=True)
        if is_near and (close or name in BASELINES)
    ]
    names.sort(key=lambda name: round(total_distance(baselines[name]) / RESOLUTION))
    if names:
        trivial = f"no nearer than {(BASELINES | NULLS)[names[0]]}"
        reasons = [reason or trivial for reason in reasons]
    return reasons, tuple(names)
