"""Matern kernels: against scikit-learn, where points coincide, and as sums of Gaussian heads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import draw, kernel_matrix, relative
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

import icl_krr as ik
from icl_krr.catalogue import taken
from icl_krr.experiments.identify._settings import IdentifyOptions
from icl_krr.tabular import DepthConfig

ORDERS = {ik.Matern12: 0.5, ik.Matern32: 1.5, ik.Matern52: 2.5}
ERRORS = {ik.Matern12: 6.4e-4, ik.Matern32: 1.2e-5, ik.Matern52: 1.2e-5}
FINE = ERRORS | {ik.Matern12: 9.3e-5}
X, Z = np.random.default_rng(0).normal(size=(2, 6, 3))
Z[2] = X[4]
U = np.random.default_rng(1).normal(size=(2, 3))
each = pytest.mark.parametrize("kind", ORDERS)


@each
def test_it_is_the_kernel_of_scikit_learn(kind, x64):
    theirs = Matern(0.7, nu=ORDERS[kind])
    assert np.allclose(kernel_matrix(kind(0.7), X, Z), theirs(X, Z), rtol=1e-13)
    kernel, log = kind(0.7, U), np.log(theirs(X @ U.T, Z @ U.T))
    assert np.allclose(kernel.log(X, Z), log, rtol=1e-12, atol=1e-15)
    assert relative(kernel_matrix(ik.sketched(kind(0.7), U.T), X, Z), np.exp(log)) < 1e-13


@each
def test_the_curvature_where_points_coincide(kind, x64):
    curve = lambda d: kind(1.0)(d[None, None], jnp.zeros((1, 1)))[0, 0]  # noqa: E731
    curvature = {0.5: 0.0, 1.5: -3.0, 2.5: -5 / 3}[ORDERS[kind]]  # of order 1/2 it has a kink
    assert float(jax.hessian(curve)(jnp.zeros(()))) == pytest.approx(curvature)


@each
def test_extreme_lengthscales_stay_finite(kind):
    """In float32, where squares of distances over the lengthscale overflow and underflow."""
    x = np.array([[0.0], [1.0], [1.9]], np.float32)
    value = lambda x, lengthscale: jnp.sum(kind(lengthscale)(x, x[:2]))  # noqa: E731
    both = jax.jit(jax.value_and_grad(value, argnums=(0, 1)))
    for lengthscale, total in ((1e-37, 2), (2.0**-63, 2), (1e20, 6), (1e37, 6)):
        values, (of_x, of_lengthscale) = both(x, np.float32(lengthscale))
        assert (values, abs(of_lengthscale) < 1e-19) == (total, True)
        assert np.all(np.abs(of_x) <= 4 / lengthscale)


@each
def test_its_mixture_has_the_error_that_is_stated(kind, x64):
    r = np.concatenate([[0.0], np.geomspace(1e-6, 1e3, 4000)])[:, None]
    kernel, zero = kind(2.0), np.zeros((1, 1))
    for errors, dtype in ((ERRORS, np.float32), (FINE, np.float64)):
        mixture = jax.tree.map(np.float64, kernel.mixture(dtype))
        gap = kernel_matrix(mixture, r, zero) - kernel_matrix(kernel, r, zero)
        assert errors[kind] * 0.9 < np.max(np.abs(gap)) <= errors[kind]
        assert abs(gap[0, 0]) < 2 * np.finfo(dtype).eps
        assert f"{errors[kind]:.1e}".replace("e-0", "e-") in str(ik.kernels.Matern.__doc__)
        heads = len(kernel.patterns(dtype))
        model = ik.constructions.nadaraya_watson(kernel, num_features=1, dtype=dtype)
        assert model.num_heads == heads
        assert f"{heads} " in str(ik.kernels.Matern.__doc__)


def test_check_compares_with_the_exact_kernel(x64):
    """That of the model is a mixture, here within another one."""
    task, options = draw(0, p=2, n=9, q=4), {"num_features": 2, "ridge": 0.3, "steps": 12}
    kernel = ik.Mixture((ik.Matern32(), ik.Gaussian(2.0)), np.array([1.0, 0.5]))
    sums = ik.Matern32().mixture(float)
    same = ik.Mixture((*sums.kernels, ik.Gaussian(2.0)), np.append(sums.weights, 0.5))
    model = ik.constructions.conjugate_gradient(kernel, **options)
    assert 1e-7 < float(ik.check(model, task).error) < 1e-4
    assert float(ik.check(model, task, kernel=same).error) < 1e-8


def test_deviations_of_the_estimator_are_those_of_the_exact_kernel(x64):
    """Of scikit-learn, with a weight for each row."""
    task, weight = draw(0, p=2, n=9, q=4), np.linspace(0.5, 2, 9)
    peer = GaussianProcessRegressor(Matern(1.5, "fixed", 0.5), alpha=0.5 / weight, optimizer=None)
    mean, std = peer.fit(task.x, task.y).predict(task.x_query, return_std=True)
    options = {"lengthscale": 1.5, "ridge": 0.5, "amplitude": 1.0}
    model = ik.InContextRegressor(kernel="matern12", solver="conjugate_gradient", **options)
    ours = model.fit(task.x, task.y, weight).predict(task.x_query, return_std=True, noise=False)
    assert relative(ours[0], mean) < 1e-3
    assert relative(ours[1], std) < 1e-6


def test_it_is_refused_where_it_cannot_be():
    kernel = ik.Matern52()
    with pytest.raises(ValueError, match=r"got Matern52\(.*; use trigonometric_features"):
        ik.sketches.positive_features(jax.random.key(0), kernel, num_features=2, width=4)
    with pytest.raises(ValueError, match="computed at landmarks by an MLP, got Matern52"):
        kernel.nystrom_features(X)
    mixture = ik.Mixture((kernel, ik.Gaussian()), np.ones(2, np.float32))
    with pytest.raises(ValueError, match="nadaraya_watson"):
        ik.constructions.nadaraya_watson(mixture, num_features=2)


def test_it_is_tried_only_by_name():
    usual = ("linear", "exponential", "gaussian")
    assert taken("chebyshev", usual=True) == usual
    assert DepthConfig(lengthscale=1.0).kernel == "gaussian"
    assert DepthConfig(kernel="matern12").kernels == ("matern12",)
    assert DepthConfig().kernels == IdentifyOptions().kernels == usual
