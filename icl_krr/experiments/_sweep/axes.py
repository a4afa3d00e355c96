"""The axes of a sweep: what each varies, and the model and the task of one value."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ... import ReLU, constructions, operand_bounds, predict, solvers, theory
from ..._core.numerics import matmul
from ...catalogue import SOLVERS
from ...probes import round_slots
from ...sketches import nystrom_features, positive_features, trigonometric_features
from ...tabular._build import construct
from ...tasks import Task, system
from .._shared.rows import Plot
from .._shared.spectra import METRIC, sketch, with_metric
from . import axis
from .axis import along, support
from .settings import NOISE, SweepSettings
from .trial import Trial, beside_exact, kernel_of, solve


@along(axis.step, solvers=True, plot=Plot("value", "error", ("line",), "bound"))
def depth(line: str, value: Any, task: Task, config: SweepSettings, key: jax.Array) -> Trial:
    """The error of alpha after every step, with the bound of theory."""
    kernel, rate = kernel_of(config), SOLVERS[line].rate or theory.RATES.get(line)
    solution = solvers.exact(kernel, task, ridge=config.ridge)
    gram = system(kernel, task).gram
    A = gram + jnp.asarray(config.ridge, gram.dtype) * jnp.eye(len(gram), dtype=gram.dtype)
    model, bound = solve(line, kernel, task, config.ridge, config), None
    if rate is not None:
        low, high = theory.spectral_bounds(kernel, task, ridge=config.ridge)
        bound = rate(low, high, jnp.arange(config.steps + 1.0))
    return Trial(model, task, solution.prediction, bound, solution.alpha, A, smoother=kernel)


@along(
    axis.feature,
    values=(1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32),
    lines=("best", "orthonormal", METRIC, "gaussian", "coordinates", "landmarks"),
    kernel="linear",
    kernels=("exponential",),
    num_features=32,
    unused=("temperature",),
    plot=Plot("value", "gap", ("line",), "expected"),
)
def width(line: str, value: Any, task: Task, config: SweepSettings, key: jax.Array) -> Trial:
    """Conjugate gradient on m features: a sketch of the kernel's own or its Nystrom features."""
    kernel, linear = kernel_of(config), config.kernel == "linear"
    phi = None if linear else nystrom_features(kernel, task.x)
    x = task.x if phi is None else phi(task.x)
    p = x.shape[1]
    landmarks = jnp.where(jnp.arange(len(x))[:, None] < value, x, 0) if line == "landmarks" else x
    P = sketch("orthonormal" if line == METRIC else line, key, landmarks, p)
    if line == "gaussian":
        # makes the mean of P P^T the identity, as only `value` columns of p remain
        P = P * jnp.sqrt(p / value)
    # the other columns are 0 and not removed, so that one compiled program runs all widths
    P = jnp.where(jnp.arange(p)[None] < value, P, 0)
    P = with_metric(P, x) if line == METRIC else P
    model = constructions.conjugate_gradient(
        kernel,
        num_features=task.num_features,
        ridge=config.ridge,
        steps=config.steps,
        sketch=P if phi is None else replace(phi, mix=matmul(phi.mix, P)),
    )
    exact = solvers.exact(kernel, task, ridge=config.ridge).prediction
    sigma, ridge = theory.eigenvalues(kernel, task), config.ridge
    expected = theory.expected_gap(sigma, value, ridge, 1 / p if linear else 1.0, NOISE)
    return Trial(
        model,
        task,
        exact,
        expected=expected if line == "best" else None,
        d_eff=theory.effective_dimension(sigma, ridge),
        tail=theory.sketch_error_tail(sigma, value) / jnp.sum(sigma),
        smoother=None if kernel.featured else kernel,
    )


@along(
    axis.positive,
    values=tuple(10.0**k for k in range(-3, 4)),
    solvers=True,
    smooths=True,
    unused=("ridge",),
)
def ridge(line: str, value: Any, task: Task, config: SweepSettings, key: jax.Array) -> Trial:
    """Every solver is compared with exact KRR of the same ridge."""
    return beside_exact(line, kernel_of(config), task, value, config)


@along(
    partial(axis.check_temperature, "values"),
    values=(0.2, 0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 10.0),
    solvers=True,
    smooths=True,
)
def temperature(line: str, value: Any, task: Task, config: SweepSettings, key: jax.Array) -> Trial:
    """Every solver is compared with exact KRR on the same kernel."""
    return beside_exact(line, kernel_of(config, value), task, config.ridge, config)


@along(support, values=(4, 8, 16, 32, 48, 64), solvers=True, smooths=True)
def context(line: str, value: Any, task: Task, config: SweepSettings, key: jax.Array) -> Trial:
    """The number of supports that are not masked."""
    prefix = task.replace(mask=jnp.arange(config.num_supports) < value)
    return beside_exact(line, kernel_of(config), prefix, config.ridge, config)


