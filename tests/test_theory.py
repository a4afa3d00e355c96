"""Bounds of `theory`: that they hold, and how near to them one can come.

Those that a claim compares with an equality are tested by its verdict, in test_claims.
"""

import inspect
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from helpers import draw, kernel_matrix, numpy, relative

import icl_krr as ik
from icl_krr import theory
from icl_krr._core import step_sizes

SEEDS = range(6)
# one program for each kernel and shape
FUNCTIONS = {name: getattr(theory, name) for name in theory.__all__ if name != "RATES"}
compiled = SimpleNamespace(**{name: jax.jit(function) for name, function in FUNCTIONS.items()})
softmax = jax.jit(jax.nn.softmax, static_argnames="axis")
gaussian, exponential = ik.Gaussian(1.5), ik.Exponential(4.0)


def matrix(kernel, task, ridge):
    return kernel_matrix(kernel, task.x, task.x) + ridge * np.eye(task.num_supports)


def test_c2_rank_correlation(x64):
    rng = np.random.default_rng(0)
    for a, b in (rng.normal(size=(2, 20)), ([1.0, 2.0, 2.0, 5.0], [2.0, 2.0, 1.0, 7.0])):
        expected = scipy.stats.spearmanr(a, b).statistic
        assert np.isclose(compiled.rank_correlation(np.array(a), np.array(b)), expected)


@pytest.mark.parametrize("temperature", [0.05, 0.3, 4.0])
def test_c3_the_sink_is_chosen_so_that_no_weight_underflows(temperature):
    """In float32, at logits past 88 as well, where the exponential itself overflows."""
    for seed in SEEDS:
        task, kernel = draw(seed, n=20), ik.Exponential(temperature)
        log_sink = numpy(compiled.log_sink(kernel, task))
        points = np.concatenate([task.x, task.x_query]).astype(float)
        log_z = scipy.special.logsumexp(points @ points[:20].T / temperature, axis=1)
        weights = 1 / (1 + np.exp(log_z - log_sink))
        assert float(log_sink) == np.round(log_sink)
        assert 0.5 <= float(weights.min()) < float(weights.max()) <= 1
        assert float(weights.min()) < 1 / (1 + np.exp(-1)) + 1e-3


@pytest.mark.parametrize("log_sink", [-20.0, 0.0, 5.0, 30.0])
def test_c3_recovery_error(log_sink):
    """c times numerator over sink weight, in float32, against float64."""
    ratios = []
    for seed in SEEDS:
        with jax.enable_x64(True):
            task = draw(seed, n=40)
            x, v, t = np.asarray(task.x), np.asarray(task.y), 1.3
            true, size = np.exp(x @ x.T / t) @ v, np.exp(x @ x.T / t) @ np.abs(v)
        logits = np.asarray(x / t, "f4") @ np.asarray(x, "f4").T
        logits = np.concatenate([np.full((40, 1), log_sink, "f4"), logits], 1)
        weights = softmax(logits, axis=1)
        recovered = (weights[:, 1:] @ np.asarray(v, "f4")) / weights[:, 0]
        error = np.abs(np.exp(log_sink) * np.asarray(recovered, float) - true) / size
        bound = numpy(theory.recovery_error(np.max(np.abs(x @ x.T / t)), log_sink, 4, np.float32))
        ratios.append(error.max() / float(bound))
    assert max(ratios) <= 1
    assert max(ratios) > 0.003  # worst cases of rounding do not happen all at once


