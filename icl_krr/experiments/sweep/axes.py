"""What a sweep can go along: the models of a grid, line by line and value by value."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from ... import constructions, solvers, theory
from ...constructions import ReLU, Softmax
from ...kernels import Exponential, Gaussian, Kernel, Linear
from ...sketches import nystrom_features, positive_features, trigonometric_features
from ...tasks import GaussianProcess, Task, sample, system
from ...transformer import Transformer, operand_bounds
from ..shared.rows import Plot
from ..shared.spectra import sketch, spectral_task
from .values import (
    a_step,
    at_most,
    feature_count,
    floating,
    positive,
    relu_width,
    temperatures,
)

if TYPE_CHECKING:
    from .grid import SweepConfig


class Setting(NamedTuple):
    """A model, its task, what exact KRR predicts and, by step, a bound on its relative error.

    `expected` is the gap that theory expects at the end.

    With `alpha` and the system's matrix `A` the error is that of alpha in the A-norm.
    """

    model: Transformer
    task: Task
    exact: jax.Array
    bound: jax.Array | None = None
    alpha: jax.Array | None = None
    A: jax.Array | None = None
    expected: jax.Array | None = None


class Axis(NamedTuple):
    """`build(line, value, task, config, key)`; `traced` values are one program together."""

    lines: tuple[str, ...]
    values: tuple[Any, ...]
    build: Callable[[str, Any, Task, Any, jax.Array], Setting]
    plot: Plot
    check: Callable[[Any, Any], None]
    traced: bool = True
    num_features: int = 2


NOISE = 0.1
RATES = {
    "conjugate_gradient": theory.conjugate_gradient_rate,
    "chebyshev": theory.chebyshev_rate,
    "heavy_ball": theory.heavy_ball_rate,
    "gradient_descent": theory.gradient_descent_rate,
}
SOLVERS = (*RATES, "gradient_descent_in_alpha", "richardson")


def draw(key: jax.Array, config: SweepConfig) -> Task:
    sizes = config.num_features, config.num_supports, config.num_queries
    if config.axis == "width":
        return spectral_task(key, "1/i", *sizes)
    kernel = Exponential(config.temperature)
    p, n, q = sizes
    process = GaussianProcess(
        kernel, num_features=p, num_supports=n, num_queries=q, inputs="sphere"
    )
    return sample(key, process)


def solve(
    line: str, kernel: Kernel, task: Task, ridge: Any, config: SweepConfig, **options: Any
) -> Transformer:
    """A solver as softmax attention, told the spectrum where it must know it."""
    needs: dict[str, Any] = {"attention": Softmax(log_sink=theory.log_sink(kernel, task))}
    if line not in ("conjugate_gradient", "richardson"):
        needs["spectrum"] = theory.spectral_bounds(kernel, task, ridge=ridge)
    return getattr(constructions, line)(
        kernel,
        num_features=task.num_features,
        ridge=ridge,
        steps=config.steps,
        **needs | options,
    )


def exactly(line: str, kernel: Kernel, task: Task, ridge: Any, config: SweepConfig) -> Setting:
    """One head of Nadaraya-Watson, or a solver, beside exact KRR on the same kernel."""
    exact = solvers.exact(kernel, task, ridge=ridge).prediction
    if line == "nadaraya_watson":
        model = constructions.nadaraya_watson(kernel, num_features=task.num_features)
    else:
        model = solve(line, kernel, task, ridge, config)
    return Setting(model, task, exact)


def depth(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    kernel = Exponential(config.temperature)
    solution = solvers.exact(kernel, task, ridge=config.ridge)
    gram = system(kernel, task).gram
    A = gram + jnp.asarray(config.ridge, gram.dtype) * jnp.eye(len(gram), dtype=gram.dtype)
    model = solve(line, kernel, task, config.ridge, config)
    bound = None
    if line in RATES:
        low, high = theory.spectral_bounds(kernel, task, ridge=config.ridge)
        bound = RATES[line](low, high, jnp.arange(config.steps + 1.0))
    return Setting(model, task, solution.prediction, bound, solution.alpha, A)


def width(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    p, kernel = task.num_features, Linear()
    P = sketch(line, key, task.x, p)
    if line == "gaussian":  # the mean of P P^T is I for the columns that are kept
        P = P * jnp.sqrt(p / value)
    # the other channels carry nothing, so that all widths are one program
    P = jnp.where(jnp.arange(p)[None] < value, P, 0)
    model = constructions.conjugate_gradient(
        kernel, num_features=p, ridge=config.ridge, steps=config.steps, sketch=P
    )
    exact = solvers.exact(kernel, task, ridge=config.ridge).prediction
    sigma = theory.eigenvalues(kernel, task)
    expected = theory.expected_gap(sigma, value, config.ridge, 1 / p, NOISE)
    return Setting(model, task, exact, expected=expected if line == "best" else None)


def ridge(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    return exactly(line, Exponential(config.temperature), task, value, config)


def temperature(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    return exactly(line, Exponential(value), task, config.ridge, config)


def context(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    seen = task.replace(mask=jnp.arange(config.num_supports) < value)
    return exactly(line, Exponential(config.temperature), seen, config.ridge, config)


FEATURES = {
    "positive": partial(positive_features, orthogonal=False),
    "positive, orthogonal": positive_features,
    "trigonometric": trigonometric_features,
}


def features(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    kernel = Exponential(config.temperature)
    if line == "landmarks":
        phi = nystrom_features(kernel, task.x[:value])
    else:
        phi = FEATURES[line](key, kernel, num_features=task.num_features, width=value)
    model = constructions.conjugate_gradient(
        kernel, num_features=task.num_features, ridge=config.ridge, steps=config.steps, sketch=phi
    )
    return Setting(model, task, solvers.exact(kernel, task, ridge=config.ridge).prediction)


def precision(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    kernel = Exponential(config.temperature)
    exact = solvers.exact(kernel, task, ridge=config.ridge).prediction
    model = solve(line, kernel, task, config.ridge, config)
    cast = jax.tree.map(lambda field: field.astype(value), task.replace(y_query=None))
    return Setting(model, cast.replace(y_query=task.y_query), exact)


def arithmetic(line: str, value: Any, task: Task, config: SweepConfig, key: jax.Array) -> Setting:
    kernel = Gaussian(math.sqrt(config.temperature))
    twin = solve(line, kernel, task, config.ridge, config)
    bounds = operand_bounds(twin, task, margin=2.0)
    model = solve(line, kernel, task, config.ridge, config, arithmetic=ReLU(value, bounds))
    return Setting(model, task, solvers.exact(kernel, task, ridge=config.ridge).prediction)


TUNED = ("conjugate_gradient", "chebyshev", "richardson", "nadaraya_watson")
OVER = Plot("value", "gap", ("line",), logx=True)
AXES = {
    "depth": Axis(SOLVERS, (), depth, Plot("value", "error", ("line",), "bound"), a_step),
    "width": Axis(
        ("best", "orthonormal", "gaussian", "coordinates", "landmarks"),
        (1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32),
        width,
        Plot("value", "gap", ("line",), "expected"),
        at_most("num_features"),
        num_features=32,
    ),
    "ridge": Axis(TUNED, tuple(10.0**k for k in range(-3, 4)), ridge, OVER, positive),
    "temperature": Axis(
        TUNED, (0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0), temperature, OVER, temperatures
    ),
    "context": Axis(TUNED, (4, 8, 16, 32, 48, 64), context, OVER, at_most("num_supports")),
    "features": Axis(
        (*FEATURES, "landmarks"), (8, 16, 32, 64), features, OVER, feature_count, False
    ),
    "precision": Axis(
        ("conjugate_gradient", "chebyshev", "gradient_descent", "richardson"),
        ("bfloat16", "float32", "float64"),
        precision,
        Plot("step", "gap", ("line", "value")),
        floating,
        False,
    ),
    "arithmetic": Axis(
        ("chebyshev", "richardson"), (16, 32, 64, 128, 256), arithmetic, OVER, relu_width, False
    ),
}
