"""Advice fits who reads it, and what is printed was tried."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import icl_krr as ik

CONFIG = ik.tasks.LinearRegression(num_features=4, num_supports=32, num_queries=5)
SPECTRUM = "spectral_bounds"


@pytest.fixture(scope="module")
def task():
    return ik.tasks.sample(jax.random.key(0), CONFIG).replace(y_query=None)


def built(kernel, steps, solver="conjugate_gradient", **options):
    build = getattr(ik.constructions, solver)
    return build(kernel, num_features=4, ridge=0.5, steps=steps, **options)


def retyped(code, model, task):
    """The prediction of code as a person would type it."""
    names = {"ik": ik, "jax": jax, "jnp": jnp, "model": model, "task": task}
    exec(code, names)
    return names["prediction"]


def test_a_trained_model_is_told_to_train_or_to_ask(task):
    """It was told to use a larger ridge, which is the noise of its task."""
    model = ik.init(jax.random.key(0), ik.Architecture(num_features=4, width=16, depth=2))
    status = ik.check(model, task, kernel=ik.Linear(), ridge=0.1)
    said = status.advice()
    assert said.startswith("not accurate: gap 0.")
    assert "train it longer, or ask icl_krr.probes.identify" in said
    assert not any(word in said for word in ("ridge", "more steps", "float64", "advise"))
    advice = ik.advise(model, task, kernel=ik.Linear(), ridge=0.1)
    assert str(advice) == said
    assert not advice.trials


def test_every_solver_with_steps_is_told_of_them(task):
    """That of a prefix has no alpha, and it was told to use a larger ridge only."""
    model = built(ik.Linear(), 1, "prefix_conjugate_gradient")
    said = ik.check(model, task).advice()
    assert said.startswith("not converged: gap")
    assert "after 1 steps; use more steps (4)" in said


@pytest.mark.parametrize("takes", [False, True])
def test_a_spectrum_is_advised_to_solvers_that_take_one(task, takes):
    kernel, far = ik.Gaussian(), {"ridge": 0.5, "steps": 4}
    if takes:
        options = {"spectrum": (0.4, 0.6)}
        oracle = ik.solvers.chebyshev(kernel, task, **far, **options)
        model = built(kernel, 4, "chebyshev", **options)
    else:
        status = ik.solvers.conjugate_gradient(kernel, task, **far).status
        oracle = ik.solvers.results.Trajectory(*[None] * 4, status._replace(ok=False, gap=2.0))
        model = None
