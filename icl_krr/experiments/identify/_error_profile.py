"""Name the solver whose errors, step by step, are nearest to those of a model, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import Kernel, Task, map_tasks
from ...catalogue import candidate, compared, taken
from ...kernels import name_of
from ...probes import CandidateFit, align
from ...probes._naming.candidate_fit import FitProblem, Start, best_fit, total_costs
from ...probes._naming.elimination import MeasuredDistances, eliminate, special_cases
from ...probes._resampling import INTERVAL_QUANTILES, RESAMPLES, resamples
from .._shared.rows import Show
from .._shared.runs import Run
from . import _profile_paths as paths
from ._probe_controls import read_by_probe, subject_of, untrained
from ._profile_paths import NULLS, Targets, logarithms, sizes
from ._settings import IdentifyConfig

STEPS = 4
"""Steps of a solver for each layer."""


class ProfileCandidate(NamedTuple):
    """A solver or a null beside a model, on the tasks to score.

    Attributes:
        fit: its parameters and its step at every layer; of a null, the place of its value.
        distance: root mean square over layers of the difference of the curves, in log10.
        interval: 95 % bootstrap interval of `distance` over tasks.
        share: part of the resamples in which this solver is the nearest; 0 for a null.
        tied: whether it is not farther than the nearest solver beyond chance.
        curve: its curve at the aligned steps [L].
    """

    fit: CandidateFit
    distance: float
    interval: tuple[float, float]
    share: float
    tied: bool
    curve: np.ndarray

    @property
    def name(self) -> str:
        return self.fit.candidate

    @property
    def is_null(self) -> bool:
        return self.name in NULLS


class ErrorReading(NamedTuple):
    """The candidates of one measure and one alignment, the nearest first."""

    measure: str
    alignment: str
    candidates: tuple[ProfileCandidate, ...]

    @property
    def nearest(self) -> ProfileCandidate:
        """The solver that the published protocol names: the nearest, or a special case as near."""
        solvers = {one.name: one for one in self.candidates if not one.is_null}
        first = next(iter(solvers))
        simpler = special_cases(first, {name: one.distance for name, one in solvers.items()})
        return min((solvers[name] for name in simpler or [first]), key=lambda one: one.distance)

    @property
    def tied(self) -> tuple[str, ...]:
        """Solvers and nulls that are tied with the nearest, except for more general forms of it."""
        best = self.nearest.name
        names = [one.name for one in self.candidates if one.tied and one.name != best]
        return tuple(one for one in names if one in NULLS or best not in candidate(one).contains)

    @property
    def verdict(self) -> str:
        """The name, its distance, and what is tied with it, in a sentence."""
        best = self.nearest
        words = f"nearest: {best.name}, {best.distance:.2g} in log10"
        if self.tied:
            return f"not distinguishable ({words}; tied: {', '.join(self.tied)})"
        return words


class Profile(NamedTuple):
    """What the protocol says of a model: its curves [L + 1] by measure, and all readings."""

    curves: dict[str, np.ndarray]
    readings: tuple[ErrorReading, ...]


class Search(NamedTuple):
    """Points of each half of a search, and points of each that are refined."""

    points: int
    starts: int


Fits = dict[tuple[str, str], CandidateFit]
SEARCH = Search(768, 5)
APART = 0.06
"""Least distance of two points that are refined, in the unit cube: the curves have many minima."""


class Protocol:
    """The published protocol on given tasks: tune every candidate to a model, compare, name.

    All models that answer the same tasks share the search of the parameters.

    Args:
        both: tasks on which candidates are tuned, and other tasks, on which they are compared.
        kernels: names of kernels, that of exact regression first. A solver that does not accept it
            has the nearest of the others.
        steps: largest number of steps of a solver, >= L.
        exact_values: bandwidth and ridge of exact regression, by name. Half of the points of a
            search have these values.
        seed: seed of the bootstrap.
        candidates: names of solvers to compare, by default all `compared` ones, each with every
            kernel that it accepts.
        search: how many parameters of a candidate are tried.
    """

    def __init__(
        self,
        both: Sequence[Targets],
        kernels: Sequence[str],
        steps: int,
        exact_values: dict[str, float],
        seed: int = 0,
        candidates: Sequence[str] = (),
        search: Search = SEARCH,
    ):
        (self.fitted, self.scored), self.candidates = both, candidates or compared()
        self.kernels = tuple(dict.fromkeys(kernels))
        self.steps, self.exact_values, self.search = steps, exact_values, search
        self.searches: dict[tuple[str, str], tuple[np.ndarray, ...]] = {}
        self.weights = resamples(len(self.scored.truth), RESAMPLES, seed)

    def read(self, layer_predictions: Sequence[Any], progress: Show = lambda _: None) -> Profile:
        """Compare one model with every candidate, for every measure and alignment.

        Args:
            layer_predictions: predictions of the model after layers 0 to L [b, L + 1, q], on both
                batches.
            progress: function that is called with the name of each candidate.
        """
        tuning, scoring = (
            np.asarray(paths.squares(jnp.asarray(part), targets), float)
            for part, targets in zip(layer_predictions, (self.fitted, self.scored), strict=True)
        )
        tuning = logarithms(tuning.mean(axis=1), np.asarray(sizes(self.fitted)).mean(axis=1), np)
        size = np.asarray(sizes(self.scored), float)
        model_curves, fits = self.resampled(scoring, size)[:, 0], {}
        for name in (*self.candidates, *NULLS):
            progress(name)
            first, *others = self.kernels
            of_first = name in NULLS or first in taken(name)
            kernels = [first] if of_first else [one for one in others if one in taken(name)]
            tuned = [self.tune(kernel, name, tuning[:, 1:]) for kernel in kernels]
            for key in tuned[0] if tuned else ():
                best = min((each[key] for each in tuned), key=lambda one: one.error)
                fits.setdefault(key, []).append(best)
        layer_curves = self.resampled(scoring[:, :, 1:], size)
        readings = []
        for how, (place, measure) in product(paths.ALIGNMENTS, enumerate(paths.MEASURES)):
            candidates = self.compare(fits[measure, how], layer_curves[place], size, place)
            readings.append(ErrorReading(measure, how, candidates))
        return Profile(dict(zip(paths.MEASURES, model_curves, strict=True)), tuple(readings))

    def tune(self, kernel: str, name: str, model_curves: np.ndarray) -> Fits:
        """A candidate tuned for every measure and alignment, also from where others ended.

        The steps of a null are monotone: it has no first step.
        """
        fits: Fits = {}
        each, steps = np.arange(1, model_curves.shape[1] + 1), paths.num_steps(name, self.steps)
        for how, (place, measure) in 2 * [*product(paths.ALIGNMENTS, enumerate(paths.MEASURES))]:

            def aligned(curves, how=how, place=place) -> np.ndarray:
                fixed = how == "1:1" and name not in NULLS
                return each if fixed else align(paths.cost(curves[place], model_curves[place]))

            data = paths.Errors(self.fitted, place, model_curves[place])
            problem = FitProblem(paths.ERRORS, name, kernel, steps, data, aligned)
            starts = [(problem, one.logs, problem.aligned(one.logs, each)) for one in fits.values()]
            before = fits.get((measure, how))
            if before is None:
                fits[measure, how] = best_fit([*starts, *self.starts(problem)])
            else:
                starts.append((problem, before.logs, np.array(before.alignment)))
                fits[measure, how] = min(before, best_fit(starts), key=lambda one: one.error)
        return fits

    def starts(self, problem: FitProblem) -> Iterator[Start]:
        """The best points of a search, each at some distance from those before it.

        All models share the search. A null has fewer points, as its values are many, and its curves
        have few minima.
        """
        key = problem.name, problem.kernel
        half = self.search.points // 8 if problem.name in NULLS else self.search.points
        if key not in self.searches:
            cube = np.tile(problem.halton(half), (2, 1))
            fixed = np.full(cube.shape, np.nan)
            values = [self.exact_values.get(name, np.nan) for name in problem.parameters]
            fixed[half:] = np.log(values)
            places = np.where(np.isfinite(fixed), 2.0, cube)  # far from all others
            self.searches[key] = places, *problem.search(cube, fixed)
        cube, logs, curves = self.searches[key]
        at = [problem.align(one) for one in curves]
        model_curve, measure = problem.data.curve, problem.data.measure
        total = total_costs(np.array([paths.cost(one[measure], model_curve) for one in curves]), at)
        for part in (range(half, 2 * half), range(half)):
            chosen: list[int] = []
            for i in sorted(part, key=lambda i: total[i]):
                if all(np.abs(cube[i] - cube[j]).max() >= APART for j in chosen):
                    chosen.append(i)
                if len(chosen) == self.search.starts:
                    break
            yield from ((problem, logs[i], at[i]) for i in chosen)

    def compare(
        self, fits: list[CandidateFit], model_curves: np.ndarray, size: np.ndarray, place: int
    ) -> tuple[ProfileCandidate, ...]:
        """Candidates on the tasks to score, the nearest first, beside the curves of the model."""
        curves, gaps = [], []
        for fit in fits:
            steps = paths.num_steps(fit.candidate, self.steps)
            squared = paths.squared_errors(fit.candidate, fit.kernel, fit.logs, self.scored, steps)
            aligned = np.asarray(squared, float)[:, :, list(fit.alignment)]
            each = self.resampled(aligned, size)[place]
            curves.append(each[0])
            gaps.append(np.sqrt(np.mean((each - model_curves) ** 2, axis=-1)))
        drawn = np.nan_to_num(np.array(gaps), nan=1e3, posinf=1e3)
        solvers = [fit for fit in fits if fit.candidate not in NULLS]  # the nulls are last
        least = np.argmin(drawn[: len(solvers), 1:], axis=0)
        distances = MeasuredDistances(("error",), drawn[:, :1], drawn[:, None, 1:])
        _, is_tied = eliminate(solvers, distances, [""] * len(solvers))
        candidates = [
            ProfileCandidate(
                fit,
                float(drawn[i, 0]),
                tuple(np.quantile(drawn[i, 1:], INTERVAL_QUANTILES).tolist()),  # pyright: ignore
                float(np.mean(least == i)),
                bool(is_tied[i]),
                curves[i],
            )
            for i, fit in enumerate(fits)
        ]
        return tuple(sorted(candidates, key=lambda one: one.distance))

    def resampled(self, squared: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Curves [2, 1 + resamples, L] from squares [2, b, L] and sizes [2, b]; all tasks first."""
        weights = np.concatenate([np.ones((1, size.shape[1])), self.weights]) / size.shape[1]
        return logarithms(weights @ squared, size @ weights.T, np)


