"""The depth experiment: its rows, its baselines, and how it chooses hyperparameters."""

import jax
import numpy as np
import pytest
from helpers import draw, relative
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import LeaveOneOut, cross_val_predict

import icl_krr as ik
from icl_krr.experiments import depth, tuning


def test_the_ridge_is_the_best_of_its_grid_by_leave_one_out(x64):
    task = draw(0, p=3, n=15, noise=0.5)
    x, y = np.asarray(task.x), np.asarray(task.y)
    grid = np.trace(x @ x.T) / 15 * np.logspace(-3, 3, 13)
    losses = []
    for ridge in grid:
        model = KernelRidge(alpha=ridge, kernel="linear")
        losses.append(np.sum((cross_val_predict(model, x, y, cv=LeaveOneOut()) - y) ** 2))
    assert 0 < np.argmin(losses) < 12
    assert np.isclose(tuning.choose_ridge(ik.Linear(), task), grid[np.argmin(losses)])


def test_the_temperature_is_the_best_of_its_grid_by_leave_one_out(x64):
    task = draw(1, p=2, n=15)
    x, y = np.asarray(task.x), np.asarray(task.y)
    grid = np.sqrt(np.mean((x @ x.T) ** 2)) * 2.0 ** np.linspace(-4, 4, 17)
    losses = []
    for temperature in grid:
        weights = np.exp(x @ x.T / temperature)
        np.fill_diagonal(weights, 0)
        losses.append(np.sum((weights @ y / weights.sum(1) - y) ** 2))
    assert 0 < np.argmin(losses) < 16
    assert np.isclose(tuning.choose_temperature(task), grid[np.argmin(losses)])


def test_rows_hold_gaps_and_errors_as_they_say(x64):
    task = draw(2, p=3, n=15, q=6)
    config = depth.DepthConfig(solver="gradient-descent", ridge=0.5, temperature=2.0, steps=3)
    result = depth.run(task, config)
    exact = np.asarray(ik.solvers.exact(ik.Linear(), task, ridge=0.5).prediction)
    size, y = np.linalg.norm(exact), np.asarray(task.y_query)
    spectrum = ik.spectral_bounds(ik.Linear(), task, ridge=0.5)
    path = ik.solvers.gradient_descent(ik.Linear(), task, ridge=0.5, steps=3, spectrum=spectrum)
    smooth = ik.solvers.nadaraya_watson(ik.Exponential(2.0), task).prediction
    expected = {
        **{("transformer", t): np.asarray(f) for t, f in enumerate(path.prediction)},
        ("zero", 0): 0 * exact,
        ("mean", 0): 0 * exact + np.mean(task.y),
        ("nadaraya-watson", 0): np.asarray(smooth),
        ("exact", 0): exact,
    }
    rows = {(row.predictor, row.step): row for row in (*result.rows, *result.baselines)}
    assert set(rows) == set(expected)
    for key, f in expected.items():
        assert np.isclose(rows[key].gap, np.linalg.norm(f - exact) / size, atol=1e-12)
        assert np.isclose(rows[key].rmse, np.sqrt(np.mean((f - y) ** 2)))
        assert np.isnan(rows[key].oracle_gap) == (key[0] != "transformer")
    assert [row.blocks for row in result.rows] == [0, 1, 2, 3]
    assert result.facts["chosen"] == []


def test_the_gap_to_the_oracle_is_measured(x64, monkeypatch):
    """A construction that runs another solver than it says is found out."""
    task = draw(3, p=3, n=15)
    config = depth.DepthConfig(ridge=0.5, temperature=1.0, steps=3)
    assert all(row.oracle_gap < 1e-10 for row in depth.run(task, config).rows)
    wrong = depth.constructions.gradient_descent
    monkeypatch.setattr(
        depth.constructions,
        "conjugate_gradient",
        lambda kernel, **options: wrong(kernel, step_size=0.01, **options),
    )
    assert depth.run(task, config).rows[-1].oracle_gap > 1e-2


def test_nadaraya_watson_against_krr_on_its_own_kernel(x64):
    task = draw(4, p=2, n=15)
    config = depth.DepthConfig(solver="nadaraya-watson", kernel="exponential", ridge=0.5)
    result = depth.run(task, config)
    kernel = ik.Exponential(result.facts["temperature"])
    smooth = ik.solvers.nadaraya_watson(kernel, task).prediction
    exact = ik.solvers.exact(kernel, task, ridge=0.5).prediction
    gap = np.linalg.norm(smooth - exact) / np.linalg.norm(exact)
    assert np.isclose(result.rows[-1].gap, gap)
    assert result.facts["chosen"] == ["temperature"]


def test_a_sweep_that_overflows_everywhere_says_so():
    task = draw(5)
    with pytest.raises(ValueError, match="ridge could not be chosen: every leave-one-out error"):
        tuning.choose_ridge(ik.Exponential(1e-4), task)


def test_chunks_are_as_large_as_asked(monkeypatch):
    from icl_krr.transformer import run

    sizes, plain = [], jax.lax.map

    def record(function, tasks, *, batch_size):
        sizes.append(batch_size)
        return plain(function, tasks, batch_size=batch_size)

    monkeypatch.setattr(run.jax.lax, "map", record)
    tasks = jax.vmap(ik.tasks.sample, in_axes=(0, None))(
        jax.random.split(jax.random.key(0), 7), ik.tasks.LinearRegression(num_features=2)
    )
    model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=2, ridge=0.1, steps=2)
    some = ik.predict_batch(model, tasks, chunk=3)
    assert relative(ik.predict_batch(model, tasks), some) < 1e-5
    assert sizes == [3, 32]
