"""The estimator beside those of scikit-learn that compute the same, and scikit-learn's checks.

Then its numbers: units, coverage, equivariance, sample weights and more digits.
"""

import pickle
import subprocess
import sys

import jax
import numpy as np
import pytest
from helpers import left_out_losses, often
from sklearn import datasets
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import icl_krr as ik
from icl_krr import InContextRegressor
from icl_krr.kernels._weighted import weighted
from icl_krr.tabular import DepthConfig, _model_selection, choose_kernels

DRAWN = np.random.default_rng(0)
X, NEW = DRAWN.normal(size=(24, 3)), DRAWN.normal(size=(9, 3))
Y = X[:, 0] ** 2 + np.sin(X[:, 1])
TWO = np.stack([X[:, 0] ** 2, 500 + 100 * np.sin(X[:, 1])], axis=1)
WEIGHT = np.exp(DRAWN.normal(size=24))
GIVEN = {"ridge": 0.5, "lengthscale": 1.5}


def checks():
    """Those of the default solver are slow, even on the kernel that compiles fastest."""
    smoother = InContextRegressor(solver="nadaraya_watson", lengthscale=1.0)
    for regressor in (smoother, InContextRegressor(kernel="linear", ridge=0.5)):
        marks = () if regressor is smoother else pytest.mark.slow
        for estimator, check in estimator_checks_generator(regressor):
            name = f"{estimator.solver}-{check.func.__name__}"
            yield pytest.param(estimator, check, id=name, marks=marks)


@pytest.mark.parametrize(("estimator", "check"), [*checks()])
def test_a_check_of_scikit_learn(estimator, check):
    with jax.enable_x64("sample_weight_equivalence" in check.func.__name__):
        check(estimator)


def process(noise=GIVEN["ridge"], **options):
    kernel = RBF(GIVEN["lengthscale"], "fixed")
    return GaussianProcessRegressor(kernel, alpha=noise, optimizer=None, **options)


def both(regressor, new=NEW):
    return np.stack(regressor.predict(new, return_std=True))


@pytest.mark.parametrize("normalize_y", [False, True])
def test_mean_and_standard_deviation_are_those_of_a_gaussian_process(normalize_y):
    ours = InContextRegressor(**GIVEN, normalize_y=normalize_y, amplitude=1.0).fit(X, TWO)
    mean, std = process(normalize_y=normalize_y).fit(X, TWO).predict(NEW, return_std=True)
    std = std / TWO.std(axis=0) if normalize_y else std  # its amplitude is the variance of y
    predictions = ours.predict(NEW, return_std=True, noise=False)
    assert {array.dtype for array in predictions} == {np.dtype(float)}
    for array, expected in zip(predictions, (mean, std), strict=True):
        assert array.shape == expected.shape == TWO[:9].shape
        error = abs(array - expected).max(axis=0)
        assert np.all(error < 1e-4 * TWO.std(axis=0).max(initial=1)), error
    np.testing.assert_allclose(ours.predict(NEW), predictions[0], rtol=1e-5)


def test_a_scaler_of_y_around_the_estimator_is_normalize_y():
    around = TransformedTargetRegressor(InContextRegressor(**GIVEN), transformer=StandardScaler())
    inside = InContextRegressor(**GIVEN, normalize_y=True)
    predictions = [regressor.fit(X, TWO).predict(NEW) for regressor in (around, inside)]
    np.testing.assert_allclose(*predictions, rtol=1e-5)


@pytest.mark.slow
def test_leave_one_out_chooses_what_it_chooses_for_the_command():
    chosen = InContextRegressor().fit(X, TWO)
    kernel, *_ = choose_kernels(chosen.task_, DepthConfig(kernel="gaussian"))
    assert chosen.kernel_.lengthscale == kernel.lengthscale != 1
    assert chosen.ridge_ == _model_selection.choose_ridge(kernel, chosen.task_)
    assert (chosen.steps_, chosen.n_features_in_, bool(chosen.status_.ok)) == (256, 3, True)
    fixed = InContextRegressor(lengthscale=2.0).fit(X, TWO)
    assert fixed.kernel_.lengthscale == 2.0
    among = InContextRegressor(kernel=None).fit(X, TWO)
    with jax.enable_x64(True):  # as the estimator does: of float32, fewer ridges are tried
        kernel, _, errors = choose_kernels(ik.Task(X, among.task_.y, X), DepthConfig())
    assert among.kernel_.temperature == kernel.temperature
    assert len(errors) == 3
    assert among.steps_ in (64, 256)
    assert bool(among.status_.ok)
    assert fixed.ridge_ == _model_selection.choose_ridge(ik.Gaussian(2.0), chosen.task_)


