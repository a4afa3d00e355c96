"""The estimator beside those of scikit-learn that compute the same, and scikit-learn's checks."""

import pickle
import subprocess
import sys

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import icl_krr as ik
from icl_krr import InContextRegressor
from icl_krr.experiments.depth_config import DepthConfig, choose_kernels
from icl_krr.experiments.shared import model_selection

DRAWN = np.random.default_rng(0)
X, NEW = DRAWN.normal(size=(24, 3)), DRAWN.normal(size=(9, 3))
Y = np.stack([X[:, 0] ** 2, 500 + 100 * np.sin(X[:, 1])], axis=1)
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


def searches():
    """A grid search over lengthscales and ridges with the construction, and with KernelRidge."""
    ridges, widths = [0.1, 2.0], [1.0, 2.0]
    ours = {"incontextregressor__lengthscale": widths, "incontextregressor__ridge": ridges}
    gammas = [1 / (2 * width**2) for width in widths]
    theirs = {"kernelridge__alpha": ridges, "kernelridge__gamma": gammas}
    for regressor, grid in (InContextRegressor(), ours), (KernelRidge(kernel="rbf"), theirs):
        pipeline = make_pipeline(StandardScaler(), regressor)
        yield GridSearchCV(pipeline, grid, cv=2).fit(X, Y[:, 0])


@pytest.mark.slow
def test_a_grid_search_finds_what_kernel_ridge_finds():
    ours, theirs = searches()
    scores = [search.cv_results_["mean_test_score"] for search in (ours, theirs)]
    assert np.ptp(scores[1]) > 0.1
    np.testing.assert_allclose(scores[0].reshape(2, 2), scores[1].reshape(2, 2).T, atol=1e-4)
    best = ours.best_params_["incontextregressor__ridge"]
    assert best == theirs.best_params_["kernelridge__alpha"]
    np.testing.assert_allclose(ours.predict(NEW), theirs.predict(NEW), atol=1e-4)


def process(**options):
    kernel = RBF(GIVEN["lengthscale"], "fixed")
    return GaussianProcessRegressor(kernel, alpha=GIVEN["ridge"], optimizer=None, **options)


@pytest.mark.parametrize("normalize_y", [False, True])
@pytest.mark.parametrize("y", [Y[:, 0], Y], ids=lambda y: str(y.shape))
def test_mean_and_standard_deviation_are_those_of_a_gaussian_process(y, normalize_y):
    ours = InContextRegressor(**GIVEN, normalize_y=normalize_y, amplitude=1.0).fit(X, y)
    mean, std = process(normalize_y=normalize_y).fit(X, y).predict(NEW, return_std=True)
    std = std / y.std(axis=0) if normalize_y else std  # its amplitude is the variance of y
    found = ours.predict(NEW, return_std=True, noise=False)
    assert {array.dtype for array in found} == {np.dtype(float)}
    assert {array.shape for array in found} == {(len(NEW), *y.shape[1:])}
    std = std if std.shape == y[:9].shape else np.stack([std, std], axis=1)
    for array, wanted in zip(found, (mean, std), strict=True):
        error = abs(array - wanted.reshape(array.shape)).max(axis=0)
        assert np.all(error < 1e-4 * y.std(axis=0).max(initial=1)), error
    np.testing.assert_allclose(ours.predict(NEW), found[0], rtol=1e-5)


def test_a_scaler_of_y_around_the_estimator_is_normalize_y():
    around = TransformedTargetRegressor(InContextRegressor(**GIVEN), transformer=StandardScaler())
    inside = InContextRegressor(**GIVEN, normalize_y=True)
    predictions = [regressor.fit(X, Y).predict(NEW) for regressor in (around, inside)]
    np.testing.assert_allclose(*predictions, rtol=1e-5)
    constant = np.full(len(X), 0.1)
    np.testing.assert_allclose(inside.fit(X, constant).predict(NEW), 0.1)