@pytest.mark.parametrize("decades", [1, 3, 6])
def test_c4_rates_hold_and_are_attained(x64, decades):
    """On a diagonal A: polynomials evaluated on the whole interval."""
    low, high, steps = 1.0, 10.0**decades, 25
    theta = np.pi * (np.arange(2001) + 0.5) / 2001
    sigma = np.concatenate([[low, high], (high + low) / 2 + (high - low) / 2 * np.cos(theta)])
    t, bounds = np.arange(steps + 1.0), []
    chebyshev = step_sizes.chebyshev(steps, (low, high)), compiled.chebyshev_rate
    heavy_ball = step_sizes.heavy_ball(steps, None, None, (low, high)), compiled.heavy_ball_rate
    for solve, rate in (chebyshev, heavy_ball):
        r, p, path = np.ones_like(sigma), solve.first * np.ones_like(sigma), [1.0]
        for a, b in zip(solve.a, solve.b, strict=True):
            r = r - sigma * p
            p = a * p + b * r
            path.append(np.max(np.abs(r)))
        bounds.append(np.asarray(rate(low, high, t)))
        assert np.all(path <= bounds[-1] * (1 + 1e-6))
        assert np.allclose(path, bounds[-1], rtol=1e-6)
    eta = float(step_sizes.gradient_step(None, (low, high)))
    worst = np.max(np.abs(1 - eta * sigma)) ** t
    assert np.allclose(worst, compiled.gradient_descent_rate(low, high, t))
    assert np.allclose(worst[1], compiled.stationary_factor(low, high, eta))
    cg, sharp = compiled.conjugate_gradient_rate(low, high, t), bounds[0]
    assert np.all((sharp <= cg) & (sharp >= cg / 2))


def test_c4_prediction_bound(x64):
    for seed in SEEDS:
        task = draw(seed, n=20, q=5)
        A, alpha = matrix(exponential, task, 0.5), ik.solvers.exact(exponential, task, ridge=0.5)
        cross = kernel_matrix(exponential, task.x_query, task.x)
        error = np.random.default_rng(seed).normal(size=20)
        assert np.isclose(compiled.energy_norm(A, error), np.sqrt(error @ A @ error))
        bound = numpy(compiled.prediction_bound(exponential, task, alpha.alpha + error, ridge=0.5))
        assert np.all(np.abs(cross @ error) <= bound)
        along = np.linalg.solve(A, cross[0])
        bound = numpy(compiled.prediction_bound(exponential, task, alpha.alpha + along, ridge=0.5))
        assert np.isclose(cross[0] @ along, bound[0])


def test_c5_the_neumann_series_needs_a_large_ridge(x64):
    """As stated, for a small ridge, it is false: the counterexample diverges."""
    task = draw(2, n=12)
    K, y = kernel_matrix(gaussian, task.x, task.x), np.asarray(task.y)
    sigma = numpy(compiled.eigenvalues(gaussian, task))[-1]
    for ridge, converges in ((float(sigma) / 4, False), (float(sigma) * 4, True)):
        factor = float(theory.neumann_factor(sigma, ridge))
        assert (factor < 1) == converges
        term, total = y / ridge, np.zeros_like(y)
        for _ in range(200):
            total, term = total + term, -K @ term / ridge
        exact = np.linalg.solve(K + ridge * np.eye(12), y)
        assert (np.linalg.norm(total - exact) < 1e-9) == converges


