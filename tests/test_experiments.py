"""The depth experiment: its rows, its baselines, and how it chooses hyperparameters."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import draw, left_out_losses, often, relative, ridge_grid, solve, stacked
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import LeaveOneOut, cross_val_predict

import icl_krr as ik
from icl_krr import catalogue
from icl_krr._core.pytree import pytree_dataclass
from icl_krr.cli._depth_tables import describe
from icl_krr.experiments import FitConfig
from icl_krr.experiments._hyperparameters import builder
from icl_krr.kernels import make_kernel
from icl_krr.tabular import _build, _depth, _depth_config, _model_selection, solver_keywords
from icl_krr.tasks import _batches
from icl_krr.tasks._batches import chunk_size
from icl_krr.training import held_out


def test_the_ridge_is_the_best_of_its_grid_by_leave_one_out(x64):
    task = draw(0, p=3, n=15, noise=0.5)
    x, y = np.asarray(task.x), np.asarray(task.y)
    grid = np.trace(x @ x.T) / 15 * np.logspace(-3, 3, 13)
    models = [KernelRidge(alpha=ridge, kernel="linear") for ridge in grid]
    left = [cross_val_predict(model, x, y, cv=LeaveOneOut()) for model in models]
    losses = np.sum((np.array(left) - y) ** 2, axis=1)
    assert 0 < np.argmin(losses) < 12
    assert np.isclose(_model_selection.choose_ridge(ik.Linear(), task), grid[np.argmin(losses)])


# with a rate and without, in both forms of alpha, and what does not iterate
OF_EACH_SORT = {
    "conjugate_gradient": "gaussian",
    "newton_schulz": "polynomial",
    "nadaraya_watson": "gaussian",
}


@pytest.mark.parametrize("family", [ik.Exponential, ik.Gaussian])
def test_the_smoother_is_the_best_of_its_grid_by_leave_one_out(x64, family):
    task = draw(1, p=2, n=15)
    x, y = np.asarray(task.x), np.asarray(task.y)
    scale = np.sqrt(np.mean((x @ x.T) ** 2))
    if family is ik.Gaussian:
        scale = np.sqrt(np.mean(np.sum((x[:, None] - x) ** 2, -1) / 2))
    grid = scale * 2.0 ** np.linspace(-4, 4, 17)
    losses = []
    for bandwidth in grid:
        weights = np.array(family(bandwidth)(task.x, task.x))
        np.fill_diagonal(weights, 0)
        losses.append(np.sum((weights @ y / weights.sum(1) - y) ** 2))
    assert 0 < np.argmin(losses) < 16
    chosen = _model_selection.choose_smoother(family, task).kernel
    assert np.isclose(next(iter(_depth_config.bandwidth(chosen).values())), grid[np.argmin(losses)])


@pytest.mark.parametrize("name", catalogue.SOLVERS)
def test_what_a_solver_is_told_is_what_its_row_says(x64, name):
    """Keywords from another task of the family change its answers if they are about one task."""
    row, ridge = catalogue.SOLVERS[name], 0.5
    task, other = (draw(seed, p=3, n=8) for seed in (3, 4))
    kernel = make_kernel(catalogue.taken(name)[0], {})
    oracle = ik.solvers.lookup(row)
    steps = {"steps": 3} if row.iterates else {}
    keywords = [solver_keywords(row, kernel, of, ridge) for of in (task, other)]
    ours, foreign = (solve(oracle, kernel, task, **steps, **of).prediction for of in keywords)
    assert (relative(ours, foreign) > 1e-6) == (row.input_scope == catalogue.THIS_TASK)
    assert (row.input_scope == catalogue.NONE) == (not row.required_inputs)


@pytest.mark.parametrize("ridge", [None, 0.3])
def test_the_kernel_is_the_best_of_its_grid_by_leave_one_out(x64, ridge):
    task = draw(4, p=2, n=15, noise=0.5)  # without noise the grid of ridges grows
    y, eye, best = np.asarray(task.y), np.eye(14), (np.inf, None)
    others = [np.delete(np.arange(15), i) for i in range(15)]
    for bandwidth in _model_selection.bandwidths(ik.Gaussian, task):
        gram = np.asarray(ik.Gaussian(bandwidth)(task.x, task.x))
        for r in 1e-3 * 10 ** np.linspace(0, 6, 13) if ridge is None else [ridge]:
            left = [
                gram[i, rest] @ np.linalg.solve(gram[np.ix_(rest, rest)] + r * eye, y[rest])
                for i, rest in enumerate(others)
            ]
            best = min(best, (np.sum((left - y) ** 2), float(bandwidth)))
        assert np.isclose(np.trace(gram) / 15, 1)
    chosen = _model_selection.choose_kernel(ik.Gaussian, task, ridge).kernel
    assert np.isclose(float(chosen.lengthscale), best[1])


@pytest.mark.parametrize("masked", [False, True])
def test_one_eigendecomposition_gives_the_errors_of_all_ridges(x64, masked):
    """The formula that needs one factorisation for each ridge agrees, also at singular matrices."""
    task = draw(3, p=2, n=14, r=2)
    x = task.x[[0, 0, *range(2, 14)]]
    task = task.replace(x=x, mask=np.arange(14) < 11 if masked else None)
    for kernel in (ik.Linear(), ik.Gaussian(0.7)):
        grid = ridge_grid(kernel, task)
        each = [np.sum(ik.solvers.leave_one_out(kernel, task, ridge=r) ** 2) for r in grid]
        np.testing.assert_allclose(left_out_losses(kernel, task, grid), each, rtol=1e-9)


def test_many_supports_are_chosen_on_a_subsample_and_the_table_says_so(x64, monkeypatch):
    monkeypatch.setattr(_model_selection, "MOST", {"regression": 10, "Nadaraya-Watson": 12})
    task, heard = draw(4, p=2, n=15), []
    few = _model_selection.subsample(task, "regression")
    assert few.x.shape == (10, 2)
    assert not np.array_equal(few.x, task.x[:10])
    config = _depth_config.DepthConfig(kernel="gaussian")
    kernel, *_ = _depth_config.choose_kernels(task, config, heard.append)
    best = _model_selection.choose_kernel(ik.Gaussian, few, None).kernel
    assert kernel.lengthscale == best.lengthscale
    result = _depth.run(task, _depth_config.DepthConfig(solver="gradient_descent", steps=1))
    assert "(leave-one-out on 10 random supports)" in describe(result.facts, 0)
    assert "regression, leave-one-out: gaussian kernel, lengthscale 17 of 17" in heard


def test_the_size_of_a_compiled_fit_does_not_depend_on_the_data(x64):
    """The tasks are arguments of the program: constants would be in its text."""

    def text(n):
        tasks = stacked(draw(0, p=2, n=n))
        config = FitConfig(solver="chebyshev", kernel="gaussian", ridge=0.1, lengthscale=1.0)
        loss = held_out(builder(config, tasks), tasks)
        parameters = {"ridge": 0.1, "lengthscale": 1.0}
        return len(jax.jit(lambda loss, at: loss(at)).lower(loss, parameters).as_text())

    assert abs(text(50) - text(10)) < 0.01 * text(10)


def test_rows_hold_gaps_and_errors_as_they_say(x64):
    """Those of alpha in the norm of A."""
    task, kernel = draw(2, p=3, n=15), ik.Linear()
    config = _depth_config.DepthConfig("gradient_descent_in_alpha", "linear", ridge=0.5, steps=3)
    result = _depth.run(task, config)
    exact = np.asarray(ik.solvers.exact(kernel, task, ridge=0.5).prediction)
    size, y = np.linalg.norm(exact), np.asarray(task.y_query)
    spectrum = ik.spectral_bounds(kernel, task, ridge=0.5)
    path = ik.solvers.gradient_descent_in_alpha(kernel, task, ridge=0.5, steps=3, spectrum=spectrum)
    smoother = ik.Exponential(result.facts["smoother_temperature"])
    expected = {
        **{("transformer", t): np.asarray(f) for t, f in enumerate(path.prediction)},
        ("zero", 0): 0 * exact,
        ("mean", 0): 0 * exact + np.mean(task.y),
        ("nadaraya_watson", 0): np.asarray(ik.solvers.nadaraya_watson(smoother, task).prediction),
        ("exact", 0): exact,
    }
    rows = {(row.predictor, row.step): row for row in (*result.rows, *result.baselines)}
    assert set(rows) == set(expected)
    for key, f in expected.items():
        assert np.isclose(rows[key].gap, np.linalg.norm(f - exact) / size, atol=1e-12)
        assert np.isclose(rows[key].rmse, np.sqrt(np.mean((f - y) ** 2)))
        assert np.isnan(rows[key].oracle_gap) == (key[0] != "transformer")
    assert [row.blocks for row in result.rows] == [0, 2, 4, 6]
    assert result.facts["chosen"] == []
    A = task.x @ task.x.T + 0.5 * np.eye(15)
    best, L = np.linalg.solve(A, task.y), np.linalg.cholesky(A)
    errors = np.linalg.norm((np.asarray(path.alpha) - best) @ L, axis=1) / np.linalg.norm(best @ L)
    np.testing.assert_allclose([row.alpha_error for row in result.rows], errors, rtol=1e-10)


def test_the_gap_to_the_oracle_is_measured(x64, monkeypatch):
    """A construction that runs another solver than it says is found out."""
    task = draw(2, p=3, n=15)
    config = _depth_config.DepthConfig(ridge=0.5, steps=3, kernel="linear")
    wrong = partial(ik.constructions.gradient_descent, step_size=0.01)
    monkeypatch.setattr(ik.constructions, "conjugate_gradient", wrong)
    assert _depth.run(task, config).rows[-1].oracle_gap > 1e-2


@pytest.mark.parametrize("kernel", ["exponential", "gaussian"])
def test_nadaraya_watson_against_krr_on_its_own_kernel(x64, kernel):
    """Each with its best bandwidth; a given one is the solver's, which is NW here."""
    task = draw(4, p=2, n=15)
    family = ik.Gaussian if kernel == "gaussian" else ik.Exponential
    name = "lengthscale" if kernel == "gaussian" else "temperature"
    for options in ({}, {name: 1.5}):
        config = _depth_config.DepthConfig("nadaraya_watson", kernel, ridge=0.5, **options)
        result = _depth.run(task, config)
        smoother = family(result.facts[f"smoother_{name}"])
        smooth = ik.solvers.nadaraya_watson(smoother, task).prediction
        exact = ik.solvers.exact(family(result.facts[name]), task, ridge=0.5).prediction
        gap = np.linalg.norm(smooth - exact) / np.linalg.norm(exact)
        assert np.isclose(result.rows[-1].gap, gap)
        assert result.facts["chosen"] == ([] if options else [name])
        if options:
            assert result.facts[name] == result.facts[f"smoother_{name}"] == 1.5


