"""A solver, a kernel and hyperparameters, and how leave-one-out chooses those that are not set."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import Exponential, Kernel, Task
from .._core import checks
from ..catalogue import KERNELS, SOLVERS, find, taken
from ..kernels import kernel_class, name_of
from . import _model_selection, _relevance
from ._held_out import LeaveOneOut
from ._model_selection import Progress, silent

BANDWIDTHS = ("temperature", "lengthscale")
"""Bandwidths that a config can set. Leave-one-out chooses the bandwidth of any other kernel."""


@dataclass(frozen=True)
class DepthConfig:
    """A solver, a kernel, its hyperparameters and a number of steps.

    Leave-one-out on the supports chooses what is None: the kernel among those that the solver takes
    and that have the given bandwidth, ridge and bandwidth. The Nadaraya-Watson baseline always has
    a bandwidth of its own, chosen in the same way.
    """

    solver: str = "conjugate_gradient"
    kernel: str | None = None
    ridge: float | None = None  # > 0
    temperature: float | None = None  # > 0, of the exponential kernel
    lengthscale: float | None = None  # > 0, of a kernel that has one
    # "one" for all features, or "each" for one per feature, of the greatest marginal likelihood
    bandwidths: str = "one"
    # >= 1, or None for as many as the predictions need to converge, at most `MOST_STEPS`
    steps: int | None = 16
    # whether the means of x and y over the supports were subtracted, as `split` does, so that
    # leave-one-out must not use the mean of the support that is left out
    centred: bool = False

    def __post_init__(self):
        entry = find("solver", SOLVERS, self.solver)
        object.__setattr__(self, "solver", entry.name)
        takes = taken(entry.name, usual=self.kernel is None)
        checks.flag("centred", self.centred)
        checks.choice("bandwidths", self.bandwidths, ("one", "each"))
        if self.bandwidths == "each":
            self.check_each()
        if self.steps is not None:
            checks.count("steps", self.steps)
        for name in ("ridge", *self.set_bandwidths):
            if getattr(self, name) is not None:
                checks.positive_scalar(name, getattr(self, name))
        if self.kernel is not None:
            kernel = find("kernel", KERNELS, self.kernel).name
            if kernel not in takes:
                *others, last = map(repr, takes)
                bandwidth_names = " or ".join([", ".join(others), last] if others else [last])
                raise ValueError(
                    f"kernel must be {bandwidth_names} for solver {self.solver!r}, got {kernel!r}"
                )
            takes = (kernel,)
        if not (fits := self.having_bandwidths(takes)):
            field = kernel_class(takes[0]).bandwidth
            name = next(name for name in self.set_bandwidths if field != name)
            raise ValueError(
                f"{name} must be None for kernel {takes[0]!r}, which has no {name}, "
                f"got {getattr(self, name)}"
            )
        object.__setattr__(self, "kernel", fits[0] if len(fits) == 1 else None)

    def check_each(self) -> None:
        """Raise ValueError unless each feature can have a bandwidth."""
        for name in self.set_bandwidths:
            raise ValueError(
                f"{name} must be None if bandwidths is 'each', which chooses a {name} for each "
                f"feature, got {getattr(self, name)}"
            )
        takes = taken(self.solver) if self.kernel is None else (self.kernel,)
        if SOLVERS[self.solver].iterates and any(kernel_class(name).bandwidth for name in takes):
            return
        what = f"solver {self.solver!r}, which chooses no bandwidths by marginal likelihood"
        if self.kernel is not None and SOLVERS[self.solver].iterates:
            what = f"kernel {self.kernel!r}, which has no bandwidth"
        raise ValueError(f"bandwidths must be 'one' for {what}, got 'each'")

    @property
    def set_bandwidths(self) -> list[str]:
        """Names of the bandwidths that are set."""
        return [name for name in BANDWIDTHS if getattr(self, name) is not None]

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels among which leave-one-out chooses; one name if it is set."""
        tried = taken(self.solver, usual=True) if self.kernel is None else (self.kernel,)
        return self.having_bandwidths(tried)

    def having_bandwidths(self, kernels: tuple[str, ...]) -> tuple[str, ...]:
        """The kernels that have every bandwidth that is set, or one if each feature needs one."""
        bandwidth_of = {name: kernel_class(name).bandwidth for name in kernels}
        fits = [name for name in kernels if {*self.set_bandwidths} <= {bandwidth_of[name]}]
        return tuple(name for name in fits if bandwidth_of[name] or self.bandwidths == "one")


def families(kernel: str) -> tuple[type[Kernel], type[Kernel]]:
    """The class of the kernel, and of the Nadaraya-Watson baseline's, which must be positive."""
    entry = find("kernel", KERNELS, kernel)
    family = kernel_class(entry.name)
    return family, family if entry.kind == "positive" else Exponential


