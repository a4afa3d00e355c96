"""`icl-krr fit`, as a person meets it."""

import csv
import json

import numpy as np
import pytest
from helpers import draw, numpy_exact, stacked
from test_cli import FIT, table

import icl_krr as ik
from icl_krr import cli
from icl_krr.catalogue import SOLVERS
from icl_krr.experiments import FitConfig, _hyperparameters, load

__all__ = ["table"]


def test_a_table_is_fitted_and_judged_on_other_rows(table, tmp_path, capsys):
    out = tmp_path / "fit"
    words = f"{FIT} --supports 24 --seed 3 --ridge 9 --steps 4 --iterations 12 --method lbfgs"
    assert cli.main([*words.split(), "--out", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["meta"]["seed"] == 3
    errors = {row["predictor"]: row["error"] for row in printed["errors"]}
    (moved,) = printed["moved"]
    assert moved["name"] == "ridge"
    assert moved["start"] == 9
    task = ik.tasks.split(ik.tasks.read_table(table, "y"), 24, seed=3)
    y = np.asarray(task.y_query, np.float64)
    for name, ridge in (("start", 9.0), ("fitted", moved["fitted"])):
        error = np.mean((numpy_exact(task.x, task.y, task.x_query, ridge) - y) ** 2)
        assert np.isclose(errors[f"exact, {name}"], error, rtol=1e-3)
        assert np.isclose(errors[f"transformer, {name}"], error, rtol=1e-3)
    assert np.isclose(errors["zero"], np.mean(y**2), rtol=1e-4)
    assert {"mean", "nadaraya_watson"} < set(errors)
    losses = [row["loss"] for row in printed["losses"]]
    assert min(losses) < 0.9 * losses[0]
    names = ["fit.csv", "fit.png", "fit.svg", "meta.json", "moved.csv"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert len(list(csv.DictReader((out / "fit.csv").read_text().splitlines()))) == len(losses)
    assert (out / "fit.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_run_is_fitted_and_a_table_printed(capsys):
    """Toward the lengthscale and the noise that it was trained on, 0.4 and 0.05."""
    words = "gp-encoder --tasks 8 --solver richardson --steps 200 --lengthscale 1 --ridge 0.5"
    assert cli.main(f"fit {words} --iterations 12 --method lbfgs".split()) == 0
    out = capsys.readouterr().out
    for word in ("fitted hyperparameters", "gaussian kernel", "seed = 0", "exact, fitted"):
        assert word in out
    row = next(line for line in out.splitlines() if "lengthscale" in line)
    start, fitted = (float(cell) for cell in row.replace("│", " ").split()[1:3])
    assert start == 1
    assert 0.35 < fitted < 0.45


def test_parts_of_a_table_predict_each_other():
    rows = ik.tasks.diabetes()
    data = _hyperparameters.of_table(rows, 22, seed=1)
    whole = ik.tasks.split(rows, 22, seed=1)
    assert data.fitted.x.shape == (4, 15, 10)
    for x, x_query in zip(data.fitted.x, data.fitted.x_query, strict=True):
        both = np.concatenate([x, x_query])
        assert len(np.unique(both, axis=0)) == len(both) == 20
        assert {tuple(row) for row in both} <= {tuple(row) for row in np.asarray(whole.x)}
    assert np.array_equal(data.scoring.x_query[0], whole.x_query)


def test_what_a_run_answers_is_aimed_at():
    run = load("gp-encoder")
    data = _hyperparameters.of_run(run, 2, seed=0)
    answers = ik.predict_batch(run.model, data.scoring)
    assert np.allclose(data.scoring.y_query, answers)
    assert not np.allclose(data.scoring.x, data.fitted.x)


@pytest.mark.slow
def test_a_schedule_is_found_with_the_ridge_from_predictions(x64):
    """Chebyshev's bounds, planted off those of the tasks, with which it starts."""
    draws = [[draw(8 * batch + i, n=6, q=8) for i in range(8)] for batch in (0, 1)]
    fitted, scoring = (stacked(*tasks) for tasks in draws)
    planted = {"ridge": 0.5, "lowest eigenvalue": 1.5, "highest eigenvalue": 30.0}
    options = {"ridge": 2.0, "steps": 3, "method": "lbfgs", "iterations": 80}
    config = FitConfig("chebyshev", "linear", **options, fit_spectrum=True)
    answer = lambda tasks: ik.predict_batch(_hyperparameters.builder(config, tasks)(planted), tasks)  # noqa: E731
    fitted, scoring = (tasks.replace(y_query=answer(tasks)) for tasks in (fitted, scoring))
    data = _hyperparameters.Data(fitted, fitted, scoring)
    result = _hyperparameters.fit_hyperparameters(data, config)
    moved = {row.name: row for row in result.adapted.moved}
    assert set(moved) == set(planted)
    assert moved["lowest eigenvalue"].start == 2
    for name, value in planted.items():
        assert abs(moved[name].fitted / value - 1) < 1e-3
    errors = {row["predictor"]: row["error"] for row in result.errors}
    assert errors["transformer, fitted"] < 1e-3 * errors["transformer, start"]


def test_bounds_hold_for_every_task(x64):
    data = _hyperparameters.of_table(ik.tasks.diabetes(), 22, seed=1)
    kernel = ik.Exponential(20.0)
    low, high = _hyperparameters.bounds(kernel, data.fitted, 0.3)
    for x in data.fitted.x:
        sigma = np.linalg.eigvalsh(kernel(x, x)) + 0.3
        assert low <= sigma[0] + 1e-12
        assert sigma[-1] <= high < 5 * sigma[-1]


def test_every_solver_of_several_tasks_can_be_fitted():
    for solver in (name for name, row in SOLVERS.items() if not row.one_task):
        FitConfig(solver=solver)
    with pytest.raises(ValueError, match="solver must"):  # test_cli has the other one
        FitConfig(solver="gradient_descent_plus_plus")
