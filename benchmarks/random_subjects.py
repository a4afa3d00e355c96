"""The public functions that return numbers, each with the exact results that it must match."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import icl_krr as ik
from benchmarks.random_truths import RIDGES

STEPS = 24
SPECTRAL = (
    "chebyshev",
    "gradient_descent",
    "gradient_descent_in_alpha",
    "heavy_ball",
    "newton_schulz",
)
ALL = ("linear", "exponential", "gaussian")
SMOOTH, LINEAR = ALL[1:], ALL[:1]

Run = Callable[[ik.Kernel, ik.Task, jax.Array], tuple[Any, jax.Array]]
"""Returns values, a pytree, and whether the status is ok."""


class Subject(NamedTuple):
    """A function, the names of its exact results, and the kernels that it takes.

    A batched function runs on all tasks in one program, because a construction is built in many
    small steps; the others run as a user calls them.
    """

    run: Run
    answers: tuple[str, ...]
    kernels: tuple[str, ...] = ALL
    batched: bool = False


def needs(name: str, kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> dict[str, Any]:
    """What a solver must be told besides the number of steps."""
    if name == "bayesian_average":
        return {"ridges": ridge * jnp.asarray(RIDGES, ridge.dtype)}
    told: dict[str, Any] = {"ridge": ridge}
    if name in SPECTRAL:
        told["spectrum"] = ik.spectral_bounds(kernel, task, ridge=ridge)
    elif name == "prefix_chebyshev":
        told["spectrum"] = ik.theory.prefix_bounds(kernel, task, ridge=ridge)
    elif name == "preconditioned_chebyshev":
        on = kernel.diagonal(task.x)
        told["num_supports"], told["largest"] = (
            task.num_supports,
            jnp.max(on, where=task.mask, initial=0),
        )
    return told


def solve(name: str, kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    told = needs(name, kernel, task, ridge)
    return getattr(ik.solvers, name)(kernel, task, steps=STEPS, **told)


def build(name: str, kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> ik.Transformer:
    told = needs(name, kernel, task, ridge) | {"num_features": task.num_features}
    dtype = task.x.dtype
    return getattr(ik.constructions, name)(kernel, steps=STEPS, dtype=dtype, **told)


def last(name: str, *problem: Any) -> Any:
    """The last iterate of a solver with a status."""
    found = solve(name, *problem)
    return found.prediction[-1], found.status.ok


def last_average(*problem: Any) -> Any:
    found = solve("bayesian_average", *problem)
    return (found.prediction[-1], found.weights[-1, -1]), found.status.ok


def direct(kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    found = ik.solvers.exact(kernel, task, ridge=ridge)
    return found.prediction, found.status.ok


def direct_posterior(kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    found = ik.solvers.posterior(kernel, task, ridge=ridge)
    return (found.mean, found.variance), found.status.ok


def checked(name: str, kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    model = build(name, kernel, task, ridge)
    ok = ik.check(model, task).ok
    if name == "bayesian_average":
        prediction, cache = ik.run_with_cache(model, task, names=("weights",))
        return (prediction, cache["weights"][-1, -1]), ok
    if name == "prefix_posterior":
        prediction, cache = ik.run_with_cache(model, task, names=("variance",))
        return (prediction, cache["variance"][-1, -task.num_queries :]), ok
    return ik.predict(model, task), ok


def posterior(name: str, kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    found = ik.posterior(build(name, kernel, task, ridge), kernel, task)
    return (found.mean, found.variance), found.status.ok


def audited(function: Callable, kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    value, status = ik.audit(function, kernel, task, ridge)
    return value, status.ok


@partial(jax.jit, static_argnums=0)
def converged(name: str, *problem: Any) -> jax.Array:
    return checked(name, *problem)[1]


def audited_model(name: str, function: Callable, *problem: Any) -> Any:
    """An audit sees rounding; `icl_krr.check` sees that a model has taken too few steps."""
    value, ok = audited(function, *problem)
    with jax.enable_x64(True):
        return value, ok & converged(name, *problem)


def told(name: str) -> Callable:
    call = lambda kernel, task, ridge: getattr(ik.solvers, name)(kernel, task, ridge=ridge)  # noqa: E731
    return jax.jit(call)


def untold(name: str) -> Callable:
    return jax.jit(lambda kernel, task, ridge: getattr(ik.solvers, name)(kernel, task))


@jax.jit
def bounds(kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    return ik.spectral_bounds(kernel, task, ridge=ridge)


@jax.jit
def smoothing(kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    return tuple(ik.solvers.nadaraya_watson(kernel, task))


@jax.jit
def smoothing_model(kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
    sizes = {"num_features": task.num_features, "dtype": task.x.dtype}
    return ik.predict(ik.constructions.nadaraya_watson(kernel, **sizes), task)


def predicted(name: str) -> Callable:
    def predict(*problem: Any) -> Any:
        return ik.predict(build(name, *problem), problem[1])

    return jax.jit(predict)


def solved(name: str) -> Callable:
    def prediction(*problem: Any) -> Any:
        return solve(name, *problem).prediction[-1]

    return jax.jit(prediction)


@jax.jit
def learned(kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> jax.Array:
    return ik.solvers.delta_rule(kernel, task, step_size=0.5, normalised=True).prediction[-1]


@jax.jit
def solved_posterior(*problem: Any) -> Any:
    found, task = solve("prefix_posterior", *problem), problem[1]
    return found.prediction[-1], found.variance[-1, task.num_supports :]


def sum_of_exact(kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> jax.Array:
    return jnp.sum(ik.solvers.exact(kernel, task, ridge=ridge).prediction)


def sum_of(predict: Callable) -> Callable:
    return lambda *problem: jnp.sum(predict(*problem))


def gradients(loss: Callable) -> Callable:
    """The gradients of a loss in y, in the points of supports and queries, and in the ridge."""

    def value(kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> Any:
        of = lambda y, x, at, ridge: loss(  # noqa: E731
            kernel, task.replace(y=y, x=x, x_query=at), ridge
        )
        return jax.grad(of, argnums=(0, 1, 2, 3))(task.y, task.x, task.x_query, ridge)

    return jax.jit(value)


@jax.jit
def evidence_slope(kernel: ik.Kernel, task: ik.Task, ridge: jax.Array) -> jax.Array:
    of = lambda ridge: ik.solvers.log_marginal_likelihood(kernel, task, ridge=ridge)  # noqa: E731
    return jax.grad(of)(ridge)


SOLVERS = {
    **dict.fromkeys(("conjugate_gradient", "preconditioned_conjugate_gradient"), ALL),
    **dict.fromkeys(("chebyshev", "gradient_descent", "heavy_ball"), ALL),
    "gradient_descent_in_alpha": ALL,
    **dict.fromkeys(("richardson", "preconditioned_chebyshev"), SMOOTH),
    "newton_schulz": LINEAR,
}
CAUSAL = ("prefix_conjugate_gradient", "prefix_chebyshev")
SLOPES = ("sum in y", "sum in supports", "in queries", "sum in ridge")
PLAIN = {
    "leave_one_out": "leave_one_out",
    "log_marginal_likelihood": "evidence",
    "derivative_in_y": "in y",
    "derivative_in_ridge": "in ridge",
    "derivative_in_projection": "in projection",
    "derivative_in_queries": "in queries",
    "derivative_in_supports": "in supports",
    "derivative_in_weights": "in weights",
    "change_without": "without",
}

STATED: dict[str, Subject] = {
    "`solvers.exact`": Subject(direct, ("prediction",)),
    "`solvers.posterior`": Subject(direct_posterior, ("prediction", "variance")),
    "`solvers.bayesian_average`": Subject(last_average, ("average", "weights"), LINEAR),
    **{
        f"`solvers.{name}`": Subject(partial(last, name), ("prediction",), kernels)
        for name, kernels in SOLVERS.items()
    },
    **{
        f"`check` of `{name}`": Subject(partial(checked, name), ("prediction",), kernels, True)
        for name, kernels in (SOLVERS | dict.fromkeys(CAUSAL, LINEAR)).items()
    },
    "`check` of `prefix_posterior`": Subject(
        partial(checked, "prefix_posterior"), ("prediction", "variance"), LINEAR, True
    ),
    "`check` of `bayesian_average`": Subject(
        partial(checked, "bayesian_average"), ("average", "weights"), LINEAR, True
    ),
    **{
        f"`posterior` of `{name}`": Subject(
            partial(posterior, name), ("prediction", "variance"), SOLVERS[name], True
        )
        for name in ("conjugate_gradient", "chebyshev", "richardson")
    },
}
AUDITED: dict[str, tuple[Callable, tuple[str, ...], tuple[str, ...]]] = {
    **{f"`{name}`": (told(name), (answer,), ALL) for name, answer in PLAIN.items()},
    "`derivative_in_bandwidth`": (told("derivative_in_bandwidth"), ("in bandwidth",), SMOOTH),
    "`spectral_bounds`": (bounds, ("low", "high"), ALL),
    "`nadaraya_watson`": (smoothing, ("smooth", "shares"), SMOOTH),
    "`smoother_leave_one_out`": (untold("smoother_leave_one_out"), ("smooth without",), SMOOTH),
    "`predict` of `nadaraya_watson`": (smoothing_model, ("smooth",), SMOOTH),
    "`predict` of `conjugate_gradient`": (predicted("conjugate_gradient"), ("mean",), ALL),
    "`solvers.delta_rule`": (learned, ("delta rule",), ALL),
    "`solvers.prefix_conjugate_gradient`": (solved("prefix_conjugate_gradient"), ("mean",), LINEAR),
    "`solvers.prefix_posterior`": (solved_posterior, ("mean", "function variance"), LINEAR),
    "gradients of `exact`": (gradients(sum_of_exact), SLOPES, ALL),
    "gradients of `solvers.conjugate_gradient`": (
        gradients(sum_of(solved("conjugate_gradient"))),
        SLOPES,
        ALL,
    ),
    "gradients of `predict`, `conjugate_gradient`": (
        gradients(sum_of(predicted("conjugate_gradient"))),
        SLOPES,
        ALL,
    ),
    "gradient of `log_marginal_likelihood`": (evidence_slope, ("evidence in ridge",), ALL),
}
CONVERGING = {
    "`predict` of `conjugate_gradient`": "conjugate_gradient",
    "gradients of `solvers.conjugate_gradient`": "conjugate_gradient",
    "gradients of `predict`, `conjugate_gradient`": "conjugate_gradient",
    "`solvers.prefix_conjugate_gradient`": "prefix_conjugate_gradient",
    "`solvers.prefix_posterior`": "prefix_posterior",
}
"""The model that `check` judges, too, for functions that take steps."""

SUBJECTS: dict[str, Subject] = STATED | {
    f"`audit` of {name}": Subject(
        partial(audited_model, CONVERGING[name], function)
        if name in CONVERGING
        else partial(audited, function),
        answers,
        kernels,
    )
    for name, (function, answers, kernels) in AUDITED.items()
}