class Kernels(NamedTuple):
    """Kernels of the regression and of the Nadaraya-Watson baseline."""

    regression: Kernel
    smoother: Kernel
    errors: dict[str, float]  # root mean squared leave-one-out errors of all that were compared


class Chosen(NamedTuple):
    """What leave-one-out chose for one task."""

    kernels: Kernels
    ridge: float
    names: list[str]  # hyperparameters of the regression that were not given
    edges: dict[str, str]  # those of them that are the "smallest" or the "largest" that was tried
    loo_result: LeaveOneOut | None  # None if all of them were given
    each: _relevance.Each | None = None  # None if all features have the same bandwidth


def choose(task: Task, config: DepthConfig, progress: Progress = silent) -> Chosen:
    """The hyperparameters with the least leave-one-out errors, where the config sets none."""
    kernels = choose_kernels(task, config, progress)
    kernel = kernels.regression
    names = [name for name in ("ridge", *bandwidth(kernel)) if getattr(config, name, None) is None]
    if not names and config.ridge:
        return Chosen(kernels, config.ridge, names, {}, None)
    progress("regression, leave-one-out: ridge")
    regression = _model_selection.regress(kernel, task, config.ridge, config.centred)
    edges = _model_selection.edges(kernel, regression.ridge, task)
    edges = {name: edge for name, edge in edges.items() if name in names}
    one = Chosen(kernels, regression.ridge, names, edges, regression.loo_result)
    return one if config.bandwidths == "one" else choose_each(one, task, config, progress)


def choose_each(one: Chosen, task: Task, config: DepthConfig, progress: Progress) -> Chosen:
    """A bandwidth for each feature, from one bandwidth for all of them."""
    fixed_ridge, p = config.ridge is not None, task.num_features
    kernel, ridge, evidence = _relevance.maximise_marginal_likelihood(
        one.kernels.regression, task, one.ridge, fixed_ridge=fixed_ridge, progress=progress
    )
    regression = _model_selection.regress(kernel, task, ridge, config.centred)
    assert one.loo_result is not None
    errors = {"one": one.loo_result.regression, "each": regression.loo_result.regression}
    importance = _relevance.importance(kernel, task, ridge)
    edges = _model_selection.edges(kernel, ridge, task)
    most = float(_relevance.REACH ** (1 if kernel.stationary else 2))
    return Chosen(
        one.kernels._replace(regression=kernel),
        ridge,
        [] if fixed_ridge else ["ridge"],
        {} if fixed_ridge else {name: edge for name, edge in edges.items() if name == "ridge"},
        regression.loo_result,
        _relevance.Each(_relevance.bandwidths_of(kernel, p), most, evidence, importance, errors),
    )


def choose_kernels(task: Task, config: DepthConfig, progress: Progress = silent) -> Kernels:
    """The kernels with the least leave-one-out errors among those that the config allows."""
    kernel, errors = choose_kernel(task, config, progress)
    family, smooths = families(name_of(kernel))
    if SOLVERS[config.solver].iterates:
        smoother = _model_selection.choose_smoother(smooths, task, progress=progress).kernel
        return Kernels(kernel, smoother, errors)
    if config.set_bandwidths:
        return Kernels(kernel, kernel, errors)
    one = _model_selection.choose_kernel(family, task, config.ridge, None, progress, config.centred)
    return Kernels(one.kernel, kernel, errors)


def choose_kernel(
    task: Task,
    config: DepthConfig,
    progress: Progress = silent,
    transform: Callable[[type[Kernel]], Any] = lambda family: family,
) -> tuple[Kernel, dict[str, float]]:
    """The kernel of the solver, and the leave-one-out errors of the kernels that were compared."""
    # a float, because JAX compiles another program for an integer
    bandwidth = float(getattr(config, config.set_bandwidths[0])) if config.set_bandwidths else None
    if bandwidth is not None and len(config.kernels) == 1:
        return transform(kernel_class(config.kernels[0])).of_bandwidth(bandwidth), {}
    choices = {}
    for name in config.kernels:
        family, smooths = map(transform, families(name))
        if SOLVERS[config.solver].iterates:
            choices[name] = _model_selection.choose_kernel(
                family, task, config.ridge, bandwidth, progress, config.centred
            )
        else:
            choices[name] = _model_selection.choose_smoother(smooths, task, bandwidth, progress)
    name = min(choices, key=lambda name: choices[name].error)
    kernel, error = choices[name]
    if kernel.bandwidth and not math.isfinite(error):
        raise ValueError(_model_selection.unknown(kernel.bandwidth))
    return kernel, {name: choice.error for name, choice in choices.items()}


def bandwidth(kernel: Kernel) -> dict[str, float]:
    name = kernel.bandwidth
    return {} if name is None else {name: float(getattr(kernel, name))}