RANDOM = {
    "positive": partial(positive_features, orthogonal=False),
    "positive, orthogonal": positive_features,
    "trigonometric": trigonometric_features,
}


@along(axis.feature_count, values=(8, 16, 32, 64), lines=(*RANDOM, "landmarks"), traced=False)
def features(line: str, value: Any, task: Task, config: SweepSettings, key: jax.Array) -> Trial:
    """Conjugate gradient by linear attention on m features of the kernel."""
    kernel, p = kernel_of(config), task.num_features
    if line == "landmarks":
        phi = nystrom_features(kernel, task.x[:value])
    else:
        phi = RANDOM[line](key, kernel, num_features=p, width=value)
    model = constructions.conjugate_gradient(
        kernel, num_features=p, ridge=config.ridge, steps=config.steps, sketch=phi
    )
    exact = solvers.exact(kernel, task, ridge=config.ridge).prediction
    return Trial(model, task, exact, smoother=kernel)


@along(
    support,
    values=(1, 2, 4, 8, 16, 32, 64),
    lines=("prefix_conjugate_gradient", "prefix_chebyshev", "delta_rule"),
    solvers=True,
    kernel="linear",
    num_features=8,
    unused=("temperature",),
)
def position(line: str, value: Any, task: Task, config: SweepSettings, key: jax.Array) -> Trial:
    """A causal model at the support with so many before it, which is told of the whole context."""
    kernel = kernel_of(config)
    model = solve(line, kernel, task, config.ridge, config)
    prefix = task.replace(mask=jnp.arange(config.num_supports) < value)
    return Trial(model, prefix, solvers.exact(kernel, prefix, ridge=config.ridge).prediction)


HALF = ("float16", "bfloat16")
PREFIX = {"mesa": "prefix_conjugate_gradient", "chebyshev": "prefix_chebyshev"}
SLOTS = {"C": ("C",), "vectors": ("w", "r", "d"), "sums": ("rr", "rr_next", "pAp")}
"""The slots of a part: the state of the layer, the vectors of the solver, its inner products."""


@along(
    axis.condition,
    values=(10.0, 100.0, 1000.0, 10000.0),
    lines=(
        *(f"{solver} {part} {d}" for solver in PREFIX for part in ("C", "vectors") for d in HALF),
        *(f"mesa sums {d}" for d in HALF),
    ),
    kernel="linear",
    num_features=8,
    unused=("temperature", "ridge"),
    against="the same model without rounding",
)
def rounding(line: str, value: Any, task: Task, config: SweepSettings, key: jax.Array) -> Trial:
    """Prefix solvers with some slots in half precision, compared with the same model unrounded."""
    solver, part, dtype = line.split()
    kernel = kernel_of(config)
    top = theory.eigenvalues(kernel, task)[-1]
    ridge = top / (value - 1)
    spectrum = {"spectrum": (ridge, top + ridge)} if solver == "chebyshev" else {}
    model = construct(
        PREFIX[solver], kernel, task, ridge=ridge, steps=config.steps, stores_sums=True, **spectrum
    )
    hooks = round_slots(model, dict.fromkeys(SLOTS[part], dtype))
    return Trial(model, task, predict(model, task), hooks=hooks)


@along(
    axis.floating,
    values=("bfloat16", "float32", "float64"),
    solvers=True,
    plot=Plot("step", "gap", ("line", "value")),
    traced=False,
)
def precision(line: str, value: Any, task: Task, config: SweepSettings, key: jax.Array) -> Trial:
    """The dtype of the task; all models have the same weights."""
    kernel = kernel_of(config)
    exact = solvers.exact(kernel, task, ridge=config.ridge).prediction
    model = solve(line, kernel, task, config.ridge, config)
    cast = jax.tree.map(lambda field: field.astype(value), task.replace(y_query=None))
    return Trial(model, cast.replace(y_query=task.y_query), exact, smoother=kernel)


@along(
    axis.relu_width,
    values=(16, 32, 64, 128, 256),
    lines=("chebyshev", "richardson"),
    solvers=True,
    kernel="gaussian",
    traced=False,
)
def arithmetic(line: str, value: Any, task: Task, config: SweepSettings, key: jax.Array) -> Trial:
    """The number of segments of the ReLU tables."""
    kernel = kernel_of(config)
    bounds = operand_bounds(solve(line, kernel, task, config.ridge, config), task, margin=2.0)
    model = solve(line, kernel, task, config.ridge, config, arithmetic=ReLU(value, bounds))
    exact = solvers.exact(kernel, task, ridge=config.ridge).prediction
    return Trial(model, task, exact, smoother=kernel)
