"""Status everywhere: plain numbers, gradients and averages say when they cannot be trusted."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import numpy

import icl_krr as ik
from icl_krr._core.rounding import with_rounding_error

N, P, Q = 12, 3, 4
LINEAR = ik.Linear()


def drawn(seed, scale=1.0, dtype="f4"):
    rng = np.random.default_rng(seed)
    x, y, at = (rng.normal(size=size) for size in ((N, P), N, (Q, P)))
    return numpy(ik.Task((scale * x).astype(dtype), y.astype(dtype), (scale * at).astype(dtype)))


@pytest.fixture(scope="module")
def task():
    return drawn(0)


def evidence(task, ridge):
    return ik.solvers.log_marginal_likelihood(LINEAR, task, ridge=ridge)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_plain_numbers_are_right_or_say_so(x64, dtype):
    """In float32, the same number in float64 tells; in float64, small changes of the input do."""
    task, name = drawn(0, dtype=dtype), ik.solvers.leave_one_out
    tiny = {"f4": 1e-9, "f8": 1e-18}[dtype]
    for ridge, right in ((0.1, True), (tiny, False)):
        value, status = ik.audit(name, LINEAR, task, ridge=jnp.asarray(ridge, dtype))
        assert bool(status.ok) == right, ridge
        assert value.dtype == dtype
        assert status.residual.dtype == dtype
    assert status.condition_times_eps > 0.1


def test_a_number_that_agrees_with_a_wrong_one_in_float64_is_not_ok(x64):
    """The small changes tell."""
    value, status = ik.audit(lambda x: 1e16 * (x - 1) + 1, jnp.ones(3, "f4"))
    assert np.array_equal(value, np.ones(3))
    assert status.error == 0
    assert not status.ok


def test_a_value_that_is_not_finite_is_never_ok(task):
    with np.errstate(all="ignore"):
        for function in (jnp.log, jnp.exp, lambda y: y / 0):
            value, status = ik.audit(function, 200 * task.y)
            assert not np.all(np.isfinite(value))
            assert not status.ok
    assert "leave the range of float32" in ik.audit(jnp.exp, 200 * task.y).status.advice()
    assert ik.audit(lambda y: 1e-30 * (1e-30 * y), task.y).status.ok  # as good as 0


def test_every_output_has_its_own_scale(task):
    both = numpy(task.replace(y=np.stack([task.y, 1e5 * task.y[::-1]], 1)))
    noise = np.stack([np.full(N, 0.1, "f4"), np.zeros(N, "f4")], 1)
    wrong = lambda y, task: y + (noise if y.dtype == "float32" else 0)  # noqa: E731
    assert not ik.audit(wrong, both.y, both).status.ok
    assert ik.audit(wrong, both.y, task).status.ok


def test_gradients_predictions_and_results_can_be_audited(task):
    def loss(task, ridge):
        return jnp.sum(ik.solvers.exact(LINEAR, task, ridge=ridge).prediction ** 2)

    slope = jax.jit(jax.grad(loss, argnums=(0, 1)))
    value, status = ik.audit(slope, task, jnp.float32(0.5))
    assert status.ok
    assert np.isclose(value[1], slope(task, jnp.float32(0.5))[1])
    model = ik.constructions.conjugate_gradient(LINEAR, num_features=P, ridge=0.5, steps=3)
    for function, *args in (
        (ik.predict, model, task),
        (ik.solvers.nadaraya_watson, ik.Gaussian(), task),
        (partial(ik.spectral_bounds, ridge=0.5), LINEAR, task),
        (partial(ik.solvers.exact, ridge=0.5), LINEAR, task),  # its status is no number
    ):
        assert ik.audit(function, *args).status.advice().startswith("solved: error")


def test_bad_input_of_an_audit_is_one_sentence(task):
    with pytest.raises(TypeError, match="must return floating-point numbers to be audited"):
        ik.audit(lambda task: task.num_supports, task)
    with pytest.raises(ValueError, match="must get all arrays as arguments to be audited"):
        ik.audit(lambda: jnp.sum(task.y))


def test_inside_of_transformations_an_audit_has_no_more_digits(task):
    status = jax.jit(lambda task: ik.audit(evidence, task, 0.5).status)(task)
    assert status.ok
    assert not jax.jit(lambda task: ik.audit(evidence, task, 1e-9).status)(task).ok


def test_the_spread_is_that_of_rounding(x64):
    """Of a sum that cancels: about 4 u times the size of its terms."""
    x = jnp.array([1.0, -1.0 + 1e-9])
    _, change = with_rounding_error(jnp.sum, x)
    assert 2 <= change / np.finfo("f8").eps <= 8.1


@pytest.mark.parametrize("size", [1e-35, 1e36])
def test_leave_one_out_and_evidence_take_y_of_any_size(task, size):
    tasks = (task.replace(y=c * task.y) for c in (1.0, size))
    errors, outlier = (ik.solvers.leave_one_out(LINEAR, one, ridge=1e-4) for one in tasks)
    assert np.allclose(outlier / np.float32(size), errors, rtol=1e-3)
    value = evidence(task.replace(y=size * task.y), 0.1)
    assert value == -np.inf if size > 1 else np.isfinite(value)


def test_an_infinite_matrix_has_no_factor(task):
    """Its inverse was 0, and a gradient of 0 agreed in both precisions."""
    distant = task.replace(x=1e3 * task.x)
    slope = jax.jit(jax.grad(lambda ridge, task: ik.solvers.log_marginal_likelihood(
        ik.Exponential(), task, ridge=ridge)))  # fmt: skip
    assert not ik.audit(slope, jnp.float32(0.1), distant).status.ok


RIDGES = ((1.0, (1e-12, 1e-6)), (1e3, (1e-6, 1.0)))


@pytest.mark.parametrize(("scale", "ridges"), RIDGES)
def test_a_candidate_without_evidence_loses_its_weight(scale, ridges):
    """Variances below 0 made its evidence NaN, and with it all averages and weights."""
    options = {"ridges": np.array(ridges, "f4"), "steps": 12}
    model = ik.constructions.bayesian_average(LINEAR, num_features=P, **options)
    for seed in range(3):
        task = drawn(seed, scale)
        w = np.float64(task.x).T @ np.float64(task.x) + ridges[1] * np.eye(P)
        mean = task.x_query @ np.linalg.solve(w, np.float64(task.x).T @ task.y)
        result = numpy(ik.solvers.bayesian_average(LINEAR, task, **options))
        prediction, cache = ik.run_with_cache(model, task, names=("weights",))
        of_model = prediction, np.asarray(cache["weights"])
        for f, weights in ((result.prediction[-1], result.weights), of_model):
            assert np.allclose(f, mean, atol=1e-4)
            assert np.allclose(weights[-1, -1][:2], (0, 1), atol=1e-3)
        assert result.status.ok
        assert ik.check(model, task).ok


def test_averages_say_when_they_are_wrong(task):
    """Also of outputs with evidences of their own, one by one."""
    options = {"ridges": np.array([0.1, 1.0], "f4"), "steps": 12}
    few = ik.solvers.bayesian_average(LINEAR, task, **options | {"steps": 2}).status
    assert few.advice().startswith("not converged: error ")
    model = ik.constructions.bayesian_average(LINEAR, num_features=P, **options)
    assert not ik.check(model.replace(steps=2), task).ok
    blunt = model.replace(problem=model.problem._replace(sharpness=0.01))
    for y in (task.y, np.stack([task.y, 100 * task.y[::-1]], 1)):
        assert ik.check(model, task.replace(y=y)).ok
        assert not ik.check(blunt, task.replace(y=y)).ok
    loaded = jax.tree.map(jnp.asarray, model)
    assert ik.check(loaded, task, kernel=LINEAR, ridge=options["ridges"]).ok
    out = ik.solvers.bayesian_average(LINEAR, task.replace(y=1e25 * task.y), **options)
    assert not np.any(np.isfinite(out.prediction[-1]))
    assert "leave the range" in out.status.advice()


def test_newton_schulz_knows_its_error_where_the_residual_lies():
    """Features of very different sizes, and a tiny ridge: ok with a gap of 2.6e-5, .53 away."""
    rng = np.random.default_rng(0)
    wrong = right = 0
    solve = jax.jit(lambda task: ik.solvers.newton_schulz(
        LINEAR, task, ridge=2e-9, steps=24,
        spectrum=ik.spectral_bounds(LINEAR, task, ridge=2e-9)))  # fmt: skip
    for number in range(240):
        sizes = 10 ** rng.uniform(0, 5, size=P)
        x, y, at = (rng.normal(size=size) for size in ((8, P), 8, (Q, P)))
        mask = np.arange(8) != number % 8
        task = ik.Task(*(np.float32(part) for part in (x * sizes, y, at * sizes)), mask)
        result = solve(task)
        supports, at = np.float64(task.x)[mask], np.float64(task.x_query)
        scaled = (supports / sizes).T @ (supports / sizes) + 2e-9 * np.diag(sizes**-2)
        best = at / sizes @ np.linalg.solve(scaled, (supports / sizes).T @ np.float64(task.y)[mask])
        scale = max(np.abs(best).max(), np.abs(task.y)[mask].max())
        error = np.abs(result.prediction[-1] - best).max() / scale
        wrong += bool(result.status.ok) and not error < 0.01
        right += bool(result.status.ok)
    assert wrong == 0
    assert right > 3