def profile_targets(tasks: Task, kernel: Kernel, ridge: Any) -> Targets:
    """The targets of tasks with `y_query`; `kernel` and `ridge` are those of exact regression."""
    plain = tasks.replace(y_query=None)
    return Targets(plain, tasks.y_query, paths.exact_predictions(kernel, ridge, plain))


def exact_hyperparameters(kernel: Kernel, ridge: float) -> dict[str, float]:
    """The bandwidth and the ridge of exact regression, by name."""
    name = kernel.bandwidth
    return {"ridge": ridge} | ({} if name is None else {name: float(getattr(kernel, name))})


class ProfileFindings(NamedTuple):
    """What `examine` found of a trained model, and of an untrained one of the same shape."""

    profile: Profile
    untrained: Profile | None
    losses: dict[str, float]  # errors of exact regression and of the baselines
    kernel: Kernel
    ridge: float


def examine(run: Run, config: IdentifyConfig, progress: Show = lambda _: None) -> ProfileFindings:
    """Read a model by a linear probe of every layer, and compare its errors with candidates'.

    Probes, candidates and comparison have tasks of their own; the last quarter of the tasks of the
    probes chooses their ridge. An untrained model is read by a probe of the last layer, too.
    """
    layers = run.model.steps
    if config.steps is not None and config.steps < layers:
        raise ValueError(f"steps must be >= the number of layers, {layers}, got {config.steps}")
    of = subject_of(run, config, progress)
    kernel, ridge = of.best.kernel, float(of.best.ridge)
    steps = STEPS * layers if config.steps is None else config.steps
    both = [profile_targets(tasks, kernel, ridge) for tasks in (of.fitted, of.scored)]
    kernels = (name_of(kernel), *config.kernels)
    protocol = Protocol(both, kernels, steps, exact_hyperparameters(kernel, ridge), config.seed)

    def read(layer_predictions: Any, words: str) -> Profile:
        run = jax.jit(partial(map_tasks, layer_predictions))
        predictions = [run(one.tasks) for one in both]
        return protocol.read(predictions, lambda what: progress(f"{words}: {what}"))

    other = untrained(of.model, of.fitted, of.control_key)
    return ProfileFindings(
        read(of.layers, "the model"),
        None if other is None else read(read_by_probe(other, of.probing), "an untrained model"),
        of.best.losses(of.scored),
        kernel,
        ridge,
    )
