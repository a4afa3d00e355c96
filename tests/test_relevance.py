"""A bandwidth for each feature, beside the Gaussian process of scikit-learn that has them, too."""

import csv
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import kernel_matrix
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import icl_krr as ik
from icl_krr import InContextRegressor, cli
from icl_krr.kernels._weighted import weighted
from icl_krr.tabular import DepthConfig, _relevance

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(60, 4))
Y = 3 * np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=60)
MEAN = Y.mean()
Y -= MEAN
ASKED = RNG.uniform(size=(200, 4))
TRUTH = 3 * np.sin(6 * ASKED[:, 0]) + ASKED[:, 1] - MEAN
GAUSSIAN, EXPONENTIAL = ik.Gaussian(), ik.Exponential()
BOUNDS = {"length_scale_bounds": (1e-3, 1e4)}


@pytest.fixture(scope="module")
def fitted():
    return InContextRegressor(bandwidths="each", normalize_y=True, steps=64).fit(X, Y)


@pytest.mark.parametrize(("kernel", "outputs"), [(GAUSSIAN, 1), (EXPONENTIAL, 2)])
def test_the_loss_is_the_likelihood_at_the_likeliest_amplitude(x64, kernel, outputs):
    task = ik.Task(X, np.stack([Y, 50 * X[:, 2] ** 2], axis=1)[:, :outputs], X)
    free = np.append(RNG.normal(size=4), np.log(0.3))

    def likelihood(free, scale):
        factored = _relevance.with_factors(kernel, jnp.exp(free[:-1]))
        unit = jnp.mean(factored.diagonal(X))
        scaled = task.replace(y=task.y / jnp.sqrt(scale)[None])
        value = ik.solvers.log_marginal_likelihood(factored, scaled, ridge=unit * jnp.exp(free[-1]))
        return -(value - 30 * jnp.sum(jnp.log(scale))) / task.y.size

    K = kernel_matrix(_relevance.with_factors(kernel, np.exp(free[:-1])), X, X)
    A = K + 0.3 * np.mean(np.diag(K)) * np.eye(60)
    scale = np.diag(task.y.T @ np.linalg.solve(A, task.y)) / 60
    value, slope = _relevance.negative_log_marginal_likelihood(free, kernel, task)
    both = jax.jit(jax.value_and_grad(likelihood))
    np.testing.assert_allclose(value, both(free, scale)[0], rtol=1e-10)
    np.testing.assert_allclose(slope, both(free, scale)[1], rtol=1e-8)
    assert all(both(free, other * scale)[0] > value for other in (0.9, 1.1))


def test_it_finds_what_scikit_learn_finds(fitted):
    kernel = ConstantKernel() * RBF(np.ones(4), **BOUNDS) + WhiteKernel()
    theirs = GaussianProcessRegressor(kernel, normalize_y=True).fit(X, Y)
    mean, std = theirs.predict(ASKED, return_std=True)
    ours, width = fitted.predict(ASKED, return_std=True)
    np.testing.assert_allclose(ours, mean, atol=0.02)
    np.testing.assert_allclose(width, std, rtol=0.05)
    lengths = theirs.kernel_.k1.k2.length_scale[:2]
    np.testing.assert_allclose(fitted.bandwidths_[:2], lengths, rtol=0.05)
    one = ConstantKernel() * RBF(1.0) + WhiteKernel()
    one = GaussianProcessRegressor(one, normalize_y=True).fit(X, Y).predict(ASKED)
    errors = [np.sqrt(np.mean((prediction - TRUTH) ** 2)) for prediction in (ours, one)]
    assert errors[0] < 0.5 * errors[1]


def test_the_importance_is_the_share_in_the_slopes(fitted):
    mean, step = fitted.predict, 1e-3
    slopes = [(mean(X + e) - mean(X - e)) / (2 * step) for e in step * np.eye(4)]
    shares = np.sum(np.square(slopes), axis=1) * X.var(axis=0)
    importances = fitted.feature_importances_
    np.testing.assert_allclose(importances, shares / shares.sum(), atol=1e-3, rtol=0.02)
    assert importances[:2].sum() > 0.99
    assert importances.dtype == np.float64


