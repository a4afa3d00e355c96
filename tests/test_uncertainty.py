"""Predictive distributions against scipy, mpmath and quadrature; calibration against draws."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from helpers import kernel_matrix, numpy
from jax.test_util import check_grads
from scipy import integrate, stats

import icl_krr as ik
from icl_krr import uncertainty
from icl_krr.uncertainty import Predictive

# one program for each shape
log_density, cdf, bins, quantile, interval, crps = (
    jax.jit(getattr(uncertainty, name))
    for name in ("log_density", "cdf", "bins", "quantile", "interval", "crps")
)

W = np.array([0.2, 0.5, 0.3])
M = np.array([-1.5, 0.3, 4.0])
V = np.array([0.4, 2.0, 0.05])


def mixture(dtype="f8", lead=()):
    """The same mixture for every entry of the leading axes, moved by its number."""
    shift = np.arange(np.prod(lead, dtype=int)).reshape(*lead, 1)
    parts = (np.broadcast_to(W, (*lead, 3)), M + shift, np.broadcast_to(V, (*lead, 3)))
    return Predictive(*(np.asarray(part, dtype) for part in parts))


def normal(mean=0.0, variance=1.0, dtype="f8"):
    parts = (1.0, mean, variance)
    return Predictive(*(np.full(1, value, dtype) for value in parts))


def density(y):
    return stats.norm.pdf(y, M, np.sqrt(V)) @ W


def distribution(y):
    return stats.norm.cdf(y, M, np.sqrt(V)) @ W


def test_moments_density_and_distribution_are_those_of_scipy(x64):
    both, y = mixture(lead=(2,)), np.array([[0.7, 1.2], [3.0, -2.0], [9.0, -40.0]])
    for k in range(2):
        mean = integrate.quad(lambda t: t * density(t), -12, 12, points=M, epsabs=1e-13)[0]
        second = integrate.quad(lambda t: t**2 * density(t), -12, 12, points=M, epsabs=1e-13)[0]
        np.testing.assert_allclose(both.mean[k], mean + k, rtol=1e-9)
        np.testing.assert_allclose(both.variance[k], second - mean**2, rtol=1e-9)
    log = np.array([[np.log(density(v - k)) for k, v in enumerate(row)] for row in y])
    np.testing.assert_allclose(log_density(both, np.asarray(y)), log, rtol=1e-12)
    below = np.array([[distribution(v - k) for k, v in enumerate(row)] for row in y])
    np.testing.assert_allclose(cdf(both, np.asarray(y)), below, rtol=1e-10)


def test_the_log_density_far_from_all_gaussians_is_finite_in_float32():
    density = numpy(log_density(mixture("f4"), np.asarray(-300.0, "f4")))
    expected = np.log(W[1]) + stats.norm.logpdf(-300, M[1], np.sqrt(V[1]))
    np.testing.assert_allclose(density, expected, rtol=1e-5)


EDGES = [-39.0, -38.9, -9.0, -8.0, -1e-9, 0.0, 1e-7, 1.0, 1.001, 1.9, 8.0, 8.2, 30.0, 30.00001, 37]


@pytest.mark.parametrize(("dtype", "accuracy"), [("f8", 1e-12), ("f4", 2e-5)])
def test_every_bin_keeps_its_relative_accuracy(x64, dtype, accuracy):
    edges = np.array(EDGES)
    if dtype == "f4":  # what float32 can hold: e^-88, and edges that differ in it
        edges = edges[(np.abs(edges) < 13) & (edges != 1e-7)].astype("f4").astype(float)
    probabilities = np.asarray(bins(normal(dtype=dtype), np.asarray(edges, dtype)))
    with mpmath.workdps(400):
        below = [mpmath.ncdf(mpmath.mpf(float(edge))) for edge in edges]
        exact = [below[0], *(b - a for a, b in pairwise(below)), 1 - below[-1]]
        np.testing.assert_allclose(probabilities, [float(value) for value in exact], rtol=accuracy)
    assert abs(probabilities.sum() - 1) < accuracy


def test_bins_of_a_mixture_are_differences_of_its_distribution_function(x64):
    edges = np.linspace(-4, 7, 12)
    probabilities = numpy(bins(mixture(lead=(2, 3)), np.asarray(edges)))
    assert probabilities.shape == (2, 3, 13)
    below = np.array([0, *map(distribution, edges - 4), 1])
    np.testing.assert_allclose(probabilities[1, 1], np.diff(below), atol=1e-14)
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-14)


@pytest.mark.parametrize("probability", [1e-9, 0.025, 0.5, 0.9, 1 - 1e-6])
def test_quantiles_invert_the_distribution_function(x64, probability):
    both = mixture(lead=(2,))
    y = numpy(quantile(both, probability))
    np.testing.assert_allclose(cdf(both, y), probability, rtol=1e-9)
    twice = Predictive(np.array([0.5, 0.5]), np.array([2.0, 2.0]), np.array([9.0, 9.0]))
    one = numpy(quantile(normal(2.0, 9.0), probability))
    np.testing.assert_allclose(quantile(twice, probability), one, rtol=1e-12)
    np.testing.assert_allclose(one, stats.norm.ppf(probability, 2, 3), rtol=1e-12)


def test_a_gaussian_without_weight_does_not_widen_the_search():
    """Its quantile, 1e30 away, would leave no bits of float32 for the others."""
    both = Predictive(np.array([0.5, 0.5, 0]), np.array([0.0, 3.0, 1e30]), np.ones(3))
    np.testing.assert_allclose(quantile(both, 0.5), 1.5, rtol=1e-6)


def test_an_interval_of_float32_holds_its_level():
    lower, upper = numpy(interval(mixture("f4"), 0.9))
    inside = distribution(float(upper)) - distribution(float(lower))
    np.testing.assert_allclose(inside, 0.9, atol=1e-5)


FUNCTIONS = {
    "log_density": lambda p: uncertainty.log_density(p, jnp.asarray(0.4)),
    "cdf": lambda p: uncertainty.cdf(p, jnp.asarray(0.4)),
    "bins": lambda p: uncertainty.bins(p, jnp.array([-1.0, 0.4, 0.5, 5.0])),
    "quantile": lambda p: uncertainty.quantile(p, 0.7),
    "crps": lambda p: uncertainty.crps(p, jnp.asarray(0.4)),
    "log_likelihood": lambda p: uncertainty.log_likelihood(p, jnp.asarray(0.4)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_finite_differences(x64, name):
    def of_parameters(logits, means, logs):
        return FUNCTIONS[name](Predictive(jax.nn.softmax(logits), means, jnp.exp(logs)))

    params = np.log(W), np.asarray(M), np.log(V)
    check_grads(jax.jit(of_parameters), params, order=1, modes=["rev"], rtol=1e-6)


def test_the_quantile_moves_with_its_probability(x64):
    slope = jax.jit(jax.grad(lambda p: uncertainty.quantile(mixture(), p)))(0.7)
    at = float(quantile(mixture(), 0.7))
    np.testing.assert_allclose(slope, 1 / density(at), rtol=1e-9)


def test_functions_map_over_distributions():
    many, y = mixture("f4", lead=(4,)), np.arange(4.0)
    for function in (uncertainty.log_density, uncertainty.cdf, uncertainty.crps):
        mapped = jax.jit(jax.vmap(function))(many, y)
        np.testing.assert_allclose(mapped, function(many, y), rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(quantile, (0, None))(many, 0.3), quantile(many, 0.3))


def test_the_score_is_the_integral_that_defines_it(x64):
    for y in (-1.0, 2.2):
        pieces = [(-30, y), (y, 30)]
        terms = (lambda t: distribution(t) ** 2, lambda t: (1 - distribution(t)) ** 2)
        exact = sum(
            integrate.quad(term, *piece, points=[p for p in M if piece[0] < p < piece[1]])[0]
            for term, piece in zip(terms, pieces, strict=True)
        )
        np.testing.assert_allclose(crps(mixture(), np.asarray(y)), exact, rtol=1e-7)


def drawn(tasks, queries, spread, seed=0):
    """Outputs of queries that share the error of their task, and their right distributions."""
    rng = np.random.default_rng(seed)
    shared, separate = rng.normal(size=(tasks, 1)), rng.normal(size=(tasks, queries))
    one = np.ones((tasks, queries, 1))
    return Predictive(one, 0 * one, spread * one), np.sqrt(0.9) * shared + np.sqrt(0.1) * separate


def test_dependent_queries_need_their_tasks(x64):
    """The right distributions pass by task. As if independent, they mostly fail."""
    passed = {"by task": 0, "as if independent": 0}
    for seed in range(20):
        predictive, y = drawn(40, 25, 1.0, seed)
        for name, by_task in (("by task", True), ("as if independent", False)):
            options = {"by_task": by_task}
            passed[name] += uncertainty.coverage(predictive, y, 0.5, **options).calibrated
            passed[name] += uncertainty.uniformity(predictive, y, draws=200, **options).calibrated
    assert passed["by task"] >= 35
    assert passed["as if independent"] <= 20


def test_wrong_variances_are_found(x64):
    for spread in (0.3, 3.0):
        predictive, y = drawn(400, 3, spread)
        assert not uncertainty.coverage(predictive, y, by_task=True).calibrated
        assert not uncertainty.uniformity(predictive, y, by_task=True).calibrated
    independent = y[:, :1]
    for spread, right in ((3.0, False), (1.0, True)):
        predictive = Predictive(*(part[:, :1] for part in drawn(400, 3, spread)[0]))
        assert uncertainty.coverage(predictive, independent).calibrated == right
        assert uncertainty.uniformity(predictive, independent).calibrated == right


def test_coverage_has_the_interval_of_wilson(x64):
    one = np.ones((50, 1))
    y = np.r_[np.zeros(46), np.full(4, 9.0)]
    result = numpy(uncertainty.coverage(Predictive(one, 0 * one, one), y))
    exact = stats.binomtest(46, 50).proportion_ci(method="wilson")
    np.testing.assert_allclose(result[1:4], (0.92, exact.low, exact.high), rtol=1e-12)


def test_the_values_along_the_supports_are_independent(x64):
    """The chain rule: what a Gaussian process says of an output given those before it."""
    kernel, levels = ik.Gaussian(0.7), {0.25: [], 0.5: []}
    family = ik.tasks.GaussianProcess(kernel, num_supports=40, noise=0.25)
    for seed in range(30):
        task = numpy(ik.tasks.sample(jax.random.key(seed), family))
        for noise, parts in levels.items():
            L = np.linalg.cholesky(kernel_matrix(kernel, task.x, task.x) + noise * np.eye(40))
            scale = np.diag(L)
            means = task.y - scale * np.linalg.solve(L, task.y)
            parts.append((1 + 0 * scale, means, scale**2, task.y))
    for noise, parts in levels.items():
        *values, y = map(np.concatenate, zip(*parts, strict=True))
        predictive = Predictive(*(value[:, None] for value in values))
        assert uncertainty.uniformity(predictive, y).calibrated == (noise == 0.25)
