"""What results say about themselves: never ok if wrong, rarely not ok if right."""

import re
import warnings
from collections import Counter
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import built, dense, numpy, sample

import icl_krr as ik
from benchmarks import random_cases
from icl_krr._core import status_warning
from icl_krr._core.rounding import in_float64
from icl_krr.experiments import draw_tasks
from icl_krr.probes._check import compare
from icl_krr.solvers import _accuracy

CONFIG = ik.tasks.LinearRegression(num_features=4, num_supports=32, num_queries=5)

TINY = ik.Task(x=np.ones((1, 1)), y=np.ones(1), x_query=np.ones((1, 1)))


HUGE = ik.Task(x=np.full((2, 1), 1e30, "f4"), y=[1.0, 2.0], x_query=np.full((1, 1), 1e30, "f4"))
DESCENT = ik.constructions.delta_rule(ik.Linear(), num_features=1, step_size=1e5)
NOT_RIGHT = {
    "exact": lambda _: ik.solvers.exact(ik.Linear(), HUGE, ridge=1.0),
    "variance": lambda _: ik.solvers.posterior(ik.Linear(), HUGE, ridge=1.0),
    "iterates": lambda task: ik.solvers.gradient_descent(
        ik.Linear(), task, ridge=1.0, steps=1, spectrum=(9.0, 10.0)
    ),
    "rule": lambda _: ik.solvers.delta_rule(ik.Linear(), HUGE, step_size=1.0),
    "not finite": lambda _: ik.predict(DESCENT, HUGE),
    "too large": lambda task: ik.predict(DESCENT, task),
    "batch": lambda task: ik.predict_batch(DESCENT, jax.tree.map(lambda part: part[None], task)),
    "along": lambda task: ik.predict_along(DESCENT, task),
    "cache": lambda task: ik.run_with_cache(DESCENT, task, names=()),
}


@pytest.mark.parametrize("case", NOT_RIGHT)
def test_a_result_that_is_not_right_is_a_warning_once_for_each_line(case, monkeypatch):
    monkeypatch.setattr(status_warning, "_WARNED", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for size in (1, 3):  # with another number in the sentence
            NOT_RIGHT[case](TINY.replace(x_query=size * TINY.x_query))
        jax.jit(NOT_RIGHT[case])(TINY)
        ik.check(DESCENT, TINY)
        ik.solvers.exact(ik.Linear(), TINY, ridge=1.0)
    assert [(one.category, one.filename) for one in caught] == [(ik.StatusWarning, __file__)]
    says = r"overflows|not converged: error|rule diverges|(not finite|the largest \|y\|); icl_krr"
    assert re.search(says, str(caught[0].message))
    monkeypatch.setattr(status_warning, "checks", None)  # nothing is waited for
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=ik.StatusWarning)
        NOT_RIGHT[case](TINY)
    assert caught == []


@pytest.fixture(scope="module")
def task():
    return numpy(sample(jax.random.key(0), CONFIG).replace(y_query=None))


def test_a_solution_of_any_scale_is_right_or_says_so(task):
    """The residual was 0 for y of 1e-17 and of 1e19, right or not."""
    sizes = np.array([1e-37, 1e-30, 1e-17, 1.0, 1e19, 1e30])

    def solve(s):
        return ik.solvers.exact(ik.Linear(), task.replace(y=s * task.y), ridge=0.5)

    result = jax.jit(jax.vmap(solve))(sizes)
    assert result.status.ok.tolist() == [False, *[True] * 5]
    assert np.all(result.residual[1:] > 0)
    predictions = result.prediction / sizes[:, None]
    assert np.allclose(predictions[1:], predictions[3], rtol=1e-4, atol=1e-6)
    assert "rescale y" in result.status.advice()
    assert result.status.advice().startswith("1 of 6 results")


