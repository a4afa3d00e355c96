"""Where solvers break: past convergence, one support, doubles, nothing to fit, extreme logits."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES, draw, numpy, parametrize, relative

import icl_krr as ik
from icl_krr import theory

FORMS = ("textbook", "fused", "pipelined")


def solve(kernel, task, ridge, steps, form="textbook"):
    positive = not isinstance(kernel, ik.Linear)
    route = {"attention": ik.Softmax(log_sink=theory.log_sink(kernel, task))} if positive else {}
    model = ik.constructions.conjugate_gradient(
        kernel, num_features=task.num_features, ridge=ridge, steps=steps, form=form, **route
    )
    prediction, cache = ik.run_with_cache(model, task)
    assert all(np.all(np.isfinite(value)) for value in cache.slots.values())
    assert np.any(task.y) or not np.any(prediction)  # exactly: each division is 0 / 0
    return prediction


ALL = np.arange(7) < 7
"""With a mask of all supports, a task runs the programs of one with padding."""
TASKS = {
    "one support": lambda task: task.replace(x=task.x[:1], y=task.y[:1]),
    "duplicates": lambda task: task.replace(
        x=task.x[np.arange(7) % 3],
        y=task.y[np.arange(7) % 3] + 0.1 * np.arange(7, dtype=task.y.dtype),
        mask=ALL,
    ),
    "constant y": lambda task: task.replace(y=np.ones_like(task.y), mask=ALL),
    "y = 0": lambda task: task.replace(y=np.zeros_like(task.y), mask=ALL),
    "x = 0": lambda task: task.replace(x=np.zeros_like(task.x), mask=ALL),
    "padding": lambda task: task.replace(mask=np.arange(7) < 3),
}


OF_ONE_SHAPE = [*TASKS][1:]


@pytest.mark.parametrize(
    ("kernel", "case", "form", "bits"),
    [
        (ik.Exponential(6.0), "one support", "textbook", 64),
        *product((ik.Linear(), ik.Exponential(6.0)), OF_ONE_SHAPE, FORMS, [64]),
        *product([ik.Gaussian(2.0)], ("duplicates", "y = 0"), FORMS, [32]),
    ],
)
def test_conjugate_gradient_past_convergence(case, kernel, form, bits):
    with jax.enable_x64(bits == 64):
        task = TASKS[case](draw(0))
        exact = ik.solvers.exact(kernel, task, ridge=0.5).prediction
        gap = np.max(np.abs(solve(kernel, task, 0.5, 150, form) - exact))
        assert gap < (1e-9 if bits == 64 else 1e-3) * max(1, np.max(np.abs(exact)))


@pytest.mark.parametrize("logit", [75.0, 1e-6])
def test_extreme_logits_in_float32(logit):
    """K from e^-75 to e^75, K v past the square root of the largest number: right all the same."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10, 3))
    x, queries = x / np.linalg.norm(x, axis=1, keepdims=True), rng.normal(size=(4, 3)) / 2
    y = rng.normal(size=10)
    with jax.enable_x64(True):
        kernel, ridge = ik.Exponential(1 / logit), float(np.exp(logit)) * 0.3
        wide = ik.Task(x=x, y=y, x_query=queries)
        expected = np.asarray(ik.solvers.exact(kernel, wide, ridge=ridge).prediction)
    task = ik.Task(*(np.asarray(a, "f4") for a in (x, y, queries)))
    prediction = solve(ik.Exponential(1 / logit), task, ridge, 24)
    assert prediction.dtype == np.float32
    assert relative(prediction, expected) < 1e-3


def test_a_model_centres_x_if_its_kernel_is_one_of_differences():
    mixture = ik.Mixture((ik.Gaussian(), ik.Exponential()), np.ones(2))
    kernels = {ik.Gaussian(): True, ik.Exponential(): False, mixture: False}
    for kernel, centred in kernels.items():
        model = ik.constructions.nadaraya_watson(kernel, num_features=4)
        assert model.spec.centred is centred


