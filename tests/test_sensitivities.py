"""Sensitivities and influence: through the forward, by hand, and by refitting."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES, draw, numpy, relative

import icl_krr as ik
from icl_krr import probes, solvers

RIDGE = 0.5
U = np.array([[1.0, 0.3, -0.4], [-0.2, 0.8, 0.5]])


@pytest.fixture
def task(x64):
    return draw(8, p=3, n=8, q=4)


def pipelined(kernel, temperature, projection, log_sink, **numbers):
    options = {"form": "pipelined", "attention": ik.Softmax(log_sink=log_sink), "steps": 10}
    return ik.constructions.conjugate_gradient(kernel, num_features=3, **options, **numbers)


def test_sensitivities_of_what_has_converged_are_those_of_exact_regression(task):
    """With respect to all its numbers, the queries, the supports and their outputs."""
    numbers = {"temperature": 2.0, "projection": U, "log_sink": 4.0, "ridge": RIDGE}
    params = jax.tree.map(jnp.asarray, numbers)

    def kernel(params):
        return ik.Exponential(params["temperature"], projection=params["projection"])

    def answers(params, task):
        return ik.predict(pipelined(kernel(params), **params), task)

    def exact(params, task):
        return solvers.exact(kernel(params), task, ridge=params["ridge"]).prediction

    @partial(jax.jit, static_argnums=0)
    def of(run, params):
        in_params = probes.parameter_sensitivities(lambda params: run(params, task), params)
        return in_params, probes.sensitivities(lambda task: run(params, task)[None], task)

    slopes, input_slopes = of(answers, params)
    expected_slopes, expected = of(exact, params)
    for name, value in expected_slopes.items():  # exact regression has no sink
        assert relative(slopes[name], value) < (1e-12 if name == "log_sink" else 1e-6), name
    for ours, theirs in zip(input_slopes, expected, strict=True):
        assert relative(ours, theirs) < 1e-6


def solve_by_hand(kernel, task, derivative):
    return derivative(kernel, task, ridge=RIDGE)


def test_closed_forms_are_the_derivatives_of_the_oracle(task):
    """With a masked support, on which nothing depends."""
    kernel = ik.Exponential(2.0, projection=np.asarray(U))
    task = task.replace(mask=np.arange(8) != 3)

    @jax.jit
    @partial(jax.jacrev, argnums=(0, 1, 2))
    def derivatives(kernel, arrays, ridge):
        return solvers.exact(kernel, task.replace(**arrays), ridge=ridge).prediction

    arrays = {"x": task.x, "y": task.y, "x_query": task.x_query}
    in_kernel, in_task, in_ridge = derivatives(kernel, arrays, RIDGE)
    of = jax.jit(partial(solve_by_hand, kernel, task), static_argnums=0)
    assert relative(of(solvers.derivative_in_projection), in_kernel.projection) < 1e-9
    assert relative(of(solvers.derivative_in_ridge), in_ridge) < 1e-9
    assert relative(of(solvers.derivative_in_y), in_task["y"]) < 1e-9
    assert relative(of(solvers.derivative_in_supports), in_task["x"]) < 1e-9
    each = np.einsum("qqp->qp", in_task["x_query"])
    assert relative(of(solvers.derivative_in_queries), each) < 1e-9
    assert relative(of(solvers.derivative_in_bandwidth), in_kernel.temperature) < 1e-9

    def exact(mask):
        return solvers.exact(kernel, task.replace(mask=mask), ridge=RIDGE).prediction

    refits = [exact(task.mask & (np.arange(8) != j)) for j in range(8)]
    change = np.stack(refits, axis=1) - np.asarray(exact(task.mask))[:, None]
    result = np.asarray(of(solvers.change_without))
    assert relative(result, change) < 1e-9
    assert np.all(result[:, 3] == 0)


def test_closed_forms_keep_digits_in_float32(x64):
    """At a small ridge, with two equal supports: a product with A^-1 would keep none."""
    rng = np.random.default_rng(0)
    x, x_query, noise = (rng.normal(size=size).astype("f4") for size in ((10, 2), (4, 2), 10))
    x[5] = x[4]
    task = ik.Task(x=x, y=x @ np.float32([1, -0.5]) + np.float32(0.1) * noise, x_query=x_query)
    ours, exact = (
        solvers.derivative_in_supports(
            ik.Linear(), task.astype(dtype), ridge=np.asarray(1e-4, dtype)
        )
        for dtype in ("float32", "float64")
    )
    assert ours.dtype == "float32"
    assert relative(ours, exact) < 0.1


STATIONARY = {
    "gradient_descent": {"step_size": 0.02},
    "chebyshev": {"spectrum": (0.3, 30.0)},
    "heavy_ball": {"step_size": 0.05, "momentum": 0.4},
}


@pytest.mark.parametrize("name", STATIONARY)
def test_steps_and_bounds_matter_before_convergence_as_in_the_oracle(task, name):
    """Step by step, beside the ridge: and no longer in the end."""
    solve, construct = getattr(solvers, name), getattr(ik.constructions, name)

    def model(params):
        return probes.layerwise(construct(ik.Linear(), num_features=3, steps=400, **params), task)

    def oracle(params):
        return solve(ik.Linear(), task, steps=400, **params).prediction

    params = STATIONARY[name] | {"ridge": RIDGE}
    compiled = jax.jit(probes.parameter_sensitivities, static_argnums=0)
    ours, theirs = (compiled(f, params) for f in (model, oracle))
    for key in params:
        for mine, other in zip(*map(jax.tree.leaves, (ours[key], theirs[key])), strict=True):
            assert relative(mine, other) < 1e-9, key
            assert np.max(np.abs(mine[3])) > 1e-3, key
            assert key == "ridge" or np.max(np.abs(mine[-1])) < 1e-9, key


def test_influence_is_that_of_regression_with_weights_and_without_the_support(x64):
    task = draw(0, p=2, n=8, q=4)
    model = CASES["picg"].build(task, RIDGE, 3)
    result = numpy(jax.jit(probes.influence)(model, task))
    of = jax.jit(partial(solve_by_hand, ik.Linear(), task), static_argnums=0)
    assert relative(-result.first_order, of(solvers.derivative_in_weights)) < 1e-6
    assert relative(result.exact, of(solvers.change_without)) < 1e-6
    leverage = 1 - RIDGE * np.diag(np.linalg.inv(task.x @ task.x.T + RIDGE * np.eye(8)))
    assert relative(result.exact * (1 - leverage)[None], result.first_order) < 1e-6


@pytest.fixture
def encoder(x64):
    spec = ik.Architecture(num_features=3, width=8, depth=2, heads=2)
    return jax.jit(ik.init, static_argnums=1)(jax.random.key(1), spec)


def test_a_weight_in_a_trained_model_is_how_often_a_support_is_there(task, encoder):
    """None: masked; two: repeated. The derivative in it lies between."""
    order = np.array([*range(8), 2])
    twice = task.replace(x=task.x[order], y=task.y[order])
    weigh = jax.jit(partial(probes.weighted, encoder, task))
    ones = np.ones(8)
    assert relative(weigh(np.where(np.arange(8) == 2, 2.0, 1.0)), ik.predict(encoder, twice)) < 1e-9
    result = jax.jit(probes.influence)(encoder, task)
    without = weigh(np.where(np.arange(8) == 2, 0.0, 1.0)) - numpy(ik.predict(encoder, task))
    assert relative(result.exact[:, 2], without) < 1e-9
    step = 1e-5
    more, less = (numpy(weigh(ones + change * (np.arange(8) == 2))) for change in (step, -step))
    slope = (more - less) / (2 * step)
    assert relative(-result.first_order[:, 2], slope) < 1e-6


def test_several_outputs_are_refused(x64):
    one = ik.Task(x=np.ones((2, 1)), y=np.ones(2), x_query=np.ones((1, 1)))
    task = one.replace(y=np.ones((2, 2)))
    model = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=1)
    for refused in (
        lambda: solvers.derivative_in_y(ik.Linear(), task, ridge=RIDGE),
        lambda: probes.sensitivities(lambda task: task.y.T, task),
        lambda: probes.influence(model, task),
    ):
        with pytest.raises(ValueError, match=r"y must be \[n\], got shape"):
            jax.eval_shape(refused)
    with pytest.raises(TypeError, match="kernel must have a derivative in its bandwidth"):
        jax.eval_shape(lambda: solvers.derivative_in_bandwidth(ik.Linear(), one, ridge=RIDGE))