def of_heads(kernel):
    """The kernel that attention computes: of a Matern kernel, the values of its mixture."""
    if not isinstance(kernel, ik.kernels.Matern):
        return kernel

    def log(self, x, z):
        return jnp.log(self.mixture(x.dtype)(x, z))

    made_by = pytree_dataclass(type("OfHeads", (type(kernel),), {"log": log}))
    return made_by(kernel.lengthscale, kernel.projection)


@often(
    ("solver", "kernel"),
    [*OF_EACH_SORT.items()],
    [
        (name, kernel)
        for name in catalogue.SOLVERS
        for kernel in catalogue.taken(name)
        if name == "conjugate_gradient"
        or kernel in (catalogue.taken(name)[-1], OF_EACH_SORT.get(name))
    ],
)
def test_every_solver_and_every_kernel_follows_its_oracle(x64, monkeypatch, solver, kernel):
    """All kernels with one solver: test_keystone has each solver by each attention.

    For a Matern kernel they compute its mixture; tests/test_matern.py has the error of that.
    """
    oracle = _build.predictions
    mixed = lambda name, kernel, *rest: oracle(name, of_heads(kernel), *rest)  # noqa: E731
    monkeypatch.setattr(_build, "predictions", mixed)
    task = draw(6, p=2, n=15)
    config = _depth_config.DepthConfig(solver, kernel, ridge=2.0, steps=4)
    result = _depth.run(task, config)
    assert max(row.oracle_gap for row in result.rows) < 1e-8
    assert result.facts["kernel"] == kernel
    if catalogue.SOLVERS[solver].rate:
        assert all(row.alpha_error <= row.bound * (1 + 1e-9) for row in result.rows)
    if not catalogue.SOLVERS[solver].iterates:
        assert np.isnan(result.rows[-1].alpha_error)
        assert np.isnan(result.rows[-1].bound)
    with pytest.raises(ValueError, match="kernel must be one of"):
        _depth_config.DepthConfig(solver, "cubic")


def test_a_sweep_that_overflows_everywhere_says_so():
    task = draw(5)
    with pytest.raises(ValueError, match="ridge must be given, because every leave-one-out error"):
        _model_selection.choose_ridge(ik.Exponential(1e-4), task)


def test_chunks_are_as_large_as_asked(monkeypatch):
    sizes, plain = [], jax.lax.map

    def record(function, tasks, *, batch_size):
        sizes.append(batch_size)
        return plain(function, tasks, batch_size=batch_size)

    monkeypatch.setattr(jax.lax, "map", record)
    tasks = stacked(*(draw(seed, p=2, n=64, q=1) for seed in range(7)))
    model = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=2)
    some = ik.predict_batch(model, tasks, chunk=3)
    assert relative(ik.predict_batch(model, tasks), some) < 1e-5
    assert sizes == [3, 7]
    assert chunk_size(tasks, None) == 7
    monkeypatch.setattr(_batches, "TOKENS", 5 * 66)
    assert chunk_size(tasks, None) == 4