@parametrize(tuple(CASES), ("gdia", "ric-gaussian"))
def test_without_supports_every_solver_predicts_0(case):
    """Predictions of oracle and model for a task whose supports are all masked, and gradients."""

    def predictions(x, y, x_query):
        task = ik.Task(x=x, y=y, x_query=x_query, mask=jnp.zeros(2, bool))
        model = case.build(task, 0.5, 2)
        results = case.oracle_of(task, 0.5, 2).prediction, ik.predict(model, task)
        return sum(jnp.sum(value) for value in results), results

    (_, results), slopes = jax.jit(
        jax.value_and_grad(predictions, argnums=(0, 1, 2), has_aux=True)
    )(np.array([[0.3], [-1.0]], "f4"), np.array([1.0, 2.0], "f4"), np.array([[0.5]], "f4"))
    assert not any(np.any(value) for value in results)
    assert all(np.all(np.isfinite(slope)) for slope in slopes)


def test_without_supports_nothing_else_is_nan():
    @jax.jit
    def values(x, y):
        task = ik.Task(x=x, y=y, x_query=x[:1] + 1, mask=jnp.zeros(2, bool))
        kernel = ik.Gaussian()
        return (
            ik.solvers.posterior(kernel, task, ridge=0.5),
            ik.spectral_bounds(kernel, task, ridge=0.5),
            ik.solvers.leave_one_out(kernel, task, ridge=0.5),
            ik.solvers.smoother_leave_one_out(kernel, task),
            ik.solvers.log_marginal_likelihood(kernel, task, ridge=0.5),
            theory.log_sink(kernel, task),
        )

    at = np.array([[0.3], [-1.0]], "f4"), np.array([1.0, 2.0], "f4")
    (mean, variance), bounds, *rest = values(*at)
    assert (float(mean[0]), float(variance[0])) == (0, 1)
    assert [float(bound) for bound in bounds] == [0.5, 0.5]
    assert not any(np.any(value) for value in rest)


def test_gradient_descent_in_alpha_with_a_kernel_that_vanishes():
    """K is rounded away against the ridge, so the bounds (1, 1) say nothing of its size."""
    x = [[1e-5], [2e-5]]
    task = ik.Task(x=x, y=[1.0, -1.0], x_query=x)
    kwargs = {"ridge": 1.0, "steps": 4, "spectrum": (1.0, 1.0)}
    model = ik.constructions.gradient_descent_in_alpha(ik.Linear(), num_features=1, **kwargs)
    path = numpy(ik.solvers.gradient_descent_in_alpha(ik.Linear(), task, **kwargs))
    for prediction in (ik.predict(model, task), path.prediction[-1]):
        assert np.max(np.abs(prediction)) < 1e-9


def test_a_sink_that_underflows_is_not_hidden():
    """Without the shift, at logits past 88, the sink weight is 0: no number comes back."""
    task = draw(0, p=2)
    task = task.replace(x=20 * task.x)
    options = {"num_features": 2, "ridge": 1.0, "steps": 4}
    model = ik.constructions.conjugate_gradient(ik.Exponential(1.0), **options)
    assert not np.any(np.isfinite(ik.predict(model, task)))


def test_a_ridge_that_vanishes_against_the_kernel_is_reported():
    """log c beyond the dtype: ridge / c is 0 in float32, and alpha / c would be as well."""
    for log_sink in (150.0, -150.0):
        options = {"num_features": 2, "ridge": 1.0, "attention": ik.Softmax(log_sink=log_sink)}
        with pytest.raises(ValueError, match=f"between -87 and 87 for float32, got {log_sink}"):
            ik.constructions.conjugate_gradient(ik.Exponential(1.0), steps=4, **options)


@pytest.mark.parametrize(
    ("name", "case"),
    [("chebyshev", "one support"), *product(("chebyshev", "richardson"), OF_ONE_SHAPE)],
)
def test_solvers_without_sums(x64, name, case):
    task, kernel = TASKS[case](draw(0)), ik.Gaussian(2.0)
    needs = {"step_size": 1.9}
    if name != "richardson":
        needs = {"spectrum": ik.spectral_bounds(kernel, task, ridge=0.5)}
    model = getattr(ik.constructions, name)(kernel, num_features=4, ridge=0.5, steps=400, **needs)
    exact = ik.solvers.exact(kernel, task, ridge=0.5).prediction
    assert np.max(np.abs(ik.predict(model, task) - exact)) < 1e-6 * max(1, np.max(np.abs(exact)))


def test_summary_states_the_cost():
    model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=3, ridge=1.0, steps=16)
    text = model.summary()
    for line in ("81 blocks: 5 a step for 16 steps, after 1", "3 features + 16", "gamma"):
        assert line in text
    assert model.overhead == model.layout.width - 3
    assert str(model.layout) in text
    for block in model.blocks:
        assert sum(group.heads for group in block.attention) <= model.num_heads
