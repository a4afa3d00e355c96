"""Fitting constructions by gradient: planted parameters, likelihoods, and what is refused."""

import csv
import dataclasses
import io
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from helpers import draw as one_task, numpy

import icl_krr as ik
from icl_krr._core.files import to_csv
from icl_krr.training import Diverged, adapt, held_out, marginal_likelihood
from icl_krr.training._batches import draw

NORMAL: Any = scipy.stats.multivariate_normal


@pytest.fixture
def tasks(x64):
    family = ik.tasks.LinearRegression(num_features=4, num_supports=8, num_queries=6, noise=0.1)
    return numpy(draw(jax.random.key(0), family, 4))


def softmax(parameters):
    """Conjugate gradient on the exponential kernel, converged."""
    options = {"ridge": parameters["ridge"], "steps": 8, "form": "pipelined"}
    kernel = ik.Exponential(parameters["temperature"])
    return ik.constructions.conjugate_gradient(kernel, num_features=4, **options)


def predictions(build, tasks, parameters):
    return jax.jit(lambda parameters: ik.predict_batch(build(parameters), tasks))(parameters)


def descend(parameters):
    options = {"num_features": 4, "ridge": 0.5, "steps": 3, **parameters}
    return ik.constructions.gradient_descent(ik.Linear(), **options)


def test_a_step_size_is_found(tasks):
    error = held_out(descend, tasks, predictions(descend, tasks, {"step_size": 0.02}))
    fit = adapt(error, {"step_size": 0.005}, positive=("step_size",), iterations=300)
    assert abs(fit.parameters["step_size"] / 0.02 - 1) < 1e-4


def test_lbfgs_ends_where_its_line_search_finds_no_lower_loss(x64):
    loss, start = lambda at: jnp.log(at["ridge"] / 3) ** 2, {"ridge": 1.0}
    fit = adapt(loss, start, positive=("ridge",), method="lbfgs", iterations=40)
    assert abs(fit.parameters["ridge"] / 3 - 1) < 1e-6
    assert "the line search finds no lower loss" in fit.stopped


def test_scalars_of_every_step_and_whole_models_lower_the_loss(tasks):
    """Chebyshev's coefficients, each on its own; then all weights."""
    options = {"ridge": 0.5, "steps": 3, "spectrum": (0.5, 60.0)}
    model = ik.constructions.chebyshev(ik.Linear(), num_features=4, **options)
    leaves, structure = jax.tree.flatten(model.weights.steps)
    step_leaves = {str(i): leaf for i, leaf in enumerate(leaves) if len(leaf) == model.steps}
    assert {leaf.size for leaf in step_leaves.values()} == {3}

    def build(step_leaves):
        steps = [step_leaves.get(str(i), leaf) for i, leaf in enumerate(leaves)]
        weights = dataclasses.replace(model.weights, steps=structure.unflatten(steps))
        return dataclasses.replace(model, weights=weights)

    scalars = adapt(held_out(build, tasks), step_leaves, iterations=20)
    assert scalars.losses[-1] < 0.9 * scalars.losses[0]
    whole = adapt(held_out(lambda m: m, tasks), model, iterations=20, learning_rate=1e-3)
    assert min(whole.losses) < whole.losses[0]
    assert jax.tree.structure(whole.parameters) == jax.tree.structure(model)
    assert sum(row.change > 0 for row in whole.moved) > len(step_leaves)


def test_the_gradient_of_the_likelihood_is_the_closed_form(tasks):
    """Through the converged forward, and the oracle's: eq. 5.9 of Rasmussen and Williams."""
    parameters = {"temperature": jnp.asarray(5.0), "ridge": jnp.asarray(0.4)}
    system = lambda parameters: (ik.Exponential(parameters["temperature"]), parameters["ridge"])  # noqa: E731
    loss = marginal_likelihood(softmax, system, tasks)
    value, slope = jax.jit(jax.value_and_grad(loss))(parameters)
    values, slopes = [], {"temperature": [], "ridge": []}
    for x, y in zip(tasks.x, tasks.y, strict=True):
        kernel = ik.Exponential(5.0)
        A = np.asarray(kernel(x, x)) + 0.4 * np.eye(8)
        values.append(NORMAL.logpdf(y, cov=A))
        alpha, inverse = np.linalg.solve(A, y), np.linalg.inv(A)
        slope_of_K = kernel.derivative_in_bandwidth(x, x)
        moves = {"temperature": slope_of_K, "ridge": np.eye(8)}
        for name, dA in moves.items():
            slopes[name].append(np.trace((np.outer(alpha, alpha) - inverse) @ dA) / 2)
    assert np.isclose(value, -np.mean(values) / 8, rtol=1e-9)
    for name in parameters:
        assert np.isclose(slope[name], -np.mean(slopes[name]) / 8, rtol=1e-6), name


