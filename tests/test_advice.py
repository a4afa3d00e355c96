"""Advice fits who reads it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import built, numpy

import icl_krr as ik
from icl_krr._core.status import assess
from icl_krr.cli._depth_tables import advice as of_command

CONFIG = ik.tasks.LinearRegression(num_features=4, num_supports=32, num_queries=5)


@pytest.fixture(scope="module")
def task():
    return numpy(ik.tasks.sample(jax.random.key(0), CONFIG).replace(y_query=None))


def test_a_trained_model_is_told_to_train_or_to_ask(task):
    """It was told to use a larger ridge, which is the noise of its task."""
    model = ik.init(jax.random.key(0), ik.Architecture(num_features=4, width=8, depth=1))
    problem = {"kernel": ik.Linear(), "ridge": 0.1}
    said = ik.check(model, task, **problem).advice()
    assert said.startswith("not accurate: error 0.")
    assert "train it longer, or ask icl_krr.probes.identify" in said
    assert not any(word in said for word in ("ridge", "steps (", "float64"))
    right = ik.check(model, task, **problem)._replace(ok=np.asarray(True))
    assert right.advice().startswith("accurate: error")


def test_a_solver_without_alpha_has_steps_too(task):
    """Only a larger ridge was advised."""
    said = ik.check(built(ik.Linear(), 1, "prefix_conjugate_gradient"), task).advice()
    assert said.startswith("not converged: error")
    assert "after 1 steps; use more steps (4)" in said


def test_a_spectrum_is_advised_only_to_solvers_that_take_one(task):
    diverged, words = {"steps": 4, "falling": False}, "a spectrum with all eigenvalues"
    for takes in (False, True):
        status = assess(1.0, 2.0, 1e-9, jnp.float32, spectrum=takes, **diverged)
        assert (words in status.advice()) == takes
    bounds = {"spectrum": (0.5, 200.0)}
    assert not ik.check(built(ik.Linear(), 8), task).spectrum
    model = built(ik.Linear(), 8, "chebyshev", **bounds)
    assert ik.check(model, task).spectrum
    assert ik.posterior(model, ik.Linear(), task).status.spectrum
    for name in ("gradient_descent", "newton_schulz"):
        solve = getattr(ik.solvers, name)
        assert solve(ik.Linear(), task, ridge=0.5, steps=4, **bounds).status.spectrum


def test_the_exponential_kernel_is_told_what_helps_first(task):
    said = ik.check(built(ik.Exponential(), 8), task).advice()
    words = "use float64 with more steps, points on a sphere or a larger temperature if the kernel"
    assert f"; {words}" in said


def test_a_model_that_is_right_needs_no_advice(task):
    assert ik.check(built(ik.Linear(), 8), task).advice().startswith("converged: error ")


def test_a_construction_is_built_again():
    model = built(ik.Linear(), 8, form="fused").replace(steps=3)
    again = model.rebuild(ridge=2.0)
    assert (again.steps, again.problem.ridge, again.blocks_per_step) == (3, 2.0, 3)
    assert again.rebuild(steps=5).problem.ridge == 2.0
    assert model.takes("form")
    assert not model.takes("spectrum")
    for other in (jax.tree.map(jnp.asarray, model), model.replace(weights=model.weights)):
        assert (other.arguments, other.takes("form")) == ({}, False)
        with pytest.raises(ValueError, match="model must be as a construction returned it"):
            other.rebuild(steps=4)
    with pytest.raises(TypeError, match="width"):
        built(ik.Linear(), 8, "chebyshev", spectrum=(1.0, 2.0)).rebuild(breadth=1)


def test_a_mask_is_no_number(task):
    masked = task.replace(mask=np.arange(task.num_supports) < 5).astype("bfloat16")
    assert (masked.x.dtype, masked.mask.dtype) == ("bfloat16", bool)


@pytest.mark.parametrize("takes", [False, True])
def test_commands_name_their_options(takes):
    status = assess(1.0, 2.0, 1.0, jnp.float32, steps=4, spectrum=takes, model=True)
    said = status._replace(spectrum=False, model=False).advice()
    advice = of_command({"advice": said, "steps_because": "given", "steps": 4})
    start, use = advice.strip().split("; ")
    assert start == "not converged: error 2 after 4 steps"
    assert use == "use --steps 16, JAX_ENABLE_X64=1 or a larger --ridge"