def test_the_condition_number_is_bounded_by_the_discs_of_gershgorin():
    eps = float(np.finfo("float32").eps)
    for gram, bound in (([[2, 1], [1, 3]], 5 / 2), ([[1, 2], [2, 1]], 4 / 1), ([[4]], 5 / 5)):
        result = jax.jit(_accuracy.condition_times_eps)(np.array(gram, "float32"), 1.0)
        assert np.isclose(result / eps, bound), gram
    status = numpy(ik.solvers.exact(ik.Linear(), TINY, ridge=1.0).status)
    assert np.isclose(status.condition_times_eps / eps, 1)  # as it is named


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_outputs_are_not_lost(x64, dtype):
    """Division by 2^127 is a product with 2^-127, which XLA rounds to 0: f was 0, and ok."""
    x = np.array([[0.0], [1.0], [2.0]], dtype)
    y = 0.9 * np.finfo(dtype).max * np.array([1.0, 0.0, 0.0], dtype)

    def solve(y):
        return ik.solvers.exact(ik.Gaussian(), ik.Task(x=x, y=y, x_query=x), ridge=0.5)

    result, reference = solve(y), solve(y / 2**10)
    assert result.status.ok
    assert np.allclose(result.prediction / 2**10, reference.prediction, rtol=1e-5)


def test_a_masked_support_that_overflows_is_not_judged():
    kernel = ik.Mixture((ik.Exponential(), ik.Gaussian()), np.array([0.5, 0.5]))
    task = ik.Task(
        x=np.array([[1.0], [0.5], [30.0]]), y=np.array([1.0, 2.0, 3.0]),
        x_query=np.array([[0.2]]), mask=np.array([True, True, False]),
    )  # fmt: skip
    model = ik.constructions.conjugate_gradient(kernel, num_features=1, ridge=0.5, steps=8)
    assert ik.solvers.exact(kernel, task, ridge=0.5).status.ok
    assert ik.check(model, task).ok


def test_a_masked_support_does_not_change_the_status(task):
    """Not even one whose y is so large that all errors would be small beside it."""
    mask = np.arange(task.num_supports) < 20
    model, kernel = built(ik.Linear(), 2), ik.Linear()
    tasks = [task.replace(y=np.where(mask, task.y, value), mask=mask) for value in (0.0, 1e9)]
    for status in (
        lambda task: ik.solvers.exact(kernel, task, ridge=0.1).status,
        lambda task: ik.solvers.posterior(kernel, task, ridge=0.1).status,
        lambda task: ik.solvers.conjugate_gradient(kernel, task, ridge=0.1, steps=2).status,
        lambda task: ik.posterior(model, kernel, task).status,
        lambda task: ik.check(model, task),
    ):
        masked, other = map(status, tasks)
        chex.assert_trees_all_equal(masked, other)


def test_a_masked_support_near_a_far_query_does_not_count():
    """A masked support is at the origin, where its kernel value is large."""
    x, kernel = np.array([[10.0], [11.0], [0.0]]), ik.Gaussian()
    task = ik.Task(x, np.array([1.0, -1.0, 0.0]), np.array([[0.1]]), np.arange(3) < 2)
    result = numpy(ik.solvers.exact(kernel, task, ridge=0.5))
    assert result.prediction[0] > 1e-22
    assert result.status.advice() == "solved: error 3.5e-27"


def test_a_solver_that_runs_away_is_not_told_to_go_on(task):
    bad = {"spectrum": (0.1, 0.5)}
    said = numpy(ik.solvers.gradient_descent(ik.Linear(), task, ridge=0.5, steps=6, **bad))
    said = said.status.advice()
    assert "a spectrum with all eigenvalues (icl_krr.spectral_bounds)," in said
    assert "more steps" not in said


def test_what_is_eager_is_judged_in_float64():
    def dtype(x):
        return jnp.asarray(x).dtype

    assert in_float64(dtype, np.ones(1)) == "float64"
    assert jax.eval_shape(lambda x: in_float64(jnp.sin, x), np.ones(1)).dtype == "float32"


@pytest.mark.parametrize("name", ["newton_schulz", "richardson"])
def test_the_status_of_a_solver_counts_its_steps_and_has_its_residual(task, name):
    kernel = ik.Gaussian() if name == "richardson" else ik.Linear()
    bounds = {} if name == "richardson" else {"spectrum": (0.5, 100.0)}
    solve = partial(getattr(ik.solvers, name), kernel, task, ridge=0.5, **bounds)
    path = solve(steps=3)
    assert int(path.status.steps) == 3
    assert path.status.falling
    left = np.linalg.norm(path.r[-1]) / np.linalg.norm(task.y)
    np.testing.assert_allclose(path.status.residual, left, rtol=1e-3)


