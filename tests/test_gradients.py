"""Gradients through constructions: against closed forms and finite differences."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES, cg, dense, draw, numpy, relative
from jax.test_util import check_grads

import icl_krr as ik


@jax.jit
def slopes_in_y(model, task):
    return jax.jacobian(lambda y: ik.predict(model, task.replace(y=y)))(task.y)


@pytest.mark.parametrize("build", [cg, CASES["gd"].build])
def test_jacobian_in_y_is_the_hat_matrix(x64, build):
    """d f(x) / d y = k(x)^T (K + ridge I)^-1 once the solver has converged."""
    task = draw(0, p=4, n=20)
    model = build(task, 2.0, 8 if build is cg else 500)
    jacobian = slopes_in_y(model, task)
    K = task.x @ task.x.T
    hat = np.linalg.solve(K + 2.0 * np.eye(20), task.x @ task.x_query.T).T
    assert relative(jacobian, hat) < 1e-8


@pytest.mark.parametrize(("steps", "low", "high"), [(12, 1e-4, 1), (24, 0, 2e-6)])
def test_a_loss_is_rough_where_conjugate_gradient_has_not_converged(steps, low, high):
    """In float32, at temperatures that differ by 1e-6; not at the end."""
    process = ik.tasks.GaussianProcess(
        ik.Exponential(1.0), noise=0.05, num_supports=64, num_queries=64, inputs="sphere"
    )
    task = ik.tasks.sample(jax.random.key(0), process)

    @jax.jit
    def loss(temperature):
        kernel = ik.Exponential(temperature)
        sink = ik.Softmax(log_sink=ik.theory.log_sink(kernel, task))
        model = ik.constructions.conjugate_gradient(
            kernel, num_features=2, ridge=0.05, steps=steps, attention=sink
        )
        return jnp.mean((ik.predict(model, task) - task.y_query) ** 2)

    assert low <= np.ptp([loss(1.5 + shift) for shift in (-1e-6, 0, 1e-6)]) <= high


def central(function, at, step=1e-6):
    return (function(at + step) - function(at - step)) / (2 * step)


@partial(jax.jit, static_argnames="steps")
@partial(jax.value_and_grad, argnums=1)
def size_and_slope(task, ridge, steps):
    """Of the predictions, and their slope in the ridge."""
    return jnp.sum(ik.predict(cg(task, ridge, steps), task) ** 2)


@jax.jit
@partial(jax.grad, argnums=1)
def exact_slope(task, ridge):
    return jnp.sum(ik.solvers.exact(ik.Linear(), task, ridge=ridge).prediction ** 2)


@pytest.mark.parametrize("steps", [2, 40])
def test_gradient_in_ridge_equals_finite_differences(x64, steps):
    """Before convergence, and long past it, where every division is 0 / 0."""
    task = draw(2, p=3, n=12)
    _, slope = size_and_slope(task, 0.3, steps)
    difference = central(lambda at: float(size_and_slope(task, at, steps)[0]), 0.3)
    assert np.isclose(slope, difference, rtol=1e-6)
    if steps > 2:
        assert np.isclose(slope, exact_slope(task, 0.3), rtol=1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_float32_gradient_stays_finite_past_convergence(seed):
    """Where r.r underflows, 1 / (p.Ap)^2 would overflow and turn the gradient to NaN."""
    task = draw(seed, p=3, n=12)
    _, slope = size_and_slope(task, 0.3, 100)
    assert np.isclose(slope, exact_slope(task, 0.3), rtol=1e-2)


def test_gradient_in_temperature_and_step_size(x64):
    task = draw(3)

    def smooth(temperature):
        model = ik.constructions.nadaraya_watson(ik.Exponential(temperature), num_features=4)
        return jnp.sum(ik.predict(model, task) ** 2)

    def descend(eta):
        options = {"ridge": 0.1, "steps": 3, "step_size": eta}
        model = ik.constructions.gradient_descent(ik.Linear(), num_features=4, **options)
        return jnp.sum(ik.predict(model, task) ** 2)

    for function, at in ((smooth, 1.5), (descend, 0.02)):
        check_grads(jax.jit(function), (at,), 1, ["rev"], atol=1e-8, rtol=1e-6, eps=1e-6)


@pytest.mark.parametrize(
    ("name", "merge"), [("cg", True), ("ric-gaussian", False), ("ns-features", False)]
)
def test_gradients_in_the_weights_equal_finite_differences(x64, name, merge):
    """Along random directions in the space of all weights."""
    task = draw(4, r=2)
    model = CASES[name].build(task, 0.5, 3)
    model = dense(model) if merge else model
    both = jax.jit(jax.value_and_grad(lambda m: jnp.sum(ik.predict(m, task) ** 2)))
    (_, gradient), model = numpy((both(model), model))
    leaves, tree = jax.tree.flatten(model)
    if merge:  # zeros included: every entry can be fine-tuned
        assert all(np.all(np.isfinite(g)) for g in jax.tree.leaves(gradient))
    for seed in range(3):
        rng = np.random.default_rng(seed)
        # exact zeros stay: next to one, the guarded reciprocal is not differentiable
        direction = tree.unflatten([np.where(w != 0, rng.normal(size=w.shape), 0) for w in leaves])

        def along(t):
            return both(jax.tree.map(lambda w, d: w + t * d, model, direction))[0]  # noqa: B023

        pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
        slope = sum(np.vdot(g, d) for g, d in pairs)
        assert np.isclose(slope, central(along, 0.0, 1e-7), rtol=1e-4)


def test_gradients_through_softmax_attention_are_those_of_exact_regression(x64):
    """In bandwidth, ridge, x, queries and y, 20 steps past convergence."""
    task = draw(3, p=2, n=9)

    def transformer(bandwidth, ridge, x, x_query, y):
        options = {"num_features": 2, "steps": 29, "form": "pipelined"}
        model = ik.constructions.conjugate_gradient(ik.Gaussian(bandwidth), ridge=ridge, **options)
        return jnp.sum(ik.predict(model, ik.Task(x=x, y=y, x_query=x_query)) ** 2)

    def exact(bandwidth, ridge, x, x_query, y):
        task = ik.Task(x=x, y=y, x_query=x_query)
        return jnp.sum(ik.solvers.exact(ik.Gaussian(bandwidth), task, ridge=ridge).prediction ** 2)

    at = (3.0, 0.5, task.x, task.x_query, task.y)
    ours, theirs = (jax.jit(jax.grad(f, argnums=range(5)))(*at) for f in (transformer, exact))
    assert all(relative(a, b) < 1e-9 for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("numbers", [{"step_size": 0.1}, {"spectrum": (0.5, 9.0)}])
def test_numbers_may_be_numpy_s(x64, numbers):
    """As `numpy.linalg.eigvalsh` returns them; softmax attention multiplies unfinished products."""
    task = draw(3, p=2, n=6)
    answers = []
    for kind in (float, np.float64):
        options = jax.tree.map(kind, numbers)
        model = ik.constructions.gradient_descent(
            ik.Exponential(), num_features=2, ridge=kind(0.5), steps=2, **options
        )
        answers.append(ik.predict(model, task))
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize("scale", [1e-16, 1e16])
def test_derivatives_of_the_gaussian_kernel_do_not_overflow(scale):
    """1 / lengthscale^3 does; all scales are those of the lengthscale."""
    task = draw(3, p=2, n=6)

    def values(unit):
        def at(x, lengthscale):
            return ik.Gaussian(lengthscale)(task.x_query * unit, x)

        x, lengthscale = task.x * unit, jnp.float32(1.5 * unit)
        slopes = jax.jacrev(at, argnums=(0, 1))(x, lengthscale)
        return at(x, lengthscale), *(unit * slope for slope in slopes)

    both = jax.jit(values)
    for result, expected in zip(both(jnp.float32(scale)), both(jnp.float32(1.0)), strict=True):
        assert relative(result, expected) < 1e-5


def test_exact_regression_is_differentiated_in_all_that_it_is_told(x64):
    """In reverse mode, with its status, which has no derivative."""
    task = draw(3, p=2, n=6)

    def loss(x, y, lengthscale, ridge):
        problem = ik.Gaussian(lengthscale), task.replace(x=x, y=y)
        exact = ik.solvers.exact(*problem, ridge=ridge)
        posterior = ik.solvers.posterior(*problem, ridge=ridge)
        gap = exact.status.error + posterior.status.error
        return jnp.sum(exact.prediction) + jnp.sum(posterior.variance), gap

    at = task.x, task.y, jnp.array(1.5), jnp.array(0.1)
    both = jax.jit(jax.jacrev(loss, argnums=(0, 1, 2, 3)))
    of_value, of_gap = both(*at)
    assert all(np.all(np.isfinite(part)) and np.any(part != 0) for part in of_value)
    assert not any(np.any(part) for part in of_gap)
