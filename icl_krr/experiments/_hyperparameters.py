"""Fit the hyperparameters of a construction by gradient, to a table or to a model's predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from .. import Kernel, Softmax, predict_batch, theory
from .._core import checks
from .._core.constants import as_constant
from ..catalogue import METHODS, SOLVERS
from ..kernels import make_kernel
from ..tabular import _model_selection
from ..tabular._build import construct, solver_keywords
from ..tabular._depth_config import DepthConfig, bandwidth, choose_kernels, families
from ..tasks import Table, Task, split, system
from ..training import Adapted, adapt, held_out, marginal_likelihood
from ..training._objectives import Build
from ..training._reference import best, errors_of, smoothing
from ._shared.draws import draw_tasks
from ._shared.rows import Rows
from ._shared.runs import Run

OBJECTIVES = ("held-out", "marginal-likelihood")
BOUNDS = ("lowest eigenvalue", "highest eigenvalue")
PARTS = 4
"""Number of parts into which a table's supports are split. Each is predicted from the others."""


@dataclass(frozen=True)
class FitConfig(DepthConfig):
    """Settings of a fit. Hyperparameters set here are the starting values.

    The default kernel is the first that the solver takes and that has the given bandwidth, and
    `steps` cannot be None.
    """

    objective: str = "held-out"  # squared error at the queries, or one of `OBJECTIVES`
    method: str = "adam"  # one of `METHODS`
    iterations: int = 100  # of the optimiser, >= 1
    # whether to fit the bounds on the eigenvalues, which determine step sizes and momenta, or to
    # compute them from the tasks
    fit_spectrum: bool = False

    def __post_init__(self):
        super().__post_init__()
        checks.count("steps", self.steps)
        checks.choice("bandwidths", self.bandwidths, ("one",))
        object.__setattr__(self, "kernel", self.kernels[0])
        checks.choice("objective", self.objective, OBJECTIVES)
        checks.choice("method", self.method, METHODS)
        checks.count("iterations", self.iterations)
        entry = SOLVERS[self.solver]
        if entry.one_task:
            raise ValueError(
                f"solver must have weights that fit several tasks, got {self.solver!r}, whose "
                "weights fit only one task; use conjugate_gradient or chebyshev"
            )
        if self.objective == "marginal-likelihood" and "alpha" not in entry.states:
            raise ValueError(
                f"objective must be 'held-out' for solver {self.solver!r}, which has no alpha, "
                f"got {self.objective!r}"
            )
        bounded = [name for name, entry in SOLVERS.items() if "spectrum" in entry.required_inputs]
        if self.fit_spectrum and self.solver not in bounded:
            raise ValueError(
                f"solver must be one of {', '.join(bounded)} if fit_spectrum is given, because "
                f"other solvers take no spectrum, got {self.solver!r}"
            )


class Data(NamedTuple):
    """Batches of tasks; predictions are compared with their `y_query`."""

    fitted: Task  # tasks whose queries the held-out objective uses
    likely: Task  # tasks whose supports the marginal likelihood uses
    scoring: Task  # held-out tasks on which the fit is scored


class FittedHyperparameters(NamedTuple):
    """The result of `adapt`, mean squared errors on the held-out tasks, and facts about the fit."""

    adapted: Adapted
    errors: Rows
    facts: dict[str, Any]


def of_table(table: Table, num_supports: int, seed: int) -> Data:
    """Draw random rows as supports and hold out the other rows.

    The fit uses only the supports. It splits them into parts and predicts each part from the other
    parts.

    >>> from icl_krr.tasks import diabetes
    >>> [part.x.shape for part in of_table(diabetes(), 300, seed=0)]
    [(4, 225, 10), (1, 300, 10), (1, 300, 10)]
    """
    if num_supports < 2:
        raise ValueError(
            f"supports must be >= 2, because the fit splits them into parts, got {num_supports}"
        )
    whole = split(table, num_supports, seed)
    parts = np.array_split(np.arange(num_supports), min(PARTS, num_supports))
    size = len(parts[-1])  # cut all parts to the smallest: tasks of a batch have one shape
    folds = [part[:size] for part in parts]
    others = [np.concatenate(folds[:i] + folds[i + 1 :]) for i in range(len(folds))]
    rows, queries = np.asarray(others), np.asarray(folds)
    x, y = np.asarray(whole.x), np.asarray(whole.y)
    fitted = Task(x=x[rows], y=y[rows], x_query=x[queries], y_query=y[queries])
    alone = jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[None]), whole)
    return Data(fitted, alone, alone)


def of_run(run: Run, count: int, seed: int) -> Data:
    """Draw tasks of a model's training family, with the predictions of the model as targets."""
    checks.count("tasks", count)
    key = jax.random.key(seed)
    drawn = (draw_tasks(jax.random.fold_in(key, i), count, run.family) for i in (0, 1))
    fitted, validation = (tasks.replace(y_query=predict_batch(run.model, tasks)) for tasks in drawn)
    return Data(fitted, fitted, validation)


