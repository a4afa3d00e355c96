"""Where solvers break: past convergence, one support, doubles, nothing to fit, extreme logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import draw, relative

import icl_krr as ik
from icl_krr import theory

FORMS = ("textbook", "fused", "pipelined")


def solve(kernel, task, ridge, steps, form="textbook", **options):
    positive = not isinstance(kernel, ik.Linear)
    route = {"attention": ik.Softmax(log_sink=theory.log_sink(kernel, task))} if positive else {}
    model = ik.constructions.conjugate_gradient(
        kernel,
        num_features=task.num_features,
        ridge=ridge,
        steps=steps,
        form=form,
        **route,
        **options,
    )
    prediction, cache = ik.run_with_cache(model, task)
    assert all(bool(jnp.all(jnp.isfinite(value))) for value in cache.slots.values())
    return prediction


TASKS = {
    "one support": lambda task: task.replace(x=task.x[:1], y=task.y[:1]),
    "duplicates": lambda task: task.replace(
        x=jnp.concatenate([task.x, task.x]), y=jnp.concatenate([task.y, task.y + 0.1])
    ),
    "constant y": lambda task: task.replace(y=jnp.ones_like(task.y)),
    "y = 0": lambda task: task.replace(y=jnp.zeros_like(task.y)),
    "x = 0": lambda task: task.replace(x=jnp.zeros_like(task.x)),
    "padding": lambda task: task.replace(mask=jnp.arange(7) < 3),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kernel", [ik.Linear(), ik.Exponential(6.0)])
@pytest.mark.parametrize("case", TASKS)
def test_conjugate_gradient_past_convergence(x64, case, kernel, form):
    task = TASKS[case](draw(0))
    exact = ik.solvers.exact(kernel, task, ridge=0.5).prediction
    prediction = solve(kernel, task, 0.5, 150, form)
    assert np.max(np.abs(prediction - exact)) < 1e-9 * max(1, np.max(np.abs(exact)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ["one support", "duplicates", "y = 0"])
def test_conjugate_gradient_past_convergence_in_float32(case, form):
    task, kernel = TASKS[case](draw(0)), ik.Gaussian(2.0)
    exact = ik.solvers.exact(kernel, task, ridge=0.5).prediction
    prediction = solve(kernel, task, 0.5, 150, form)
    assert np.max(np.abs(prediction - exact)) < 1e-3 * max(1, np.max(np.abs(exact)))


@pytest.mark.parametrize("logit", [75.0, 1e-6])
def test_extreme_logits_in_float32(logit):
    """K from e^-75 to e^75, K v past the square root of the largest number: right all the same."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10, 3))
    x, queries = x / np.linalg.norm(x, axis=1, keepdims=True), rng.normal(size=(4, 3)) / 2
    y = rng.normal(size=10)
    with jax.enable_x64(True):
        kernel, ridge = ik.Exponential(1 / logit), float(np.exp(logit)) * 0.3
        wide = ik.Task(x=jnp.asarray(x), y=jnp.asarray(y), x_query=jnp.asarray(queries))
        expected = np.asarray(ik.solvers.exact(kernel, wide, ridge=ridge).prediction)
    task = ik.Task(*(jnp.asarray(a, "f4") for a in (x, y, queries)))
    prediction = solve(ik.Exponential(1 / logit), task, ridge, 24)
    assert prediction.dtype == jnp.float32
    assert relative(prediction, expected) < 1e-3


def test_a_sink_that_underflows_is_not_hidden():
    """Without the shift, at logits past 88, the sink weight is 0: no number comes back."""
    task = draw(0, p=2)
    task = task.replace(x=task.x * 20)
    model = ik.constructions.conjugate_gradient(
        ik.Exponential(1.0), num_features=2, ridge=1.0, steps=4
    )
    assert not jnp.any(jnp.isfinite(ik.predict(model, task)))


def test_a_ridge_that_vanishes_against_the_kernel_is_reported():
    """log c beyond the dtype: ridge / c is 0 in float32, and alpha / c would be as well."""
    with pytest.raises(ValueError, match="log_sink must be between -87 and 87 for float32, got 15"):
        ik.constructions.conjugate_gradient(
            ik.Exponential(1.0),
            num_features=2,
            ridge=1.0,
            steps=4,
            attention=ik.Softmax(log_sink=150.0),
        )


@pytest.mark.parametrize("name", ["chebyshev", "richardson"])
@pytest.mark.parametrize("case", TASKS)
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
