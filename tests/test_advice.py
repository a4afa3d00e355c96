"""Advice fits who reads it, and what it prints was tried."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import icl_krr as ik
from icl_krr.cli.depth_tables import advice as of_command
from icl_krr.probes.remedies import Change, settings
from icl_krr.status import assess

CONFIG = ik.tasks.LinearRegression(num_features=4, num_supports=32, num_queries=5)


@pytest.fixture(scope="module")
def task():
    return ik.tasks.sample(jax.random.key(0), CONFIG).replace(y_query=None)


def built(kernel, steps, solver="conjugate_gradient", **options):
    build = getattr(ik.constructions, solver)
    return build(kernel, num_features=4, ridge=0.5, steps=steps, **options)


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
    right = ik.check(model, task, **given)._replace(ok=jnp.asarray(True))
    assert right.advice().startswith("accurate: gap")


def test_a_solver_without_alpha_has_steps_too(task):
    """Only a larger ridge was advised."""
    said = ik.check(built(ik.Linear(), 1, "prefix_conjugate_gradient"), task).advice()
    assert said.startswith("not converged: gap")
    assert "after 1 steps; use more steps (4)" in said
    assert said.endswith("; icl_krr.advise(model, task) tries what helps")


def test_a_spectrum_is_advised_only_to_solvers_that_take_one(task):
    far, words = {"steps": 4, "falling": False}, "a spectrum with all eigenvalues"
    for takes in (False, True):
        status = assess(1.0, 2.0, 1e-9, jnp.float32, spectrum=takes, **far)
        assert (words in status.advice()) == takes
    bounds = {"spectrum": (0.5, 200.0)}
    models = built(ik.Linear(), 4), built(ik.Linear(), 4, "chebyshev", **bounds)
    for takes, model in enumerate(models):
        assert bool(ik.check(model, task).spectrum) == takes
        assert bool(ik.posterior(model, ik.Linear(), task).status.spectrum) == takes
    for takes, name, options in (
        (False, "conjugate_gradient", {}),
        (True, "gradient_descent", bounds),
        (True, "heavy_ball", bounds),
        (True, "newton_schulz", bounds),
    ):
        solve = getattr(ik.solvers, name)
        status = solve(ik.Linear(), task, ridge=0.5, steps=4, **options).status
        assert bool(status.spectrum) == takes


def test_the_exponential_kernel_is_told_what_helps_first(task):
    """Float64 was named first, which alone does not help; it needs more steps as well."""
    model = built(ik.Exponential(), 8)
    assert ik.check(model, task).advice().endswith("tries what helps")
    found = ik.advise(model, task)
    first, *others = found.helps
    assert first.name == "float64, 128 steps"
    assert first.gap < 1e-12
    assert "float64" not in [trial.name for trial in found.helps]
    assert "float64" in [trial.name for trial in found.trials]
    assert gap_of(first.code, model, task) < 1e-9  # NumPy rounds too
    assert all("another regression" in trial.name for trial in others)
    assert [trial.ok for trial in others] == [True] * 3
    for trial in others:  # they run as they are printed
        names = {"ik": ik, "jax": jax, "jnp": jnp, "model": model, "task": task}
        exec(trial.code, names)
        assert jnp.all(jnp.isfinite(names["prediction"]))
    lines = str(found).splitlines()
    assert (
        lines[0]
        == f"gap {found.status.gap:.2g} after 8 steps; each of these is enough, the best first:"
    )
    assert lines[1] == f"1. float64, 128 steps: gap {found.status.gap:.2g} -> {first.gap:.2g}"
    assert lines[2:5] == [f"     {line}" for line in first.code.splitlines()]
    assert "spectrum" not in str(found)


@pytest.mark.parametrize(
    ("solver", "options", "names"),
    [
        ("chebyshev", {"spectrum": (0.1, 0.5)}, ["a spectrum with all eigenvalues", "32 steps"]),
        ("gradient_descent", {"step_size": 10.0}, ["a spectrum with all eigenvalues", "128 steps"]),
        ("conjugate_gradient", {}, None),
    ],
)
def test_the_code_gives_the_gap_that_it_names(task, solver, options, names):
    model = built(ik.Linear(), 8 if options else 2, solver, **options)
    if names is None:
        model, names = jax.tree.map(jnp.asarray, model), ["8 steps"]
        found = ik.advise(model, task, kernel=ik.Linear(), ridge=0.5)
    else:
        found = ik.advise(model, task)
    (trial,) = found.helps
    assert trial.name == ", ".join(names)
    assert np.isclose(gap_of(trial.code, model, task), trial.gap, rtol=1e-2, atol=1e-6)


def test_tables_get_their_bounds_and_a_larger_width(task):
    model = built(ik.Gaussian(), 4, "richardson", arithmetic=ik.ReLU(16, 0.1))
    status = ik.check(model, task)
    assert status.bound
    narrow, wide = settings(model, Change(task), status)
    for change, width in ((narrow, 16), (wide, 64)):
        again, code = change.apply(model)
        assert again.arguments["arithmetic"].width == width
        gap = float(ik.check(again, task).gap)
        assert np.isclose(gap_of(code, model, task), gap, rtol=1e-3)
        assert gap < status.gap / 5


def test_sink_and_scale_are_set_where_the_status_says_so(task):
    model = built(ik.Exponential(), 4, "richardson")
    status = ik.check(model, task)
    assert not [*settings(model, Change(task), status)]
    told = status._replace(sink=jnp.asarray(True), range=jnp.asarray(True))
    sink, scale = settings(model, Change(task), told)
    again, code = sink.apply(model)
    assert again.arguments["attention"].log_sink == ik.theory.log_sink(ik.Exponential(), task)
    assert "attention = ik.Softmax(ik.theory.log_sink(model.problem.kernel, task))" in code
    assert np.isclose(jnp.max(jnp.abs(scale.task.y)), 1)
    assert np.isclose(gap_of(scale.apply(model)[1], model, task), status.gap, rtol=1e-3)


def test_what_does_not_help_is_named_too(task):
    """A given kernel is the regression that was asked for: no other one is tried."""
    found = ik.advise(built(ik.Linear(), 8), task, kernel=ik.Gaussian())
    assert found.helps == ()
    assert "none of these lowers it by a tenth: 32 steps; 128 steps; float64;" in str(found)
    assert "another regression" not in str(found)


def test_a_model_that_is_right_needs_no_advice(task):
    found = ik.advise(built(ik.Linear(), 8), task)
    assert str(found) == found.status.advice()
    assert str(found).startswith("converged: gap ")


def test_a_traced_task_is_refused(task):
    model = built(ik.Linear(), 8)
    tasks = jax.tree.map(lambda part: part[None], task)
    with pytest.raises(ValueError, match="task must be known, got one that JAX traces"):
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
    masked = task.replace(mask=jnp.arange(task.num_supports) < 5).astype("bfloat16")
    assert (masked.x.dtype, masked.mask.dtype) == ("bfloat16", bool)


@pytest.mark.parametrize("takes", [False, True])
def test_commands_name_their_options(takes):
    status = assess(1.0, 2.0, 1.0, jnp.float32, steps=4, spectrum=takes, model=True)
    said = status._replace(spectrum=False, model=False).advice()
    told = of_command({"advice": said, "steps_because": "given", "steps": 4})
    start, use = told.strip().split("; ")
    assert start == "not converged: gap 2 after 4 steps"
    assert use == "use --steps 16, JAX_ENABLE_X64=1 or a larger --ridge"