def test_a_residual_that_stays_does_not_fall(task):
    """With steps that are too small, and after convergence."""
    slow = ik.solvers.gradient_descent(ik.Linear(), task, ridge=0.5, steps=6, spectrum=(0.5, 1e4))
    done = ik.solvers.newton_schulz(ik.Linear(), task, ridge=0.5, steps=40, spectrum=(0.5, 100.0))
    assert [bool(path.status.falling) for path in (slow, done)] == [False, False]


def test_queries_count(task):
    distant, kernel = task.replace(x_query=200 * task.x_query), ik.Exponential()
    for result in (
        ik.solvers.exact(kernel, distant, ridge=0.5),
        ik.solvers.conjugate_gradient(kernel, distant, ridge=0.5, steps=2),
        ik.posterior(built(kernel, 2), kernel, distant),
    ):
        assert result.status.overflow
        assert not result.status.ok
        assert "the kernel overflows float32" in result.status.advice()


@pytest.mark.parametrize("solver", ["exact", "conjugate_gradient"])
def test_a_wrong_result_is_never_ok_and_a_right_one_is(solver):
    tasks = numpy(draw_tasks(jax.random.key(1), 200, CONFIG)).replace(y_query=None)
    tasks = tasks.replace(x=np.tile(tasks.x[:, :16], (1, 2, 1)))  # K has 16 eigenvalues beside 0
    numbers = 10 ** np.random.default_rng(0).uniform([-5, 0.5], [2, 1.5], (200, 2))
    ridges, temperatures = numbers.astype("f4").T
    options = {} if solver == "exact" else {"steps": 12}

    def solve(task, ridge, temperature):
        kernel = ik.Exponential(temperature)
        result = getattr(ik.solvers, solver)(kernel, task, ridge=ridge, **options)
        return result.prediction.reshape(-1, 5)[-1], result.status.ok

    predictions, ok = jax.jit(jax.vmap(solve))(tasks, ridges, temperatures)
    x, y, at = (np.asarray(part, "f8") for part in (tasks.x, tasks.y, tasks.x_query))
    scaled = x / temperatures[:, None, None]
    A = np.exp(scaled @ x.swapaxes(1, 2)) + ridges[:, None, None] * np.eye(32)
    best = np.exp(at @ scaled.swapaxes(1, 2)) @ np.linalg.solve(A, y[..., None])
    scale = np.maximum(np.abs(best).max((1, 2)), np.abs(y).max(1))
    error = np.abs(predictions - best[..., 0]).max(1) / scale
    error = np.where(np.isfinite(error), error, np.inf)
    assert not np.any(ok & (error > 1e-2))
    assert 20 * np.sum(~ok & (error < 1e-3)) <= np.sum(error < 1e-3)  # 2.6 % in large samples
    assert min(np.sum(error > 1e-2), np.sum(error < 1e-3)) > 3


def test_too_few_steps_are_told_how_many_there_should_be(task):
    assert ik.check(built(ik.Linear(), 8), task).ok
    few = ik.check(built(ik.Linear(), 4), task).advice()
    assert few.startswith("not converged: error 0.1 after 4 steps; use more steps (16)")


@pytest.mark.parametrize("size", [1e-17, 1e18])
def test_a_stream_that_mixes_slots_says_that_y_must_be_rescaled(task, size):
    model, task = dense(built(ik.Linear(), 8)), task.replace(y=size * task.y)
    status = numpy(ik.check(model, task, kernel=ik.Linear(), ridge=0.5))
    assert not status.ok
    assert "rescale y" in status.advice()


def test_outputs_are_extreme_if_their_squares_leave_the_range():
    sizes = [1e-13, 1e-11, 0.0, 1e15, 1e17]
    flags = [bool(_accuracy.extreme(np.array([size]), "float32")) for size in sizes]
    assert flags == [True, False, False, False, True]


def test_a_batch_does_not_hide_predictions_that_are_not_numbers(task):
    """The maximum of NaN and numbers is a number in some programs of XLA."""
    model, sizes = dense(built(ik.Linear(), 12)), np.logspace(17, 37, 120)

    def run(size):
        one = task.replace(y=size * task.y)
        status = ik.check(model, one, kernel=ik.Linear(), ridge=0.5)
        return jnp.all(jnp.isfinite(ik.predict(model, one))), status.ok

    finite, ok = jax.jit(jax.vmap(run))(sizes)
    assert 0 < np.sum(finite) < 120
    assert not np.any(ok & ~finite)


