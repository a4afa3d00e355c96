"""ReLU arithmetic: a plain single-head transformer, to the error that its tables state."""

from functools import partial

import jax
import numpy as np
import pytest
from helpers import dense, draw, log_sink, numpy, operand_bounds, relative, sample

import icl_krr as ik
from icl_krr import theory
from icl_krr.constructions import SUPPORTS, machine


def product_model(arithmetic, divide=False):
    """One block that multiplies x and y of a support, or divides y by x."""
    m = machine(ik.Linear(), 1, arithmetic=arithmetic)
    result = m.state("result", SUPPORTS, "x y")
    x = m.state("x_here", SUPPORTS, "x", starts_as=m.x)

    def step():
        m.divide(m.y, x, to=result) if divide else m.multiply(m.y, x, to=result)

    return m.transformer(step, steps=1, readout=m.x)


def ran(model, x, y):
    """The slots of a model on points."""
    x, y = (np.asarray(v, float).ravel() for v in (x, y))
    task = ik.Task(x=x[:, None], y=y, x_query=np.zeros((1, 1)))
    return numpy(ik.run_with_cache(model, task))[1]


@pytest.mark.parametrize("width", [8, 512])
def test_products_err_as_much_as_theory_says(x64, width):
    a, b = np.meshgrid(*[np.linspace(-3, 3, 161)] * 2)
    cache = ran(product_model(ik.ReLU(width, 3.0)), a, b)
    error = np.max(np.abs(cache["result"][1] - (a * b).ravel()))
    bound = float(theory.product_table_error(3.0, 3.0, width))
    assert 0.5 * bound < error <= bound * (1 + 1e-9)
    assert not np.any(cache["overrun"])


def test_quotients_err_as_much_as_theory_says(x64):
    x, y = np.meshgrid(np.linspace(0.25, 4, 300), np.linspace(-4, 4, 41))
    errors = []
    for width in (32, 128, 512):
        cache = ran(product_model(ik.ReLU(width, 4.0), divide=True), x, y)
        errors.append(np.max(np.abs(cache["result"][1] - (y / x).ravel())))
        inverse = 4 * theory.reciprocal_table_error(0.25, 4.0, width)
        assert errors[-1] <= theory.product_table_error(4.0, 4.0, width) + 4 * inverse
        assert np.max(cache["overrun"]) < 1e-12  # the largest reciprocal is the bound
    assert np.allclose(np.diff(np.log(errors)) / np.log(4), -2, atol=0.2)


@pytest.mark.parametrize(("a", "over"), [(2.9, 0.0), (3.3, 0.1), (-6.0, 1.0)])
def test_what_leaves_the_range_is_reported(x64, a, over):
    """At the token where it happened, by what fraction of the bound."""
    arithmetic = ik.ReLU(64, 3.0)
    cache = ran(product_model(arithmetic), [1.0, a], [1.0, 2.0])
    assert np.allclose(cache["overrun"][1], [0, 0, over, 0])
    cache = ran(product_model(arithmetic, divide=True), [1.0, 0.1], [1.0, 2.0])
    assert cache["overrun"][1, 2] > 0.5


def gaussian_process(seed, n, q=16):
    kernel, sizes = ik.Gaussian(0.7), {"num_supports": n, "num_queries": q}
    config = ik.tasks.GaussianProcess(kernel, inputs="sphere", **sizes)
    return config.kernel, numpy(sample(jax.random.key(seed), config))


def twins(kernel, task, ridge, steps, widths):
    """The model of exact arithmetic, and those of tables that cover what it works on."""
    sink = ik.Softmax(log_sink=log_sink(kernel, task))
    options = {"num_features": 2, "ridge": ridge, "steps": steps, "step_size": 1.9}
    build = partial(ik.constructions.richardson, kernel, **options, attention=sink)
    bounds = operand_bounds(exact := build(), task)
    return exact, [build(arithmetic=ik.ReLU(width, bounds)) for width in widths]


def test_richardson_with_tables_is_kernel_ridge_regression(x64):
    kernel, task = gaussian_process(1, 32)
    exact, (model,) = twins(kernel, task, 1.0, 200, (1024,))
    best = numpy(ik.solvers.exact(kernel, task, ridge=1.0).prediction)
    assert relative(ik.predict(exact, task), best) < 1e-4
    prediction, cache = numpy(ik.run_with_cache(model, task))
    assert not np.any(cache["overrun"])
    assert relative(prediction, best) < 2e-3


def test_bounds_cover_a_sink_that_was_not_chosen_from_the_data(x64):
    """Without log_sink the normaliser is as large as n; its table has to reach that far."""
    kernel, task = gaussian_process(2, 64)
    options = {"num_features": 2, "ridge": 1.0, "steps": 20}
    exact = ik.constructions.richardson(kernel, **options)
    bounds = numpy(operand_bounds(exact, task))
    assert bounds["normaliser_query"] > 10
    model = ik.constructions.richardson(kernel, arithmetic=ik.ReLU(1024, bounds), **options)
    prediction, cache = numpy(ik.run_with_cache(model, task))
    assert not np.any(cache["overrun"])
    assert relative(prediction, ik.predict(exact, task)) < 1e-2


def test_nothing_but_a_plain_transformer_is_left():
    """One softmax head a block, ReLU units without gates, as every textbook has them."""
    kernel, task = gaussian_process(0, 8)
    _, (model,) = twins(kernel, task, 1.0, 2, (16,))
    assert model.spec.attention == "softmax"
    assert model.num_heads == 1
    for block in model.blocks:
        assert all(unit.up is None and unit.activation == "relu" for unit in block.mlp)
    merged = dense(model)
    assert all(len(block.mlp) == 1 for block in merged.weights.steps)
    assert relative(ik.predict(merged, task), ik.predict(model, task)) < 1e-3


def test_bounds_of_several_outputs_are_the_largest():
    task = draw(0, r=2)
    model = ik.constructions.richardson(ik.Gaussian(2.0), num_features=4, ridge=1.0, steps=3)
    both = numpy(operand_bounds(model, task))
    each = [operand_bounds(model, task.replace(y=y, y_query=None)) for y in task.y.T]
    for slot, bound in both.items():
        assert np.isclose(bound, max(float(one[slot]) for one in each))