@pytest.mark.parametrize("solver", ["conjugate_gradient", "nadaraya_watson"])
def test_a_kernel_is_given_by_its_name_or_as_an_object(solver):
    named = InContextRegressor(solver=solver, kernel="exponential", ridge=0.5, temperature=4.0)
    other = clone(named).set_params(kernel=ik.Exponential(4.0), temperature=None)
    predictions = [regressor.fit(X, TWO).predict(NEW) for regressor in (named, other)]
    np.testing.assert_allclose(*predictions, rtol=1e-5)
    assert other.kernel_ is other.kernel
    assert (other.ridge_ is None) == (other.status_ is None) == (solver == "nadaraya_watson")


def test_what_has_not_converged_is_told():
    short = InContextRegressor(**GIVEN, steps=1)
    with pytest.warns(ConvergenceWarning, match="^predictions: not converged: error .* after 1 s"):
        assert not short.fit(X, TWO).status_.ok
    with pytest.warns(ConvergenceWarning, match="predictions differ from exact regression by more"):
        short.predict(NEW, return_std=True)


def test_a_copy_is_the_same_regressor():
    regressor = InContextRegressor(kernel=ik.Gaussian(1.5), ridge=0.5, normalize_y=True)
    fitted = clone(regressor).fit(X, TWO)
    again = pickle.loads(pickle.dumps(fitted))
    assert again.status_.advice() == fitted.status_.advice()
    np.testing.assert_array_equal(both(again), both(fitted))
    with pytest.raises(NotFittedError):
        clone(fitted).predict(NEW)


def test_a_program_serves_other_values_and_about_as_many_queries(programs):
    InContextRegressor(**GIVEN).fit(X, Y).predict(NEW, return_std=True)
    programs.clear()
    for ridge, lengthscale, queries in ((0.3, 2, NEW[:1]), (2, 0.7, np.tile(NEW, (3, 1)))):
        regressor = InContextRegressor(ridge=ridge, lengthscale=lengthscale, normalize_y=True)
        mean, std = regressor.fit(X[::-1], TWO[:, 1]).predict(queries, return_std=True)
        assert len(mean) == len(std) == len(queries)
    assert programs == []
    InContextRegressor(**GIVEN).fit(X[:1], Y[:1])  # one row is enough
    assert programs


NAMED = {"kernel": ik.Gaussian()}
BAD_FITS = {
    "lengthscale must be None if kernel is an": (NAMED | {"lengthscale": 2.0}, X, None),
    "kernel must have a feature map": (NAMED | {"solver": "newton_schulz"}, X, None),
    "kernel must be 'linear' or 'poly.* for solver 'newton": ({"solver": "newton_schulz"}, X, None),
    "normalize_y must be True or False, got 1": ({"normalize_y": 1}, X, None),
    "kernel must be one of .*; write 'gaussian'$": ({"kernel": ik.Gaussian}, X, None),
    "keyword of InContextRegressor must be .*; did you mean 'ridge'": ({"lam": 0.1}, X, None),
    "lengthscale and ridge must be given for one support": ({}, X[:1], None),
    "ridge must be given for one support": ({"lengthscale": 1.0}, X[:1], None),
    r"sample_weight must be >= 0, got -.* at index \[0\]": (GIVEN, X, -WEIGHT),
    "sample_weight must be finite, got nan": (GIVEN, X, np.full(24, np.nan)),
    r"sample_weight must be \[n\] with n = 24, the number of rows of X": (GIVEN, X, WEIGHT[:3]),
    "sample_weight must be > 0 for at least one row of X, got zero": (GIVEN, X, 0 * WEIGHT),
    "sample_weight must be None for": (GIVEN | {"solver": "preconditioned_chebyshev"}, X, WEIGHT),
}