def test_c6_limits_of_the_temperature(x64):
    rng = np.random.default_rng(0)
    for _ in range(300):
        logits, y = rng.normal(size=6) * rng.choice([0.1, 1.0, 6.0]), rng.normal(size=6)
        smooth, order = np.exp(logits) @ y / np.exp(logits).sum(), np.sort(logits)
        assert abs(smooth - y.mean()) <= compiled.mean_limit_bound(order[-1] - order[0], y)
        gap = order[-1] - order[-2]
        assert abs(smooth - y[np.argmax(logits)]) <= compiled.nearest_limit_bound(gap, y)
    spread, n = np.log(4.0), 3  # one weight of 4 against two of 1: 1 : e^(spread / 2)
    y = np.array([1.0, 0.0, 0.0])
    assert np.isclose(4 / 6 - 1 / n, compiled.mean_limit_bound(spread, y))
    assert np.isclose(1 - 4 / 6, compiled.nearest_limit_bound(spread, y))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_c9_best_epsilon(symmetric, dtype):
    """The law names the best e: within a factor of 10 of a sweep's, the error within 10 too."""
    with jax.enable_x64(dtype == "float64"):
        s = np.linspace(-3, 3, 1001, dtype=dtype)
        weights = lambda e: np.exp(e * s)  # noqa: E731

        def error(e):
            e = np.asarray(e, dtype)
            pair = (weights(e) - weights(-e)) / (2 * e)
            entry = pair if symmetric else (weights(e) - 1) / e
            return float(np.max(np.abs(np.asarray(entry, float) - np.asarray(s, float))))

        sweep = 10.0 ** np.linspace(-9, 0, 91)
        errors = np.array([error(e) for e in sweep])
        best = float(theory.best_epsilon(3.0, symmetric=symmetric, dtype=dtype))
        assert 0.1 < best / sweep[np.argmin(errors)] < 10
        assert error(best) < 10 * errors.min()


@pytest.mark.parametrize("width", [2, 16, 128])
def test_c14_tables(x64, width):
    """The interpolants of reciprocals; the models' tables, of products too, are in test_tables."""
    knots = 0.01 * 1e4 ** np.linspace(0, 1, width + 1)
    x = np.exp(np.linspace(np.log(0.01), np.log(100), 100_001))
    error = np.max(np.abs(np.interp(x, knots, 1 / knots) * x - 1))
    bound = float(theory.reciprocal_table_error(0.01, 100.0, width))
    assert 0.99 * bound < error <= bound * (1 + 1e-6)


def test_c35_the_angle_that_an_eigengap_guarantees(x64):
    """Turning two eigenvectors by a small angle needs a perturbation of the size of the gap."""
    rng, gap = np.random.default_rng(2), 0.8
    C = np.diag([0.1, 0.3, 1.1, 2.0])
    for size in (1e-3, 0.05, 0.3):
        E = rng.normal(size=(4, 4))
        E = size * (E + E.T) / np.linalg.norm(E + E.T, 2)
        W = np.linalg.eigh(C + E)[1][:, :2]
        assert np.linalg.norm(W[2:], 2) <= compiled.subspace_sine(gap, size)
    turn = np.array([[np.cos(1e-3), -np.sin(1e-3)], [np.sin(1e-3), np.cos(1e-3)]])
    flat = np.diag([0.0, gap])
    size = np.linalg.norm(turn @ flat @ turn.T - flat, 2)
    assert 0.99 < 1e-3 / numpy(compiled.subspace_sine(gap, size)) <= 1
    assert compiled.subspace_sine(0.0, 0.0) == compiled.subspace_sine(2 * size, size) == 1
    assert theory.relative_inverse_error_angle(np.array([1.0, 4.0]), 1, 0.5, 5.0) == 8  # as of 1


KEEP = np.arange(9) % 3 != 1
sigma = partial(theory.eigenvalues, gaussian)
preconditioned = partial(theory.preconditioned_eigenvalues, gaussian, ridge=2.0, sink=0.01)
bound = partial(theory.prediction_bound, exponential, ridge=0.1)
WITH_TASKS = {
    "log_sink": lambda task, keep: theory.log_sink(gaussian, task),
    "prediction_bound": lambda task, keep: bound(task, jnp.where(keep, 0.3, jnp.nan)),
    "preconditioned_eigenvalues": lambda task, keep: preconditioned(task)[np.sum(~keep) :],
    "their condition": lambda task, keep: jnp.divide(*preconditioned(task)[jnp.array([-1, 0])]),
    "eigenvalues": lambda task, keep: sigma(task)[np.sum(~keep) :],
    "spectral_bounds": lambda task, keep: theory.spectral_bounds(gaussian, task, ridge=0.1),
    "prefix_bounds": lambda task, keep: theory.prefix_bounds(gaussian, task, ridge=0.1),
    "effective_dimension": lambda task, keep: theory.effective_dimension(sigma(task), 0.1),
    "expected_gap": lambda task, keep: theory.expected_gap(sigma(task), 2, 0.1, 1.0, 0.5),
    "inverse_error_tail": lambda task, keep: theory.inverse_error_tail(sigma(task), 2, 0.1),
    "query_error_dual": lambda task, keep: theory.query_error_dual(
        ik.tasks.system(gaussian, task).cross, ik.tasks.system(gaussian, task).y[:, 0], 0.1
    ),
}