def test_only_the_model_of_a_construction_knows_its_problem(task):
    model = built(ik.Linear(), 8)
    again = jax.tree.map(np.asarray, model)
    assert jax.tree.structure(again) == jax.tree.structure(model)
    assert model.replace(steps=3).problem is not None
    with pytest.raises(ValueError, match="kernel must be given for a model that does not know it"):
        ik.check(again, task)
    with pytest.raises(ValueError, match="ridge must be given"):
        ik.check(again, task, kernel=ik.Linear())
    tasks = jax.tree.map(lambda part: jnp.stack([part, -part]), task)
    for status in (
        ik.check(again, task, kernel=ik.Linear(), ridge=0.5),
        jax.jit(jax.vmap(lambda task: ik.check(model, task)))(tasks),
    ):
        assert np.all(status.ok)


def test_the_bound_of_tables_is_watched(task):
    model = built(ik.Gaussian(), 4, "richardson", arithmetic=ik.ReLU(16, 0.1))
    status = numpy(ik.check(model, task))
    assert status.bound
    assert "operand_bounds" in status.advice()


def test_a_posterior_that_has_not_converged_says_so():
    """Two equal supports: gradient descent gives -0.818, 0.835 where 0.0476 is exact."""
    kernel, x = ik.Gaussian(), np.zeros((2, 1))
    task = ik.Task(x=x, y=np.ones(2), x_query=x[:1])
    spectrum = numpy(ik.spectral_bounds(kernel, task, ridge=0.1))
    options = {"num_features": 1, "ridge": 0.1, "steps": 2}
    descent = ik.constructions.gradient_descent(kernel, spectrum=spectrum, **options)
    for steps, expected in ((1, -0.818), (2, 0.835)):
        posterior = numpy(ik.posterior(descent.replace(steps=steps), kernel, task))
        assert np.isclose(posterior.variance[0], expected, atol=1e-3)
        assert bool(posterior.status.negative) == (expected < 0)
        assert not posterior.status.ok
    exact = ik.constructions.conjugate_gradient(kernel, **options)
    posterior = numpy(ik.posterior(exact, kernel, task))
    assert np.isclose(posterior.variance[0], 0.0476, atol=1e-4)
    assert posterior.status.ok
    for other in (ik.Gaussian(0.5), ik.Linear()):
        with pytest.raises(ValueError, match="kernel must be that of the model, Gaussian"):
            ik.posterior(exact, other, task)
    assert "not checked" in jax.jit(ik.posterior)(exact, kernel, task).status.advice()


@pytest.mark.slow
def test_no_result_of_a_random_task_is_wrong_without_a_word():
    """A few of the tasks and results whose record is in `benchmarks/results`."""
    subjects = ("`solvers.exact`", "`solvers.conjugate_gradient`", "`check` of `chebyshev`")
    results = list(random_cases.run(seed=2, cases=24, subjects=subjects))
    faults = Counter(random_cases.outcome(one.error, one.ok) for one in results)
    assert faults["wrong, ok"] == faults["not finite, ok"] == 0
    assert faults["right, reported"] <= 5
    blind = Counter(random_cases.outcome(one.error, True) for one in results)
    assert blind["wrong, ok"] > 30
    assert blind["not finite, ok"] > 10


def test_the_gap_of_an_iterate_is_six_geometric_means():
    """One support, K = 2 and k(x) = 1, ridge 0.1, y = 1 and alpha = 0.4, so that r = 0.16."""
    of_path = jax.jit(_accuracy.trajectory_status)
    parts = ik.tasks.System(*(np.array([[value]]) for value in (2.0, 1.0, 1.0)))
    alpha = np.array([0.0, 0.4]).reshape(2, 1, 1)
    status = of_path(parts, 0.1, alpha, 1 - 2.1 * alpha)
    assert np.isclose(status.error, 6 * np.sqrt(0.16 * 2 / 2.1 * 0.16), rtol=1e-4)
    close = parts._replace(cross=np.array([[0.01]]))
    query_gap = 0.01 * 0.16 / 0.1
    status = of_path(close, 0.1, alpha, 1 - 2.1 * alpha)
    assert np.isclose(status.error, 2 * query_gap, rtol=1e-4)