@pytest.mark.parametrize("message", BAD_FITS)
def test_what_cannot_be_fitted_is_told(message):
    options, x, weight = BAD_FITS[message]
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        InContextRegressor(**options).fit(x, Y[: len(x)], weight)


def test_a_solver_without_a_posterior_is_told():
    smoother = InContextRegressor(solver="nadaraya_watson", lengthscale=1.0).fit(X, TWO)
    with pytest.raises(ValueError, match="return_std must be False for solver 'nad"):
        smoother.predict(NEW, return_std=True)


def test_every_target_has_a_standard_deviation_in_its_units():
    fitted = InContextRegressor(**GIVEN).fit(X, np.stack([Y, 1e4 * Y], axis=1))
    mean, std = both(fitted)
    np.testing.assert_allclose(mean[:, 1], 1e4 * mean[:, 0], rtol=1e-4)
    np.testing.assert_allclose(std[:, 1], 1e4 * std[:, 0], rtol=1e-9)
    np.testing.assert_allclose(fitted.amplitude_[1], 1e8 * fitted.amplitude_[0])


def table(x, y, seed=0):
    """124 rows as supports and up to 128 queries, with columns of zeros up to 30."""
    order = np.random.default_rng(seed).permutation(len(y))[:252]
    x, y = x[order], y[order]
    x = np.pad((x - x[:124].mean(0)) / x[:124].std(0), ((0, 0), (0, 30 - x.shape[1])))
    return x[:124], y[:124], x[124:], y[124:]


