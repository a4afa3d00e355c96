"""`fit`: the hyperparameters of a construction by gradient, on a table or on a model's answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks, theory
from ..catalogue import METHODS, SOLVERS, make_kernel
from ..constructions import Softmax
from ..kernels import Kernel
from ..tasks import Table, Task, split, system
from ..training import Adapted, adapt, held_out, marginal_likelihood
from ..training.objectives import Build
from ..training.reference import average, best, loss, regression, smoothing
from ..transformer import predict_batch
from .depth import DepthConfig, bandwidth, choose_kernels, families
from .shared import model_selection
from .shared.build import construct
from .shared.draws import draw_tasks
from .shared.rows import Rows
from .shared.runs import Run
from .shared.told import told

OBJECTIVES = ("held-out", "marginal-likelihood")
BOUNDS = ("lowest eigenvalue", "highest eigenvalue")
PARTS = 4
"""Parts that the supports of a table are cut into, each predicted from the others."""


@dataclass(frozen=True)
class FitConfig(DepthConfig):
    """What is fitted and how; hyperparameters that are given are where it starts.

    With `fit_spectrum` so are the bounds on the eigenvalues, from which step sizes and momenta
    follow; without, they are those of the tasks.

    Raises ValueError as `DepthConfig` does, for an unknown objective or method, for solvers whose
    weights are made for one task, for a likelihood of one without alpha, and for bounds of one
    without any.
    """

    objective: str = "held-out"
    method: str = "adam"
    iterations: int = 100
    fit_spectrum: bool = False

    def __post_init__(self):
        super().__post_init__()
        checks.choice("objective", self.objective, OBJECTIVES)
        checks.choice("method", self.method, METHODS)
        checks.count("iterations", self.iterations)
        row = SOLVERS[self.solver]
        if row.one_task:
            raise ValueError(
                f"solver must have weights that serve several tasks, got {self.solver!r}; "
                "use conjugate_gradient or chebyshev"
            )
        if self.objective == "marginal-likelihood" and "alpha" not in row.states:
            raise ValueError(
                f"objective must be 'held-out' for solver {self.solver!r}, which has no alpha, "
                f"got {self.objective!r}"
            )
        bounded = [name for name, row in SOLVERS.items() if "spectrum" in row.told]
        if self.fit_spectrum and self.solver not in bounded:
            raise ValueError(
                f"fit_spectrum must be left to solvers with bounds, {', '.join(bounded)}; "
                f"got {self.solver!r}"
            )


class Data(NamedTuple):
    """Batches of tasks: `fitted` by their queries, `likely` by their supports, `apart` to judge.

    What stands in `y_query` is what predictions are compared with.
    """

    fitted: Task
    likely: Task
    apart: Task


class FittedHyperparameters(NamedTuple):
    """What `adapt` found, and mean squared errors on the tasks that are held apart."""

    found: Adapted
    errors: Rows
    facts: dict[str, Any]


def of_table(table: Table, num_supports: int, seed: int) -> Data:
    """Random rows as supports, the others held apart; fitted on parts of the supports alone.

    >>> from icl_krr.tasks import diabetes
    >>> [part.x.shape for part in of_table(diabetes(), 300, seed=0)]
    [(4, 225, 10), (1, 300, 10), (1, 300, 10)]
    """
    if num_supports < 2:
        raise ValueError(f"supports must be >= 2 to be cut into parts, got {num_supports}")
    whole = split(table, num_supports, seed)
    parts = np.array_split(np.arange(num_supports), min(PARTS, num_supports))
    size = len(parts[-1])  # the smallest: tasks of a batch have one shape
    asked = [part[:size] for part in parts]
    seen = [np.concatenate(asked[:i] + asked[i + 1 :]) for i in range(len(asked))]
    rows, queries = jnp.asarray(seen), jnp.asarray(asked)
    x, y = jnp.asarray(whole.x), jnp.asarray(whole.y)
    fitted = Task(x=x[rows], y=y[rows], x_query=x[queries], y_query=y[queries])
    alone = jax.tree.map(lambda leaf: leaf[None], whole)
    return Data(fitted, alone, alone)


def of_run(run: Run, count: int, seed: int) -> Data:
    """Tasks of the family that a model was trained on, and its own predictions as targets."""
    checks.count("tasks", count)
    key = jax.random.key(seed)
    fitted, apart = (draw_tasks(jax.random.fold_in(key, i), count, run.family) for i in (0, 1))
    fitted, apart = (
        tasks.replace(y_query=predict_batch(run.model, tasks)) for tasks in (fitted, apart)
    )
    return Data(fitted, fitted, apart)


def fit_hyperparameters(
    data: Data, config: FitConfig, progress: Callable[[int, float], None] = lambda i, loss: None
) -> FittedHyperparameters:
    """Start as `predict` would, by leave-one-out where nothing is given; then follow the gradient.

    Every hyperparameter is positive, so that it moves in logarithm.

    Raises Diverged where the loss at the start is no number.
    """
    one = jax.tree.map(lambda leaf: leaf[0], data.likely)
    kernel, smoother = choose_kernels(one, config)
    ridge = config.ridge or model_selection.choose_ridge(kernel, one)
    averages = not SOLVERS[config.solver].iterates
    start = bandwidth(smoother if averages else kernel) | ({} if averages else {"ridge": ridge})
    start = {name: jnp.asarray(value, one.x.dtype) for name, value in start.items()}
    likelihood = config.objective == "marginal-likelihood"
    tasks = data.likely if likelihood else data.fitted
    if config.fit_spectrum:
        start |= zip(BOUNDS, bounds(kernel, tasks, start["ridge"]), strict=True)
    build = builder(config, tasks)
    build(start)  # where values are known, those that over- or underflow are refused
    objective = held_out(build, tasks)
    if likelihood:
        solved = lambda told: (make_kernel(str(config.kernel), told), told["ridge"])  # noqa: E731
        objective = marginal_likelihood(build, solved, tasks)
    found = adapt(
        objective,
        start,
        positive=tuple(start),
        method=config.method,
        iterations=config.iterations,
        progress=progress,
    )
    facts = {
        "solver": config.solver,
        "kernel": config.kernel,
        "steps": config.steps,
        "objective": config.objective,
        "method": config.method,
        "tasks": len(tasks.x),
        "n": tasks.num_supports,
        "q": data.apart.num_queries,
        "p": one.num_features,
        "dtype": str(one.x.dtype),
    }
    return FittedHyperparameters(found, judge(config, data, start, found.parameters, ridge), facts)


def judge(config: FitConfig, data: Data, start: Any, fitted: Any, ridge: float) -> Rows:
    """Mean squared errors at the queries held apart, of the model and of the baselines."""
    apart = data.apart
    error = jax.jit(held_out(builder(config, apart), apart))

    def exact(told: dict[str, Any]) -> float:
        kernel = make_kernel(str(config.kernel), told)
        return float(loss(lambda t: regression(kernel, t, told.get("ridge", ridge)), apart))

    _, family = families(str(config.kernel))
    first = jax.tree.map(lambda leaf: leaf[0], data.fitted)
    widths = model_selection.bandwidths(family, first)[:, None]
    smooth = lambda at, task: smoothing(family.of_bandwidth(at[0]), task)  # noqa: E731
    _, (width,) = best(smooth, widths, data.fitted)
    errors = {
        "transformer, start": float(error(start)),
        "transformer, fitted": float(error(fitted)),
        "zero": float(jnp.mean(apart.y_query**2)),
        "mean": float(loss(average, apart)),
        "nadaraya_watson": float(loss(lambda t: smoothing(family.of_bandwidth(width), t), apart)),
        "exact, start": exact(start),
        "exact, fitted": exact(fitted),
    }
    return [{"predictor": name, "error": value} for name, value in errors.items()]


def builder(config: FitConfig, tasks: Task) -> Build:
    """From hyperparameters to the model; what else it must be told of the tasks follows them."""
    row = SOLVERS[config.solver]
    one = jax.tree.map(lambda leaf: leaf[0], tasks)

    def build(given: dict[str, Any]) -> Any:
        kernel = make_kernel(str(config.kernel), given)
        if not row.iterates:
            return construct(row.name, kernel, one)
        # bounds on eigenvalues are those of all tasks, not of one
        needs = told(row, kernel, one, given["ridge"], but=("spectrum",))
        if "spectrum" in row.told:
            own = config.fit_spectrum
            between = map(given.get, BOUNDS) if own else bounds(kernel, tasks, given["ridge"])
            needs["spectrum"] = tuple(between)
        route = {} if kernel.featured else {"attention": sink(kernel, tasks)}
        return construct(row.name, kernel, one, **needs, **route, steps=config.steps)

    return build


def bounds(kernel: Kernel, tasks: Task, ridge: Any) -> tuple[jax.Array, jax.Array]:
    """On the eigenvalues of K + ridge I of all tasks; Gershgorin's has a gradient everywhere."""
    rows = jax.vmap(lambda task: jnp.sum(jnp.abs(system(kernel, task).gram), axis=1))(tasks)
    return ridge, ridge + jnp.max(rows)


def sink(kernel: Kernel, tasks: Task) -> Softmax:
    shifts = jax.vmap(lambda task: theory.log_sink(kernel, task))(tasks)
    return Softmax(log_sink=jax.lax.stop_gradient(jnp.max(shifts)))