def test_a_negative_variance_is_told():
    status = numpy(ik.solvers.exact(ik.Linear(), TINY, ridge=0.5).status)
    for variance, negative in ((-1e-7, True), (1e-7, False)):
        result = _accuracy.with_variance(status, np.zeros(1), np.array([variance]), np.ones(1))
        assert bool(result.negative) == negative
        assert result.advice().endswith("a variance is below 0, clip it at 0") == negative
        wrong = result._replace(ok=np.asarray(False)).advice()
        assert "clip" not in wrong
        assert ("negative variance" in wrong) == negative


@pytest.mark.parametrize("middle", [1.01, 0.99])
def test_a_model_still_falls_if_its_second_half_gained_a_tenth(task, middle):
    exact = numpy(ik.solvers.exact(ik.Linear(), task, ridge=0.5).prediction)
    gaps = np.array([9, 9, 9, middle / 0.9, 1, 1, 1]) / 10
    path = exact[None] + gaps[:, None] * np.max(np.abs(exact))
    status = compare(ik.Linear(), 0.5, task, {"prediction": path}, steps=6)
    assert bool(status.falling) == (middle > 1)


def test_points_on_a_sphere_are_advised_where_they_help(task):
    """They help if k(x, x) differs between supports, so never with a Gaussian kernel."""
    solve, sphere = partial(ik.solvers.conjugate_gradient, ridge=0.1, steps=16), "on a sphere"
    unit, kernel = lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True), ik.Exponential()
    moved = task.replace(x=unit(task.x), x_query=unit(task.x_query))
    there, here = (solve(kernel, one).status for one in (moved, task))
    assert there.error < here.error / 10
    assert [sphere in status.advice() for status in (there, here)] == [False, True]
    assert sphere in ik.posterior(built(kernel, 8), kernel, task).status.advice()
    smooth = numpy(ik.solvers.exact(ik.Gaussian(8.0), task, ridge=1e-6).status)
    assert smooth.condition_times_eps > 0.1
    assert smooth.advice().endswith("use float64 or a larger ridge")


def test_a_small_gap_to_a_solution_that_may_be_wrong_is_not_ok(task):
    solution = numpy(ik.solvers.exact(ik.Linear(), task, ridge=0.5))
    parts = ik.tasks.system(ik.Linear(), task)
    for gap, ok in ((0.0, True), (0.5, False)):
        best = solution.status._replace(error=gap)
        status = _accuracy.measured_status(best, parts, 0.0, np.zeros(()), solution.prediction)
        assert bool(status.ok) == ok


def test_a_subnormal_y_is_told_by_every_check():
    """XLA's comparisons take it for 0, also where it compares the bits."""
    y = jax.device_put(np.array([0.0, 1e-40], "float32"))  # NumPy's would be refused
    task = ik.Task(x=np.array([[1.0], [2.0]]), y=y, x_query=np.ones((1, 1)))
    model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=0.5, steps=2)
    solution = numpy(ik.solvers.exact(ik.Linear(), task, ridge=0.5))
    of_model = ik.check(model, task), ik.posterior(model, ik.Linear(), task).status
    for status in (*of_model, solution.status):
        assert not status.ok
        assert status.range


def test_a_task_without_queries_can_be_checked(task):
    none = task.replace(x_query=task.x_query[:0])
    model = built(ik.Linear(), 8)
    assert ik.check(model, none).ok
    assert ik.posterior(model, ik.Linear(), none).mean.shape == (0,)


@pytest.mark.parametrize("steps", [6, 256])
def test_a_divergence_is_not_blamed_on_y(task, steps):
    said = numpy(ik.check(built(ik.Linear(), steps, "gradient_descent", spectrum=(0.1, 0.5)), task))
    assert said.advice().startswith("not converged: ")
    assert not said.range


def test_a_small_value_of_a_large_mixture_is_right():
    """Its rounding error was that of the largest value, and the gap infinite."""
    kernel = ik.Mixture((ik.Gaussian(1.0), ik.Gaussian(1e-3)), np.array([1e-6, 1e6]))
    task = ik.Task(x=np.zeros((1, 1)), y=np.ones(1), x_query=np.array([[11.0]]))
    assert ik.solvers.exact(kernel, task, ridge=1.0).status.ok


def test_a_kernel_takes_a_plain_feature_map(task):
    plain = ik.Features(lambda x: 2 * x)
    prediction = numpy(ik.solvers.exact(plain, task, ridge=2.0).prediction)
    linear = ik.solvers.exact(ik.Linear(), task, ridge=0.5).prediction
    assert np.allclose(prediction, linear, atol=1e-4)