def test_equal_weights_and_units_of_features_do_not_matter(x64):
    task, kernel = ik.Task(X, Y, X), ik.Gaussian(0.5)
    fit = _relevance.maximise_marginal_likelihood(kernel, task, 0.01)
    heavy = ik.Task(np.pad(X, ((0, 0), (0, 1))), Y, np.pad(X, ((0, 0), (0, 1))))
    same = _relevance.maximise_marginal_likelihood(weighted(kernel, 4), heavy, 0.01)
    units = np.array([1.0, 1e3, 1e-3, 1.0])
    other = _relevance.maximise_marginal_likelihood(kernel, task.replace(x=X * units), 0.01)
    widths = _relevance.bandwidths_of(fit.kernel, 4)
    np.testing.assert_allclose(_relevance.bandwidths_of(same.kernel, 4), widths, rtol=1e-3)
    assert other.evidence == pytest.approx(fit.evidence, abs=1e-3)
    scaled = _relevance.bandwidths_of(other.kernel, 4)
    np.testing.assert_allclose(scaled[:2], (widths * units)[:2], rtol=0.05)


@pytest.mark.parametrize("offset", [0.0, 3.0])
@pytest.mark.parametrize("count", [4, 14])
def test_an_exponential_kernel_is_never_less_likely_than_its_start(x64, offset, count):
    """Its values, and so its ridges, depend on the origin and grow with the number of features."""
    x = np.column_stack([X, RNG.uniform(size=(60, 10))])[:, :count]
    task = ik.Task((x - x.mean(axis=0)) / x.std(axis=0) + offset, Y, x)
    kernel = ik.Exponential(float(count * (1 + offset**2)))
    fit = _relevance.maximise_marginal_likelihood(kernel, task, 0.1)
    start = ik.solvers.exact(kernel, task, ridge=0.1)
    before = np.linalg.slogdet(kernel(task.x, task.x) + 0.1 * np.eye(60))[1] / 120
    before += (np.log(2 * np.pi * np.mean(Y * start.alpha)) + 1) / 2
    assert fit.evidence >= -before
    errors = ik.solvers.leave_one_out(fit.kernel, task, ridge=fit.ridge)
    assert np.std(errors) < 0.7 * np.std(Y)


def test_a_given_ridge_stays_and_a_constant_y_is_no_problem(x64):
    task = ik.Task(X, Y, X)
    fit = _relevance.maximise_marginal_likelihood(ik.Gaussian(), task, 0.05, fixed_ridge=True)
    assert fit.ridge == 0.05
    flat = _relevance.maximise_marginal_likelihood(ik.Gaussian(2.0), task.replace(y=0 * Y), 0.05)
    assert _relevance.bandwidths_of(flat.kernel, 4).tolist() == [2.0] * 4
    assert _relevance.importance(flat.kernel, task.replace(y=0 * Y), 0.05).tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengthscale": 1.0}, "lengthscale must be None if bandwidths is 'each', which"),
        ({"kernel": "linear"}, "bandwidths must be 'one' for kernel 'linear', which has no"),
        ({"solver": "newton_schulz"}, "bandwidths must be 'one' for solver 'newton_schulz'"),
    ],
)
def test_what_has_no_bandwidth_for_each_feature_is_told(options, message):
    assert DepthConfig(bandwidths="each").kernels == ("exponential", "gaussian")
    with pytest.raises(ValueError, match=f"^{message}"):
        DepthConfig(**{"bandwidths": "each"} | options)


def test_the_command_prints_the_bandwidth_and_the_importance_of_each_feature(tmp_path, capsys):
    table, out = tmp_path / "table.csv", tmp_path / "out"
    rows = np.column_stack([X, Y])
    np.savetxt(table, rows, header="a,b,c,d,y", delimiter=",", comments="")
    argv = ["predict", str(table), "--target", "y", "--bandwidths", "each", "--steps", "40"]
    argv += ["--kernel", "gaussian"]
    assert cli.main([*argv, "--out", str(out)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "leave-one-out RMSE with one lengthscale: " in printed
    features = list(csv.DictReader((out / "features.csv").read_text().splitlines()))
    assert [row["feature"] for row in features][:2] == ["a", "b"]
    meta = json.loads((out / "meta.json").read_text())
    assert sum(row["importance"] for row in meta["features"]) == pytest.approx(1)
    each = meta["tasks"]["table.csv"]["each"]["leave_one_out"]
    assert each["each"] < each["one"]


@pytest.mark.extras
def test_tensors_give_tensors(fitted):
    torch = pytest.importorskip("torch")
    mean, std = fitted.predict(torch.tensor(ASKED[:3], dtype=torch.float32), return_std=True)
    assert mean.dtype == std.dtype == torch.float32
    np.testing.assert_allclose(mean.numpy(), fitted.predict(ASKED[:3]), atol=1e-3)
