"""Compare a model with exact kernel ridge regression, or an exact average, on one task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .._core.rounding import in_float64
from .._core.status import Status
from ..kernels import Kernel
from ..kernels._mixture import check_pairs
from ..residual import num_tokens
from ..solvers import _accuracy, exact, posterior
from ..solvers._algebra import apply, check_system
from ..solvers._bayesian_average import average_status
from ..tasks import Task, system
from ..transformer import Problem, Transformer, predict_along, run_with_cache
from ..transformer._homogeneity import homogeneity
from ..transformer._run_plan import check_compatible


def check(
    model: Transformer,
    task: Task,
    *,
    kernel: Kernel | Sequence[Kernel] | None = None,
    ridge: Any = None,
) -> Status:
    r"""Run a model on a task and measure its error, compared with exact kernel ridge regression.

    The exact solution is computed in float64, or inside JAX transformations in the widest dtype
    that JAX allows. `Status.advice` says the result, and what helps. Inside `jax.jit` and
    `jax.vmap`, use the model from outside of the function, as in
    `jax.vmap(lambda task: icl_krr.check(model, task))(tasks)`. JAX drops the kernel and the ridge
    of a model that is an argument of the function (see `Transformer`); then give both.

    A delta rule solves no regression. Without `kernel` and `ridge`, its status says whether it
    diverges on this task, as that of its oracle does (`Status.grows`). A `bayesian_average` is
    compared with exact Bayesian model averaging, also in the weights at the queries.

    Args:
        kernel: kernel $k$ of the regression; by default that of the construction. It must be given
            for trained models, loaded models and constructions that solve no regression. An average
            takes G kernels.
        ridge: ridge $\lambda$ > 0, in units of $k(x, x)$; by default that of the construction. An
            average takes G ridges [G].

    Returns:
        A `Status` in the dtype of the task. Its residual is that of the slot `alpha` of the model.
        Without this slot, the residual is computed from predictions at the supports. If the model
        has a slot `variance`, the error is the larger one of the errors of prediction and variance.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=2.0, steps=1)
    >>> status = check(model, task)
    >>> bool(status.ok), bool(status.error < 1e-6)
    (True, True)
    """
    check_compatible(model, task)
    task = task.replace(y_query=None)
    in_turn = model.problem is None and model.spec.causal and "alpha" in model.layout.names
    if in_turn and kernel is None and ridge is None:  # supports learn coefficients one by one
        return _accuracy.recurrence_status(task, predict_along(model, task))
    problem = _problem_of(model, kernel, ridge)
    if "log_evidence" in model.layout.names:
        kernels = check_pairs(problem.kernel, problem.ridge)
        _, cache = run_with_cache(model, task, names=("weights", "prediction"))
        weights = cache["weights"]
        weights = weights[:, weights.shape[1] - task.num_queries :]
        measure = average_status
        arguments = kernels, problem.ridge, problem.sharpness, task, cache["prediction"], weights
    else:
        check_system(problem.kernel, task, problem.ridge, matrices=DOUBLE)
        _, cache = run_with_cache(model, task, names=slots_read(model, task))
        measure = partial(compare, any_size=homogeneity(model) is not None)
        arguments = problem.kernel, problem.ridge, task, cache.slots
    solves = not {"alpha", "r", "variance", "log_evidence"}.isdisjoint(model.layout.names)
    steps = model.steps if solves else 0
    about = {"steps": steps, "spectrum": model.takes("spectrum"), "model": True}
    return in_float64(partial(measure, **about), *arguments)


def slots_read(model: Transformer, task: Task) -> tuple[str, ...]:
    """The slots that `check` keeps: all states, as `run_with_cache` does, so that one program is
    compiled for both; if they are large, only the slots that `check` reads."""
    states = model.layout.states
    numbers = (model.steps + 1) * num_tokens(task, model.spec.tokens) * task.num_outputs
    if numbers * model.layout.width * task.x.dtype.itemsize > 2**26:
        states = [name for name in states if name.startswith(READ)]
    return (*states, "prediction")


DOUBLE = 6
"""Matrices of supports in the dtype of the task, at least: three in float64."""

READ = ("alpha", "overrun", "sink", "normaliser", "variance", "missing")
"""States that `check` reads, by the beginnings of their names."""


def _problem_of(model: Transformer, kernel: Any, ridge: Any) -> Problem:
    """Return the problem of the construction, with the given kernel and ridge, if any."""
    problem = model.problem or Problem(None, None)
    kernel = problem.kernel if kernel is None else kernel
    ridge = problem.ridge if ridge is None else ridge
    for name, value in (("kernel", kernel), ("ridge", ridge)):
        if value is None:
            raise ValueError(
                f"{name} must be given for a model that does not know it, such as a trained or "
                "loaded model, a construction that solves no regression, or an argument of a JAX "
                f"transformation; use {name}=..., or m.solves(ridge) in a construction of your own"
            )
    return Problem(kernel, ridge, problem.sharpness)


@partial(jax.jit, static_argnames=("any_size", "steps", "spectrum", "model"))
def compare(
    kernel: Kernel, ridge: Any, original: Task, slots: dict, *, any_size: bool = False, **about: Any
) -> Status:
    """The status of a run, from its slots at the start and after each step."""
    wide = jnp.result_type(float)
    task = original.astype(wide)
    ridge = jnp.asarray(ridge, wide)
    original_system, parts = system(kernel, original), system(kernel, task)
    best = exact(kernel, task, ridge=ridge)
    optimum = best.prediction.reshape(task.num_queries, task.num_outputs)
    iterates = len(slots["prediction"])
    f = slots["prediction"].astype(wide).reshape(iterates, *optimum.shape)
    error = _accuracy.relative_errors(f, optimum, parts.y)
    if "variance" in slots:
        error = jnp.maximum(error, variance_error(kernel, task, ridge, slots))
    residual, falling = 0.0, error[-1] < 0.9 * error[(iterates - 1) // 2]
    if "alpha" in slots:
        alpha = slots["alpha"].astype(wide).reshape(iterates, *parts.y.shape)
        r = parts.y[None] - apply(parts.gram, ridge, alpha)
        path = _accuracy.trajectory_status(parts, ridge, alpha, r)
        residual, falling = path.residual, path.falling & falling
    lost, over = jnp.zeros((), bool), jnp.zeros((), bool)
    for name, slot in slots.items():
        if name.startswith(("sink", "normaliser")):  # the weight is 0, or its reciprocal overflows
            lost |= jnp.any(~jnp.isfinite(slot[-1]) | ((slot[-1] == 0) & name.startswith("sink")))
        elif name == "overrun":
            over |= jnp.any(slot > 0)
    about |= {"sink": lost, "any_size": any_size, "bound": over, "falling": falling}
    return _accuracy.measured_status(
        best.status, original_system, residual, error[-1], slots["prediction"][-1], **about
    )


def variance_error(kernel: Kernel, task: Task, ridge: Any, slots: dict) -> jax.Array:
    """The largest error of the variances at the queries over k(x, x), at every step."""
    q, best = task.num_queries, posterior(kernel, task, ridge=ridge).variance
    v, omitted = (
        slots[name].astype(best.dtype).reshape(len(slots["variance"]), -1)[:, -q:]
        if name in slots
        else 0.0 * best[None]
        for name in ("variance", "missing")
    )
    if not kernel.featured:  # the kernel itself, of which features leave nothing out
        omitted = 0.0 * omitted
    size = _accuracy.nonzero_divisor(kernel.diagonal(task.x_query))
    return _accuracy.max_error(jnp.abs(v - best[None] - omitted) / size[None], axis=1)
