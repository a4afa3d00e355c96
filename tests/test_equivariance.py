"""Units do not matter: y -> c y over sixty decades, x -> x + b, other orders of rows and features.

A power of two changes no digit, so that what must scale with y is equal bit for bit.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES, draw, numpy, parametrize, relative

import icl_krr as ik
from icl_krr.tabular import DepthConfig, _model_selection, choose_kernel

POWERS = (-100, -60, -23, 0, 23, 60, 100)
"""2^-100 is 8e-31 and 2^100 is 1e30."""

QUICK = ("cg", "picg", "ric-gaussian", "nw-gaussian")
"""With sums, read in two ways, without, and without steps."""

CONSTANT = ("bma",)
"""Cases whose answer depends on the size of y: the noise of an average has a size of its own."""


def single(task):
    return jax.tree.map(lambda a: a.astype(np.float32), task)


def of_every_size(task):
    """The task with y times each of `POWERS`, as a batch of y."""
    return np.stack([np.ldexp(task.y, power) for power in POWERS])


def scaled_back(values):
    pairs = zip(POWERS, np.asarray(values), strict=True)
    return np.stack([np.ldexp(value, -power) for power, value in pairs])


def same(values, tolerance=0.0):
    """Whether all of them are finite, not 0, and those of a y of ordinary size."""
    ordinary = values[POWERS.index(0)]
    return np.any(ordinary) and np.allclose(values, ordinary[None], tolerance, 0)


def holds(function, task):
    """For answers, and derivatives in y, of a y of every size; and both for y = 0."""
    both = jax.jit(jax.vmap(lambda y: (function(y), jax.jacobian(function)(y))))
    results, slopes = numpy(both(np.concatenate([of_every_size(task), 0 * task.y[None]])))
    assert same(scaled_back(results[:-1]))
    assert same(slopes[:-1])
    assert not np.any(results[-1])
    assert np.all(np.isfinite(slopes[-1]))


@parametrize([name for name, c in CASES.items() if name not in CONSTANT and not c.tables], QUICK)
def test_a_model_answers_in_the_units_of_y_and_so_does_its_derivative(case):
    task = single(draw(1))
    model = case.build(task, 0.1, 4)
    holds(lambda y: ik.predict(model, task.replace(y=y, y_query=None)), task)


FIRST = {case.solver: name for name, case in reversed(CASES.items()) if name not in CONSTANT}
"""One case for each solver, whose oracle does not depend on the construction."""


@parametrize(FIRST.values(), QUICK)
def test_a_solver_answers_in_the_units_of_y_and_so_does_its_derivative(case):
    task = single(draw(1))

    def last(y):
        path = case.oracle_of(task.replace(y=y, y_query=None), 0.1, 4)
        return path.prediction[-1] if case.row.iterates else path.prediction

    holds(last, task)


DIRECT = {
    "exact": lambda kernel, task, ridge: ik.solvers.exact(kernel, task, ridge=ridge).prediction,
    "posterior": lambda kernel, task, ridge: ik.solvers.posterior(kernel, task, ridge=ridge).mean,
    "leave_one_out": ik.solvers.leave_one_out,
    "smoother_leave_one_out": lambda *given, ridge: ik.solvers.smoother_leave_one_out(*given),
}


@pytest.mark.parametrize("name", DIRECT)
def test_direct_answers_are_in_the_units_of_y(name):
    task, kernel = single(draw(1)).replace(y_query=None), ik.Gaussian(2.0)
    holds(lambda y: DIRECT[name](kernel, task.replace(y=y), ridge=jnp.float32(0.1)), task)


def model_of(kernel, ridge, task):
    model = ik.constructions.conjugate_gradient(kernel, num_features=4, ridge=ridge, steps=4)
    return ik.predict(model, task)


REGRESSIONS = {
    "model": model_of,
    "conjugate_gradient": lambda kernel, ridge, task: ik.solvers.conjugate_gradient(
        kernel, task, ridge=ridge, steps=4
    ).prediction[-1],
    "chebyshev": lambda kernel, ridge, task: ik.solvers.chebyshev(
        kernel, task, ridge=ridge, steps=4, spectrum=(0.1, 7.1)
    ).prediction[-1],
    "exact": lambda kernel, ridge, task: ik.solvers.exact(kernel, task, ridge=ridge).prediction,
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_gradients_in_all_else_are_in_the_units_of_y(name):
    task = single(draw(1))

    @jax.jit
    @jax.vmap
    def gradients(y):
        def total(ridge, lengthscale, x, x_query):
            moved = task.replace(x=x, y=y, x_query=x_query, y_query=None)
            return jnp.sum(REGRESSIONS[name](ik.Gaussian(lengthscale), ridge, moved))

        numbers = jnp.float32(0.1), jnp.float32(2.0)
        return jax.grad(total, (0, 1, 2, 3))(*numbers, task.x, task.x_query)

    for values in gradients(of_every_size(task)):
        assert same(scaled_back(values), 1e-5)


def test_a_status_does_not_depend_on_the_size_of_y():
    task = single(draw(1))
    kernel = ik.Gaussian(2.0)
    model = ik.constructions.conjugate_gradient(kernel, num_features=4, ridge=0.1, steps=4)

    @jax.jit
    @jax.vmap
    def statuses(y):
        scaled = task.replace(y=y, y_query=None)
        return (
            ik.check(model, scaled),
            ik.solvers.exact(kernel, scaled, ridge=0.1).status,
            ik.solvers.conjugate_gradient(kernel, scaled, ridge=0.1, steps=4).status,
        )

    for status in numpy(statuses(of_every_size(task))):
        for name, values in status._asdict().items():
            assert np.all(values == values[0]), (name, values)


@pytest.mark.parametrize("name", ["gaussian", "exponential", "linear"])
def test_hyperparameters_do_not_depend_on_the_units_of_y(name):
    task = single(draw(1, n=12))
    chosen = [
        (kernel.bandwidth and getattr(kernel, kernel.bandwidth), ridge)
        for y in of_every_size(task)[:: len(POWERS) // 2]
        for scaled in [task.replace(y=y, y_query=None)]
        for kernel in [choose_kernel(scaled, DepthConfig(kernel=name))[0]]
        for ridge in [_model_selection.choose_ridge(kernel, scaled)]
    ]
    assert len(chosen) == 3
    assert len(set(chosen)) == 1


@pytest.mark.parametrize("name", REGRESSIONS)
def test_neither_the_origin_of_differences_nor_any_order_matters(name):
    task = single(draw(1))
    x, x_query = (np.round(part * 64) / 64 for part in (task.x, task.x_query))
    run = jax.jit(lambda task: REGRESSIONS[name](ik.Gaussian(2.0), jnp.float32(0.1), task))
    rng = np.random.default_rng(0)
    rows, columns, queries = (rng.permutation(n) for n in (7, 4, 3))
    y, mixed = task.y[rows], {"x": x[rows][:, columns], "x_query": x_query[queries][:, columns]}
    for mask, of_rows in ((None, None), (np.arange(7) != 1, rows != 1)):
        centred = task.replace(x=x, x_query=x_query, y_query=None, mask=mask)
        shifted = centred.replace(x=x + 2**13, x_query=x_query + 2**13)  # exact
        assert relative(run(shifted), run(centred)) < 1e-5
        other = run(centred.replace(y=y, mask=of_rows, **mixed))
        assert relative(other, np.asarray(run(centred))[queries]) < 1e-5