@pytest.mark.slow
def test_leave_one_out_chooses_what_it_chooses_for_the_command():
    chosen = InContextRegressor().fit(X, Y)
    kernel, *_ = choose_kernels(chosen.task_, DepthConfig(kernel="gaussian"))
    assert chosen.kernel_.lengthscale == kernel.lengthscale != 1
    assert chosen.ridge_ == model_selection.choose_ridge(kernel, chosen.task_)
    assert (chosen.steps_, chosen.n_features_in_, bool(chosen.status_.ok)) == (64, 3, True)
    given = InContextRegressor(lengthscale=2.0).fit(X, Y)
    assert given.kernel_.lengthscale == 2.0
    among = InContextRegressor(kernel=None).fit(X, Y)
    task = ik.Task(X, among.task_.y.astype("f4"), X)
    kernel, _, errors = choose_kernels(task, DepthConfig())
    assert among.kernel_.temperature == kernel.temperature
    assert len(errors) == 3
    assert among.steps_ in (64, 256)
    assert bool(among.status_.ok)
    assert given.ridge_ == model_selection.choose_ridge(ik.Gaussian(2.0), chosen.task_)


@pytest.mark.parametrize("solver", ["conjugate_gradient", "nadaraya_watson"])
def test_a_kernel_is_given_by_its_name_or_as_an_object(solver):
    named = InContextRegressor(solver=solver, kernel="exponential", ridge=0.5, temperature=4.0)
    given = clone(named).set_params(kernel=ik.Exponential(4.0), temperature=None)
    predictions = [regressor.fit(X, Y).predict(NEW) for regressor in (named, given)]
    np.testing.assert_allclose(*predictions, rtol=1e-5)
    assert given.kernel_ is given.kernel
    assert (given.ridge_ is None) == (given.status_ is None) == (solver == "nadaraya_watson")


def test_what_has_not_converged_is_told():
    short = InContextRegressor(**GIVEN, steps=1)
    with pytest.warns(ConvergenceWarning, match="^predictions: not converged: gap .* after 1 step"):
        assert not short.fit(X, Y).status_.ok
    with pytest.warns(ConvergenceWarning, match="predictions differ from exact regression by more"):
        short.predict(NEW, return_std=True)


def test_a_copy_is_the_same_regressor():
    regressor = InContextRegressor(kernel=ik.Gaussian(1.5), ridge=0.5, normalize_y=True)
    fitted = clone(regressor).fit(X, Y)
    again = pickle.loads(pickle.dumps(fitted))
    assert again.status_.advice() == fitted.status_.advice()
    for found, wanted in zip(
        again.predict(NEW, return_std=True), fitted.predict(NEW, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)
    with pytest.raises(NotFittedError):
        clone(fitted).predict(NEW)


def test_a_program_serves_other_values_and_about_as_many_queries(programs):
    InContextRegressor(**GIVEN).fit(X, Y[:, 0]).predict(NEW, return_std=True)
    programs.clear()
    for ridge, lengthscale, queries in ((0.3, 2, NEW[:1]), (2, 0.7, np.tile(NEW, (3, 1)))):
        regressor = InContextRegressor(ridge=ridge, lengthscale=lengthscale, normalize_y=True)
        mean, std = regressor.fit(X[::-1], Y[:, 1]).predict(queries, return_std=True)
        assert len(mean) == len(std) == len(queries)
    assert programs == []
    regressor.fit(X[:-1], Y[:-1, 1])
    assert programs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": ik.Gaussian(), "lengthscale": 2.0}, "lengthscale must be None if kernel is an"),
        ({"kernel": ik.Gaussian(), "solver": "newton_schulz"}, "kernel must have a feature map"),
        ({"solver": "newton_schulz"}, "kernel must be 'linear' or 'polynomial' for solver 'newton"),
        ({"normalize_y": 1}, "normalize_y must be True or False, got 1"),
        ({"kernel": ik.Gaussian}, r"kernel must be one of .*; write 'gaussian'$"),
        ({"lam": 0.1}, "keyword of InContextRegressor must be .*; did you mean 'ridge'"),
    ],
)
def test_a_bad_parameter_is_told_in_fit(options, message):
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        InContextRegressor(**options).fit(X, Y)


def test_one_row_cannot_be_left_out():
    for given, names in (({}, "lengthscale and ridge"), ({"lengthscale": 1.0}, "ridge")):
        with pytest.raises(ValueError, match=f"^{names} must be given for one support"):
            InContextRegressor(**given).fit(X[:1], Y[:1])
    InContextRegressor(lengthscale=1.0, ridge=0.1).fit(X[:1], Y[:1])


def test_a_solver_without_a_posterior_is_told():
    smoother = InContextRegressor(solver="nadaraya_watson", lengthscale=1.0).fit(X, Y)
    with pytest.raises(ValueError, match="return_std must be False for solver 'nad"):
        smoother.predict(NEW, return_std=True)


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