def test_the_likelihood_of_the_oracle_is_that_of_scipy(x64):
    """With a mask and two outputs, and its gradient by differences."""
    whole, mask = one_task(0, p=3, r=2), np.arange(7) % 3 != 0
    task = whole.replace(mask=mask)

    @jax.jit
    @jax.value_and_grad
    def likelihood(ridge):
        return ik.solvers.log_marginal_likelihood(ik.Linear(), task, ridge=ridge)

    x, y = whole.x[mask], whole.y[mask]
    expected = NORMAL.logpdf(y.T, cov=x @ x.T + 0.5 * np.eye(len(x))).sum()
    (low, _), (value, slope), (high, _) = (likelihood(0.5 + e) for e in (-1e-5, 0, 1e-5))
    assert np.isclose(value, expected, rtol=1e-9)
    assert np.isclose(slope, (float(high) - float(low)) / 2e-5, rtol=1e-6)


def test_one_trace_serves_all_iterations_and_progress_is_told(x64):
    traces, reports = [], []

    def loss(at):
        traces.append(at)
        return jnp.sum((at["w"] - 1.0) ** 2) + (jnp.log(at["c"]) - 1) ** 2

    start = {"w": jnp.zeros((2, 3)), "c": 1.0}
    fit = adapt(loss, start, positive=("c",), iterations=7, progress=lambda i, _: reports.append(i))
    first = len(traces)
    assert first <= 3
    assert reports == list(range(8))
    assert len(fit.losses) == 8
    assert fit.stopped == ""
    assert fit.losses[0] == 7
    rows = list(csv.DictReader(io.StringIO(to_csv([m._asdict() for m in fit.moved]).decode())))
    assert [row["name"] for row in rows] == ["c", "w"]
    assert float(rows[1]["fitted"]) > 0
    assert str(fit).splitlines()[1].split()[0] == "c"


def test_a_loss_that_is_no_number_keeps_the_best_before(x64):
    """Adam runs off the edge of the logarithm's domain."""
    loss = lambda x: jnp.where(x > 0.3, x, jnp.nan)  # noqa: E731
    fit = adapt(loss, 1.0, learning_rate=0.5)
    assert 0.3 < float(fit.parameters) < 1
    assert float(fit.parameters) == fit.losses[-1]
    assert "loss is nan at iteration 2; the best earlier parameters are kept" in fit.stopped
    with pytest.raises(Diverged, match="loss must be finite at the start, got nan"):
        adapt(loss, 0.1)


def test_bad_input_is_refused(tasks):
    loss = lambda at: at["ridge"]  # noqa: E731
    with pytest.raises(ValueError, match="positive must be one of 'ridge', got 'noise'"):
        adapt(loss, {"ridge": 1.0}, positive=("noise",))
    with pytest.raises(ValueError, match="ridge must be > 0, got -1"):
        adapt(loss, {"ridge": -1.0}, positive=("ridge",))
    with pytest.raises(ValueError, match=r"targets must have shape \[4, 6\], got \[4, 1\]"):
        held_out(softmax, tasks, jnp.ones((4, 1)))
    with pytest.raises(ValueError, match="targets must be given for tasks without y_query"):
        held_out(softmax, tasks.replace(y_query=None))
    head = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=4)
    with pytest.raises(ValueError, match="build must return a model with a slot 'alpha'"):
        marginal_likelihood(lambda _: head, lambda _: (ik.Linear(), 1.0), tasks)({})