def fit_hyperparameters(
    data: Data, config: FitConfig, progress: Callable[[int, float], None] = lambda i, loss: None
) -> FittedHyperparameters:
    """Fit the hyperparameters by gradient, from the values set in the config.

    Leave-one-out chooses the starting values that the config does not set, as in `predict`. The
    optimiser works on logarithms, because all hyperparameters are positive.

    Raises:
        Diverged: the loss at the starting values is NaN or infinite.
    """
    one = jax.tree.map(lambda leaf: as_constant(leaf)[0], data.likely)
    kernel, smoother, _ = choose_kernels(one, config)
    ridge = config.ridge or _model_selection.choose_ridge(kernel, one, config.centred)
    averages = not SOLVERS[config.solver].iterates
    start = bandwidth(smoother if averages else kernel) | ({} if averages else {"ridge": ridge})
    start = {name: jnp.asarray(value, one.x.dtype) for name, value in start.items()}
    likelihood = config.objective == "marginal-likelihood"
    tasks = data.likely if likelihood else data.fitted
    if config.fit_spectrum:
        start |= zip(BOUNDS, bounds(kernel, tasks, start["ridge"]), strict=True)
    build = builder(config, tasks)
    build(start)  # outside jit, so that values that overflow or underflow raise an error
    objective = held_out(build, tasks)
    if likelihood:
        solved = lambda at: (make_kernel(str(config.kernel), at), at["ridge"])  # noqa: E731
        objective = marginal_likelihood(build, solved, tasks)
    options: Any = {"method": config.method, "iterations": config.iterations}
    fit = adapt(objective, start, positive=tuple(start), progress=progress, **options)
    names = ("solver", "kernel", "steps", "objective", "method")
    facts = {
        **{name: getattr(config, name) for name in names},
        "tasks": len(tasks.x),
        "n": tasks.num_supports,
        "q": data.scoring.num_queries,
        "p": one.num_features,
        "dtype": str(one.x.dtype),
    }
    return FittedHyperparameters(fit, judge(config, data, start, fit.parameters, ridge), facts)


def judge(config: FitConfig, data: Data, start: Any, fitted: Any, ridge: float) -> Rows:
    """Mean squared errors of the model and of the baselines at the held-out queries."""
    tasks = data.scoring
    error = partial(jax.jit(lambda loss, at: loss(at)), held_out(builder(config, tasks), tasks))

    _, family = families(str(config.kernel))
    first = jax.tree.map(lambda leaf: as_constant(leaf)[0], data.fitted)
    widths = np.asarray(_model_selection.bandwidths(family, first))[:, None]
    _, (width,) = best(smoothing, family.of_bandwidth, widths, data.fitted)

    def baselines(kwargs: dict[str, Any]) -> dict[str, jax.Array]:
        kernel = make_kernel(str(config.kernel), kwargs)
        return errors_of(kernel, kwargs.get("ridge", ridge), family.of_bandwidth(width), tasks)

    before, after = baselines(start), baselines(fitted)
    errors = {
        "transformer, start": error(start),
        "transformer, fitted": error(fitted),
        **{name: before[name] for name in ("zero", "mean", "nadaraya_watson")},
        "exact, start": before["exact"],
        "exact, fitted": after["exact"],
    }
    return [{"predictor": name, "error": float(value)} for name, value in errors.items()]


def builder(config: FitConfig, tasks: Task) -> Build:
    """From hyperparameters to the model; other keywords of the solver come from the tasks."""
    entry = SOLVERS[config.solver]

    def build(tasks: Task, values: dict[str, Any]) -> Any:
        one = jax.tree.map(lambda leaf: as_constant(leaf)[0], tasks)
        kernel = make_kernel(str(config.kernel), values)
        if not entry.iterates:
            return construct(entry.name, kernel, one)
        # the spectrum must cover all tasks, not only the first
        needs = solver_keywords(entry, kernel, one, values["ridge"], but=("spectrum",))
        if "spectrum" in entry.required_inputs:
            fitted = config.fit_spectrum
            between = map(values.get, BOUNDS) if fitted else bounds(kernel, tasks, values["ridge"])
            needs["spectrum"] = tuple(between)
        route = {} if kernel.featured else {"attention": sink(kernel, tasks)}
        return construct(entry.name, kernel, one, **needs, **route, steps=config.steps)

    return Partial(build, tasks)


def bounds(kernel: Kernel, tasks: Task, ridge: Any) -> tuple[jax.Array, jax.Array]:
    """Bounds on the spectra of all K + ridge I; the upper bound, Gershgorin's, has gradients."""
    rows = jax.vmap(lambda task: jnp.sum(jnp.abs(system(kernel, task).gram), axis=1))(tasks)
    return ridge, ridge + jnp.max(rows)


def sink(kernel: Kernel, tasks: Task) -> Softmax:
    shifts = jax.vmap(lambda task: theory.log_sink(kernel, task))(tasks)
    return Softmax(log_sink=jax.lax.stop_gradient(jnp.max(shifts)))