def test_every_function_of_a_task_ignores_masked_supports(x64):
    """It gives what it gives for the task without them, also if their values are not numbers."""
    task = draw(0, p=2, n=9)
    hidden = np.where(KEEP, task.y, np.nan), np.where(KEEP[:, None], task.x, np.nan)
    masked = task.replace(y=hidden[0], x=hidden[1], mask=np.asarray(KEEP))
    rest = task.replace(x=task.x[KEEP], y=task.y[KEEP])
    results = jax.jit(lambda t: {name: f(t, KEEP) for name, f in WITH_TASKS.items()})(masked)
    expected = jax.jit(lambda t: {name: f(t, KEEP[KEEP]) for name, f in WITH_TASKS.items()})(rest)
    for name in WITH_TASKS:
        assert relative(results[name], expected[name]) < 1e-9, name
    takes = {n for n, f in FUNCTIONS.items() if "task" in inspect.signature(f).parameters}
    assert takes <= set(WITH_TASKS)


def test_a_task_without_supports_has_a_sink():
    task = draw(0, p=2, n=3).replace(mask=np.zeros(3, bool))
    assert float(compiled.log_sink(gaussian, task)) == 0.0


@pytest.mark.parametrize("spectrum", [(1.0, 10.0), (2.0, 2.02), (2.0, 2.0)])
def test_c23_the_chebyshev_filter_is_that_of_the_solver(x64, spectrum):
    """At every number of steps from 0, also where the bounds are equal and T_t is infinite."""
    sigma = np.linspace(0.0, 9.0, 7)
    x = np.diag(np.sqrt(sigma))
    task = ik.Task(x=x, y=np.ones(7), x_query=x)
    path = numpy(ik.solvers.chebyshev(ik.Linear(), task, ridge=1.0, steps=6, spectrum=spectrum))
    filters = [theory.chebyshev_filter(sigma, 1.0, spectrum, t) for t in range(7)]
    assert relative(np.stack(filters), path.alpha) < 1e-11


@pytest.mark.parametrize("dimension", [1, 3])
def test_c31_the_best_bandwidth_has_the_least_risk(x64, dimension):
    bandwidths = np.geomspace(0.05, 1.0, 400)
    bias = numpy(theory.smoothing_bias(np.array(6.0), 1.0))
    numbers = {"num_supports": 300, "density": 0.5, "noise": 0.2}
    variances = [theory.smoothing_variance(h, dimension, **numbers) for h in (*bandwidths, 1.0)]
    risk = (bias * bandwidths**2) ** 2 + np.stack(variances[:-1])
    best = numpy(theory.best_bandwidth(bias, variances[-1], dimension))
    assert np.isclose(bandwidths[np.argmin(risk)], best, rtol=0.01)


def test_c33_the_width_grows_as_d_log_d_only_for_bounded_temperature(x64):
    d = np.array([64, 256, 1024])
    width = np.array([float(theory.performer_width(int(k), k**0.25, 0.5)) for k in d])
    per = width / (d * np.log(d))
    assert per.max() < 1.3 * per.min()
    unit = [float(theory.performer_width(int(k), k**0.5, 0.5)) for k in d]
    assert np.isclose(np.log(unit[2] / unit[1]), 2 * (32 - 16), rtol=0.15)