TABLES = {
    "diabetes": lambda: datasets.load_diabetes(return_X_y=True),
    "Friedman 1": lambda: datasets.make_friedman1(250, noise=1.0, random_state=0),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "Friedman 2": lambda: datasets.make_friedman2(250, noise=50.0, random_state=0),
    "breast cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.slow
@pytest.mark.parametrize("normalize_y", [False, True])
@pytest.mark.parametrize("count", [3, 5])
def test_intervals_cover(count, normalize_y):
    shares = {}
    for name in [*TABLES][:count]:
        x, y, new, targets = table(*TABLES[name]())
        mean, std = both(InContextRegressor(normalize_y=normalize_y).fit(x, y), new)
        shares[name] = np.mean(np.abs(mean - targets) < 1.96 * std)
        assert np.mean(std) < 1.1 * np.std(y)
    assert min(shares.values()) > 0.88, shares
    assert 0.92 < np.mean([*shares.values()]) < 0.98, shares


def test_a_given_amplitude_is_that_of_a_gaussian_process():
    _, std = process().fit(X, Y).predict(NEW, return_std=True)
    fitted = InContextRegressor(**GIVEN, amplitude=4.0).fit(X, 1000 * Y)
    of_f = fitted.predict(NEW, return_std=True, noise=False)[1]
    np.testing.assert_allclose(of_f, 2 * std)
    np.testing.assert_allclose(both(fitted)[1], 2 * np.sqrt(std**2 + 0.5))
    assert fitted.amplitude_ == pytest.approx(4)


def test_the_amplitude_is_the_likeliest():
    fitted = InContextRegressor(**GIVEN).fit(X, Y)
    evidence = [  # of the process with this amplitude: for y over its root
        process().fit(X, Y / root).log_marginal_likelihood_value_ - len(X) * np.log(root)
        for root in np.sqrt(fitted.amplitude_) * np.array([0.9, 1.0, 1.1])
    ]
    assert np.argmax(evidence) == 1


@pytest.mark.parametrize("options", [GIVEN, {"normalize_y": True}])
def test_predictions_follow_the_units_of_y(options):
    regressor = InContextRegressor(**options).fit(X, Y)
    expected, ridge, width = both(regressor), regressor.ridge_, regressor.kernel_.lengthscale
    amplitude = regressor.amplitude_
    for c in (1e-30, -1e-9, 1e12, 1e30):
        predictions = both(regressor.fit(X, c * Y)) / np.array([[c], [abs(c)]])
        np.testing.assert_allclose(predictions, expected, rtol=2e-5, atol=2e-6)
        assert (regressor.ridge_, regressor.kernel_.lengthscale) == (ridge, width)
        assert regressor.amplitude_ == pytest.approx(amplitude * c**2, rel=1e-6)
    assert not both(regressor.fit(X, 0 * Y)).any()


def test_a_constant_y_is_predicted_without_doubt():
    regressor = InContextRegressor(normalize_y=True)
    shifted = both(regressor.fit(X, Y + 1000)) - np.array([[1000.0], [0.0]])
    np.testing.assert_allclose(both(regressor.fit(X, Y)), shifted, rtol=1e-5, atol=1e-5)
    mean, std = both(regressor.fit(X, np.full(len(X), 0.1)))
    np.testing.assert_array_equal(mean, np.full(len(NEW), 0.1))
    assert not std.any()


def test_predictions_do_not_depend_on_the_origin_of_x_or_on_the_order():
    regressor = InContextRegressor(normalize_y=True)
    expected = both(regressor.fit(X, Y))
    origin = np.array([1.7e9, -3e7, 5.0])  # seconds since 1970, and more
    predictions = both(regressor.fit(X + origin, Y), NEW + origin)
    np.testing.assert_allclose(predictions, expected, atol=1e-3)
    order, columns = np.random.default_rng(1).permutation(len(X)), [2, 0, 1]
    predictions = both(regressor.fit(X[order][:, columns], Y[order]), NEW[:, columns])
    np.testing.assert_allclose(predictions, expected, atol=1e-3)


KERNELS = {
    "gaussian": ({"lengthscale": 1.5}, {"kernel": "rbf", "gamma": 1 / 4.5}),
    "linear": ({}, {"kernel": "linear"}),
    "exponential": ({"temperature": 2.0}, {"kernel": lambda a, b: np.exp(a @ b / 2)}),
}
RUNS = {
    "gaussian": "jacobi_conjugate_gradient",
    "exponential": "conjugate_gradient",
    "linear": "nystrom_conjugate_gradient",
}


@often(("kernel", "solver"), [("exponential", "conjugate_gradient")], RUNS.items())
def test_weights_are_those_of_kernel_ridge(kernel, solver, x64):
    regressor, its = KERNELS[kernel]
    weight = np.where(np.arange(24) == 3, 0, WEIGHT)
    theirs = KernelRidge(**its, alpha=0.5).fit(X, Y, weight)
    ours = InContextRegressor(kernel=kernel, solver=solver, ridge=0.5, **regressor)
    np.testing.assert_allclose(ours.fit(X, Y, weight).predict(NEW), theirs.predict(NEW), rtol=1e-8)
    assert type(ours.kernel_).__name__.lower() == kernel
    assert ours.status_.ok


def test_weights_are_variances_of_the_noise():
    """A Gaussian process of scikit-learn takes a variance for each support."""
    theirs = process(0.5 / WEIGHT).fit(X, Y)
    _, std = theirs.predict(NEW, return_std=True)
    ours = InContextRegressor(**GIVEN, amplitude=1.0).fit(X, Y, WEIGHT)
    np.testing.assert_allclose(ours.predict(NEW, return_std=True, noise=False)[1], std)
    maximise_marginal_likelihood = InContextRegressor(**GIVEN).fit(X, Y, WEIGHT).amplitude_
    assert maximise_marginal_likelihood == pytest.approx(np.mean(Y * theirs.alpha_))


def test_the_mean_that_is_taken_out_of_y_has_weights():
    mean = np.average(Y, weights=WEIGHT)
    theirs = KernelRidge(**KERNELS["gaussian"][1], alpha=0.5).fit(X, Y - mean, WEIGHT)
    ours = InContextRegressor(**GIVEN, normalize_y=True).fit(X, Y, WEIGHT)
    np.testing.assert_allclose(ours.predict(NEW), mean + theirs.predict(NEW), rtol=1e-4)


def test_leave_one_out_weights_the_squares(x64):
    """Directly: leave a support out, solve with a free constant, and sum w e^2."""
    kernel, ridge, n = ik.Gaussian(1.5), 0.3, len(X)
    total = 0.0
    for out in range(n):
        others = np.arange(n) != out
        system = np.ones((n, n))
        gram = np.asarray(kernel(X[others], X[others]))
        system[:-1, :-1] = gram + ridge * np.diag(1 / WEIGHT[others])
        system[-1, -1] = 0
        *alpha, constant = np.linalg.solve(system, [*Y[others], 0])
        error = Y[out] - constant - np.asarray(kernel(X[[out]], X[others]))[0] @ alpha
        total += WEIGHT[out] * error**2
    points = np.column_stack([X, np.log(WEIGHT) / 2])
    task = ik.Task(points, np.sqrt(WEIGHT) * Y, points)
    losses = left_out_losses(weighted(kernel, 3), task, np.array([ridge]), centred=True)
    np.testing.assert_allclose(losses, total)


def test_weights_of_a_smoother_are_those_of_its_means():
    k = WEIGHT * RBF(1.0)(NEW, X)
    smoother = InContextRegressor(solver="nadaraya_watson", lengthscale=1.0).fit(X, Y, WEIGHT)
    np.testing.assert_allclose(smoother.predict(NEW), k @ Y / k.sum(1), rtol=1e-4)
    chosen = InContextRegressor(solver="nadaraya_watson")
    ones = chosen.fit(X, Y, np.full(24, 7.0)).kernel_.lengthscale
    assert ones == chosen.fit(X, Y).kernel_.lengthscale


def test_what_has_too_few_digits_is_computed_in_float64():
    x = np.pad(np.linspace(0, 1, 24)[:, None], ((0, 0), (0, 2)))
    y, new = np.sin(5 * x[:, 0]), x + np.array([0.01, 0, 0])
    wide = InContextRegressor(ridge=1e-7, lengthscale=0.3).fit(x, y)
    assert wide.status_.error.dtype == np.float64
    assert not jax.config.jax_enable_x64
    theirs = KernelRidge(kernel="rbf", gamma=1 / 0.18, alpha=1e-7).fit(x, y)
    predictions = both(wide, new)
    assert np.all(np.abs(predictions[0] - theirs.predict(new)) < 0.1 * predictions[1])
    assert np.all(predictions[1] < 1e-3)
    np.testing.assert_array_equal(both(pickle.loads(pickle.dumps(wide)), new), predictions)
    with pytest.warns(ConvergenceWarning, match="^predictions: not "):
        wide.set_params(ridge=1e-25).fit(x, y)
    with pytest.warns(ConvergenceWarning, match="^standard deviations: nothing"):
        assert np.isnan(both(wide, x)[1]).all()


def test_a_model_of_landmarks_runs_with_weights(x64):
    """Its features, k(x, x) of the queries and its variance have the factors of the weights."""
    few = slice(6)
    points = np.column_stack([X, np.log(WEIGHT) / 2])[few]
    task = ik.Task(points, (np.sqrt(WEIGHT) * Y)[few], np.pad(NEW, ((0, 0), (0, 1))))
    whole = weighted(ik.Gaussian(1.5), 3)
    model = ik.constructions.prefix_posterior(
        ik.kernels.Features(ik.sketches.nystrom_features(whole, task.x)),
        num_features=4,
        ridge=0.5,
        steps=8,
        approximates=whole,
    )
    predictive = ik.predictive(model, task)
    expected = ik.solvers.posterior(whole, task, ridge=0.5)
    np.testing.assert_allclose(predictive.mean, expected.mean, rtol=1e-8)
    np.testing.assert_allclose(predictive.variance, expected.variance + 0.5, rtol=1e-8)


def test_the_library_does_not_need_scikit_learn():
    code = (
        "import importlib, sys, icl_krr\n"
        "assert {'sklearn', 'jax'}.isdisjoint(sys.modules)\n"
        "sys.modules['sklearn'] = None\n"
        "importlib.reload(icl_krr)\n"
        "assert 'InContextRegressor' not in icl_krr.__all__\n"
        "icl_krr.InContextRegressor"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stderr.splitlines()[-1] == (
        "ImportError: icl_krr.InContextRegressor needs scikit-learn 1.6 or later; install it with "
        "python -m pip install --upgrade scikit-learn"
    )
