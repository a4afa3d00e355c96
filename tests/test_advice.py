"""Advice fits who reads it, and what it prints was tried."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import built, numpy

import icl_krr as ik
from icl_krr.cli.depth_tables import advice as of_command
from icl_krr.probes.remedies import Change, other_regressions, settings
from icl_krr.status import assess

advising = sys.modules["icl_krr.probes.advise"]

CONFIG = ik.tasks.LinearRegression(num_features=4, num_supports=32, num_queries=5)


@pytest.fixture(scope="module")
def task():
    return numpy(ik.tasks.sample(jax.random.key(0), CONFIG).replace(y_query=None))


def gap_of(code, model, task):
    """The gap of code that a person types, to the regression of the task in NumPy."""
    names = {"ik": ik, "jax": jax, "jnp": jnp, "model": model, "task": task}
    exec(code, names)
    x, y, at = (np.asarray(part, "f8") for part in (task.x, task.y, task.x_query))
    kernel, ridge, *_ = model.problem or ik.transformer.Problem(ik.Linear(), 0.5)
    with jax.enable_x64(True):
        K, cross = (np.asarray(kernel(part, x)) for part in (x, at))
    f = cross @ np.linalg.solve(K + ridge * np.eye(len(y)), y)
    error = np.abs(np.asarray(names["prediction"]) - f).max()
    return error / max(np.abs(f).max(), np.abs(y).max())


def test_a_trained_model_is_told_to_train_or_to_ask(task):
    """It was told to use a larger ridge, which is the noise of its task."""
    model = ik.init(jax.random.key(0), ik.Architecture(num_features=4, width=8, depth=1))
    given = {"kernel": ik.Linear(), "ridge": 0.1}
    said = ik.check(model, task, **given).advice()
    assert said.startswith("not accurate: gap 0.")
    assert "train it longer, or ask icl_krr.probes.identify" in said
    assert not any(word in said for word in ("ridge", "steps (", "float64", "advise"))
    found = ik.advise(model, task, **given)
    assert (str(found), found.trials) == (said, ())
    right = ik.check(model, task, **given)._replace(ok=np.asarray(True))
    assert right.advice().startswith("accurate: gap")


def test_a_solver_without_alpha_has_steps_too(task):
    """Only a larger ridge was advised."""
    said = ik.check(built(ik.Linear(), 1, "prefix_conjugate_gradient"), task).advice()
    assert said.startswith("not converged: gap")
    assert "after 1 steps; icl_krr.advise(model, task) tries what helps" in said


def test_a_spectrum_is_advised_only_to_solvers_that_take_one(task):
    far, words = {"steps": 4, "falling": False}, "a spectrum with all eigenvalues"
    for takes in (False, True):
        status = assess(1.0, 2.0, 1e-9, jnp.float32, spectrum=takes, **far)
        assert (words in status.advice()) == takes
    bounds = {"spectrum": (0.5, 200.0)}
    assert not ik.check(built(ik.Linear(), 8), task).spectrum
    model = built(ik.Linear(), 8, "chebyshev", **bounds)
    assert ik.check(model, task).spectrum
    assert ik.posterior(model, ik.Linear(), task).status.spectrum
    for name in ("gradient_descent", "newton_schulz"):
        solve = getattr(ik.solvers, name)
        assert solve(ik.Linear(), task, ridge=0.5, steps=4, **bounds).status.spectrum


@pytest.mark.slow
def test_the_exponential_kernel_is_told_what_helps_first(task):
    """Float64 was named first, which alone does not help; it needs more steps as well."""
    model = built(ik.Exponential(), 8)
    assert ik.check(model, task).advice().endswith("tries what helps and prints the code")
    found = ik.advise(model, task)
    first, *others = found.helps
    assert first.name == "float64, 128 steps"
    assert first.gap < 1e-12
    assert "float64" not in [trial.name for trial in found.helps]
    assert "float64" in [trial.name for trial in found.trials]
    assert gap_of(first.code, model, task) < 1e-9  # NumPy rounds too
    assert all("another regression" in trial.name for trial in others)
    assert [trial.ok for trial in others] == [True] * 3
    names = {"ik": ik, "jax": jax, "jnp": jnp, "model": model, "task": task}
    exec(others[0].code, names)  # it runs as it is printed
    assert np.all(np.isfinite(names["prediction"]))
    lines = str(found).splitlines()
    assert (
        lines[0]
        == f"gap {found.status.gap:.2g} after 8 steps; each of these is enough, the best first:"
    )
    assert lines[1] == f"1. float64, 128 steps: gap {found.status.gap:.2g} -> {first.gap:.2g}"
    assert lines[2:5] == [f"     {line}" for line in first.code.splitlines()]
    assert "spectrum" not in str(found)


@pytest.mark.parametrize("loaded", [False, True])
def test_the_code_gives_the_gap_that_it_names(task, loaded):
    """A loaded model cannot be built again, but run for more steps."""
    if loaded:
        model, names = jax.tree.map(jnp.asarray, built(ik.Linear(), 2)), ["8 steps"]
        found = ik.advise(model, task, kernel=ik.Linear(), ridge=0.5)
    else:
        model, names = built(ik.Linear(), 8, "chebyshev", spectrum=(0.1, 0.5)), ["32 steps"]
        found, names = ik.advise(model, task), ["a spectrum with all eigenvalues", *names]
    (trial,) = found.helps
    assert trial.name == ", ".join(names)
    assert np.isclose(gap_of(trial.code, model, task), trial.gap, rtol=1e-2, atol=1e-6)


def test_tables_get_their_bounds_and_a_larger_width(task):
    model = built(ik.Gaussian(), 4, "richardson", arithmetic=ik.ReLU(16, 0.1))
    status = ik.check(model, task)
    assert status.bound
    narrow, wide = settings(model, Change(task), status)
    assert [change.keywords[0][1][0].width for change in (narrow, wide)] == [16, 64]
    again, code = narrow.apply(model)
    assert ik.check(again, task).gap < status.gap / 5
    tables = 'ik.ReLU(16, ik.operand_bounds(model.rebuild(arithmetic="exact"), task))'
    assert code.splitlines()[0] == f"arithmetic = {tables}"


def test_settings_follow_the_task_and_the_status(task):
    """Each only for a construction that takes it, and only where it is wrong."""
    flags = {"range": np.asarray(True), "sink": np.asarray(True)}
    status = assess(1.0, 0.5, 1e-9, jnp.float32, steps=4)
    model = built(ik.Exponential(), 4, "richardson")
    assert not [*settings(model, Change(task), status)]
    sink, _ = settings(model, Change(task), status._replace(**flags))
    again, code = sink.apply(model)
    assert again.arguments["attention"].log_sink == ik.theory.log_sink(ik.Exponential(), task)
    assert "attention = ik.Softmax(ik.theory.log_sink(model.problem.kernel, task))" in code
    model = built(ik.Linear(), 8)
    (scale,) = settings(model, Change(task), status._replace(**flags))  # no softmax, no sink
    assert np.isclose(np.max(np.abs(scale.task.y)), 1)
    assert gap_of(scale.apply(model)[1], model, task) < 1e-4
    bounds = ik.spectral_bounds(ik.Linear(), task, ridge=0.5)
    right, wrong = {"spectrum": bounds}, {"step_size": 10.0}
    assert not [*settings(built(ik.Linear(), 4, "chebyshev", **right), Change(task), status)]
    model = built(ik.Linear(), 4, "gradient_descent", **wrong)
    (change,) = settings(model, Change(task), status)
    again, code = change.apply(model)
    assert again.arguments["step_size"] is None
    assert "model.rebuild(spectrum=spectrum, step_size=None)" in code
    model = built(ik.Gaussian(), 4, "preconditioned_chebyshev", num_supports=4)
    (change,) = settings(model, Change(task), status)
    assert change.apply(model)[0].arguments["num_supports"] == 32
    model = built(ik.Linear(), 4, "prefix_chebyshev", spectrum=(1.0, 2.0))
    (change,) = settings(model, Change(task), status)
    assert change.apply(model)[0].arguments["spectrum"][0] == 0.5  # that of the empty prefix


def test_what_cannot_be_done_is_not_tried(task):
    """A point at the origin has no place on a sphere, and XLA takes subnormal numbers for 0."""
    flags = {"range": np.asarray(True), "uneven": np.asarray(True)}
    status = assess(1.0, 0.5, 1e-9, jnp.float32, steps=4, **flags)
    model = built(ik.Linear(), 8)
    first = np.arange(32) == 0
    x, y = np.where(first[:, None], 0, task.x), np.where(first, np.float32(1e-40), np.float32(0))
    zero = task.replace(x=x, y=jax.device_put(y))
    for one, count in ((task, 1), (zero, 0)):
        assert len([*settings(model, Change(one), status)]) == count
        assert len([*other_regressions(model, Change(one), status)]) == 1 + count


@pytest.mark.parametrize("given", [False, True])
def test_what_does_not_help_is_named_too(task, monkeypatch, given):
    """A given kernel is the regression that was asked for: no other one is tried."""
    model, stuck = built(ik.Linear(), 8), assess(1.0, 0.5, 1e-9, jnp.float32, steps=8)
    monkeypatch.setattr(advising, "check", lambda *_, **__: stuck)
    found = ik.advise(model, task, **({"kernel": ik.Linear()} if given else {}))
    assert found.helps == ()
    names = ["32 steps", "128 steps", "float64", "float64, 32 steps", "float64, 128 steps"]
    ridges = [f"a ridge of {ridge}, which is another regression" for ridge in (5, 50, 500)]
    assert [trial.name for trial in found.trials] == names + ridges * (not given)
    first = "gap 0.5 after 8 steps; none of these lowers it by a tenth: "
    assert str(found) == first + "; ".join(names + ridges * (not given))
    better = found.trials[1]._replace(gap=0.4), found.trials[2]._replace(gap=0.3)
    other = found._replace(trials=(found.trials[0], *better))
    assert [trial.gap for trial in other.helps] == [0.3, 0.4]
    assert str(other).startswith("gap 0.5 after 8 steps; these lower it, but not enough, the best")


def test_a_model_that_is_right_needs_no_advice(task):
    found = ik.advise(built(ik.Linear(), 8), task)
    assert str(found) == found.status.advice()
    assert str(found).startswith("converged: gap ")


def test_a_traced_task_is_refused(task):
    model = built(ik.Linear(), 8)
    tasks = jax.tree.map(lambda part: part[None], task)
    with pytest.raises(ValueError, match="task must be known, got values that JAX traces"):
        jax.vmap(lambda task: ik.advise(model, task).status)(tasks)


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
    told = of_command({"advice": said, "steps_because": "given", "steps": 4})
    start, use = told.strip().split("; ")
    assert start == "not converged: gap 2 after 4 steps"
    assert use == "use --steps 16, JAX_ENABLE_X64=1 or a larger --ridge"
