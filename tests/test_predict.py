"""`icl-krr predict`: predictions for the rows of a table, checked with scikit-learn and NumPy."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import kernel_matrix, left_out_losses, numpy, ridge_grid
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneOut, cross_val_predict

import icl_krr as ik
from icl_krr import cli
from icl_krr.tabular import DepthConfig, _depth, process
from icl_krr.tabular._answer import needs_float64
from icl_krr.tabular._build import build_model
from icl_krr.tasks._division import divide

RNG = np.random.default_rng(0)
CITIES = ("Oslo", "Rome", "Paris")
ROWS = [
    (city, size, round(100 * np.sin(3 * size) + 40 * CITIES.index(city) + RNG.normal(), 3))
    for city, size in zip(RNG.choice(CITIES, 40), RNG.uniform(0, 2, 40).round(3), strict=True)
]


OPTIONS = ("--kernel", "gaussian", "--lengthscale", 0.7, "--ridge", 0.02, "--steps", 30)


def write(path, header, rows):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "houses.csv", "city,size,price", ROWS)


@pytest.fixture
def queries(tmp_path):
    rows = [(size, city) for city, size, _ in ROWS[30:]]
    return write(tmp_path / "queries.csv", "size,city", rows)


def predict(path, *options, target="price"):
    return cli.main(["predict", str(path), "--target", target, *map(str, options)])


def features(rows):
    return np.array([[*(city == name for name in sorted(CITIES)), size] for city, size, _ in rows])


def records(folder):
    """The predictions of a command as columns of numbers."""
    rows = list(csv.DictReader((folder / "predictions.csv").read_text().splitlines()))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def test_queries_of_a_file_are_predicted_in_units_of_the_table(table, queries, tmp_path, capsys):
    write(table, "city,size,price", ROWS[:30])
    assert predict(table, "--queries", queries, "--encode", *OPTIONS, "--out", tmp_path) == 0
    printed = capsys.readouterr().out
    assert "predictions of price (all 10 queries)" in printed
    assert "intervals contain y" not in printed
    rows = records(tmp_path)
    assert list(rows) == ["row", "transformer", "exact", "std", "low", "high"]
    assert rows["row"].tolist() == [*range(1, 11)]

    x, x_query = features(ROWS[:30]), features(ROWS[30:])
    y = np.array([price for *_, price in ROWS[:30]])
    x, x_query = ((part - x.mean(0)) / x.std(0) for part in (x, x_query))
    peer = GaussianProcessRegressor(RBF(0.7), alpha=0.02, optimizer=None)
    unit = (y - y.mean()) / y.std()
    peer.fit(x, unit)
    mean, std = peer.predict(x_query, return_std=True)
    assert np.allclose(rows["exact"], y.mean() + y.std() * mean, atol=1e-3 * y.std())
    assert np.allclose(rows["transformer"], rows["exact"], atol=2e-3 * np.abs(y).max())
    scale = unit @ np.linalg.solve(peer.kernel_(x) + 0.02 * np.eye(30), unit) / 30
    assert np.allclose(rows["std"], y.std() * np.sqrt(scale * (std**2 + 0.02)), rtol=1e-3)
    assert np.allclose(rows["high"] - rows["low"], 2 * 1.96 * rows["std"], rtol=1e-4)


def test_intervals_of_rows_with_filled_cells_cover_and_the_rows_are_named(tmp_path):
    """The most important column is missing in a half of the queries, and a text in some."""
    a, b, noise = np.random.default_rng(0).normal(size=(3, 300))
    lines = [*zip(a, b, np.where(b > 0, "x", "z"), 3 * a + b + 0.3 * noise, strict=True)]
    table = write(tmp_path / "t.csv", "a,b,c,y", lines[:100])
    gaps = [
        ("" if i % 2 else a, b, "?" if i % 4 == 3 else c, y) for i, (a, b, c, y) in enumerate(lines)
    ]
    queries = write(tmp_path / "q.csv", "a,b,c,y", gaps[100:])
    options = ["--ridge", 0.1, "--steps", 4, "--missing", "median", "--out", tmp_path, "--encode"]
    assert predict(table, "--queries", queries, "--kernel", "linear", *options, target="y") == 0
    rows = [*csv.DictReader((tmp_path / "predictions.csv").read_text().splitlines())]
    assert [row["filled"] for row in rows] == ["", "a", "", "a, c"] * 50
    for part, size in ((rows[::2], 0.3), (rows[1::2], 3)):
        low, y, high, std = np.array(
            [[float(row[n]) for n in ("low", "y", "high", "std")] for row in part]
        ).T
        assert 0.9 <= np.mean((low <= y) & (y <= high)) <= 0.99
        assert np.all((0.7 * size < std) & (std < 1.6 * size))


@pytest.mark.parametrize("kernel", [ik.Gaussian(0.8), ik.Linear()])
def test_the_transformer_gives_the_process_whose_amplitude_maximises_the_evidence(x64, kernel):
    table = ik.tasks.Table(features(ROWS), np.array([r[2] for r in ROWS]), tuple("abcd"), "y")
    task = divide(table, 30, 0).task
    result = process(kernel, task, 0.05)
    best = numpy(ik.solvers.posterior(kernel, task, ridge=0.05))
    y = np.asarray(task.y)
    A = kernel_matrix(kernel, task.x, task.x) + 0.05 * np.eye(30)
    scale = y @ np.linalg.solve(A, y) / 30
    assert result.amplitude == pytest.approx(scale, rel=1e-8)
    assert np.allclose(result.mean, best.mean, atol=1e-8)
    assert np.allclose(result.std, np.sqrt(scale * (np.asarray(best.variance) + 0.05)), rtol=1e-8)
    assert np.allclose(result.variance, best.variance, atol=1e-9)
    assert result.error < 1e-6
    assert "transformer" in result.source


@pytest.mark.parametrize("rows", [12, 40])
def test_what_was_centred_tells_nothing_about_the_support_that_is_left_out(x64, rows):
    """With fewer rows than features, too, where the others' mean would tell everything."""
    x, y = RNG.normal(size=(rows, 20)), RNG.normal(size=rows)
    task = ik.Task(x - x.mean(0), y - y.mean(), x[:1])
    grid = ridge_grid(ik.Linear(), task)
    expected = []
    for ridge in grid:
        left = cross_val_predict(Ridge(float(ridge)), x, y, cv=LeaveOneOut())
        expected.append(np.sum((left - y) ** 2))
    losses = left_out_losses(ik.Linear(), task, grid, True)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    padded = ik.Task(
        np.pad(task.x, ((0, 3), (0, 0)), constant_values=7.0),
        np.pad(task.y, (0, 3), constant_values=9.0),
        x[:1],
        mask=np.arange(rows + 3) < rows,
    )
    masked = left_out_losses(ik.Linear(), padded, grid, True)
    np.testing.assert_allclose(masked, expected, rtol=1e-6)


def test_known_targets_are_judged(table, capsys):
    out = table.parent / "out"
    options = ["--seed", 4, "--steps", 30, "--kernel", "gaussian", "--ridge", 0.1, "--out", out]
    assert predict(table, "--encode", *options) == 0
    meta, predictions = json.loads((out / "meta.json").read_text()), records(out)
    y, mean, std = (predictions[name] for name in ("y", "exact", "std"))
    rows, prices = predictions["row"].astype(int) - 1, np.array([price for *_, price in ROWS])
    assert len(y) == 10
    assert y == pytest.approx(prices[rows], rel=1e-5)
    supports = np.delete(prices, rows)
    for name, said in (("exact", mean), ("mean", np.mean(supports))):
        assert meta["rmse"][name] == pytest.approx(np.sqrt(np.mean((said - y) ** 2)))
    inside = np.sum((predictions["low"] <= y) & (y <= predictions["high"]))
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{inside} of 10 intervals contain y: a coverage of" in printed
    calibration = meta["calibration"]
    covered = calibration["low"] <= 0.95 <= calibration["high"]
    assert ("not distinguishable from 95 %" in printed) == covered
    assert calibration["fraction"] == inside / 10
    log_likelihoods = norm.logpdf(y, mean, std), norm.logpdf(y, np.mean(supports), np.std(supports))
    for name, values in zip(("log_likelihood", "constant"), log_likelihoods, strict=True):
        assert calibration[name] == pytest.approx(values.mean(), rel=1e-4)


def test_leave_one_out_chooses_the_kernel(x64):
    """On a wave no line is near, so the linear kernel, which is the first, must not be taken."""
    x = np.linspace(-1, 1, 30)[:, None]
    task = ik.Task(x=x, y=np.sin(6 * x[:, 0]), x_query=x, y_query=np.sin(6 * x[:, 0]))
    facts = _depth.run(task, DepthConfig("conjugate_gradient", steps=4)).facts
    errors = facts["leave_one_out"]
    assert list(errors) == ["linear", "exponential", "gaussian"]
    assert facts["kernel"] == min(errors, key=errors.get) != "linear"
    alone = _depth.run(task, DepthConfig(kernel="gaussian", steps=4)).facts
    scale = alone["lengthscale"]
    peer = GaussianProcessRegressor(RBF(scale), alpha=alone["ridge"], optimizer=None)
    left = cross_val_predict(peer, x, task.y, cv=LeaveOneOut())
    rmse = np.sqrt(np.mean((left - task.y) ** 2))
    assert errors["gaussian"] == pytest.approx(rmse, rel=1e-6)


def test_the_steps_end_where_the_error_of_check_is_below_the_limit(monkeypatch):
    """Queries far out, so that |f*| is above |y|, of which the error takes the larger."""
    task = divide(ik.tasks.diabetes(), 60, 0).task
    task = task.replace(x_query=9 * task.x_query[:50], y_query=None)
    steps, reason, _ = _depth.steps_needed("chebyshev", ik.Linear(), task, 5.0)
    models = [build_model("chebyshev", ik.Linear(), task, 5.0, n) for n in (steps - 1, steps)]
    errors = [float(ik.check(model, task).error) for model in models]
    assert (reason, errors[1] <= _depth.CONVERGED < errors[0]) == ("converged", True)
    monkeypatch.setattr(_depth, "MOST_STEPS", {"float32": (3,)})
    assert _depth.steps_needed("chebyshev", ik.Linear(), task, 5.0) == (3, "nearest", 3)


@pytest.mark.parametrize(("reason", "words"), [("nearest", "(error 0.002)"), ("converged", "")])
def test_predictions_that_do_not_converge_in_float32_are_computed_in_float64(reason, words):
    """Also if they are within 0.01, which is ok."""
    same = SimpleNamespace(ok=True, mean=np.ones(2), std=np.ones(2), undo=lambda values: values)
    status = {"ok": True, "error": 0.002}
    facts = {"exact_ok": True, "status": status, "steps_because": reason}
    result = SimpleNamespace(facts=facts, predictions={"exact": np.ones(2)})
    answer = SimpleNamespace(process=same, division=SimpleNamespace(scaling=same), result=result)
    assert needs_float64(answer, DepthConfig(steps=None))[-13:] == words


def test_what_does_not_converge_is_said(table, monkeypatch, capsys):
    monkeypatch.setattr(_depth, "MOST_STEPS", {"float32": (3,), "float64": (4,)})
    options = ["--encode", "--kernel", "gaussian", "--ridge", 0.001, "--lengthscale", 1]
    assert predict(table, *options) == 0
    said = capsys.readouterr()
    printed = " ".join(said.out.split())
    assert "steps (--steps N runs N steps): the number of at most 4 with" in printed
    assert "not converged: error" in printed
    assert "the predictions of the transformer are not written" in said.err


def test_text_is_encoded_only_on_request(table, queries, tmp_path, capsys):
    assert predict(table) == 2
    assert "got text in 'city'; encode text as numbers (--encode" in capsys.readouterr().err
    encoded = ik.tasks.read_table(table, "price", encode=True)
    assert encoded.features == ("city=Oslo", "city=Paris", "city=Rome", "size")
    assert np.array_equal(encoded.x, features(ROWS))
    new = write(tmp_path / "new.csv", "city,size", [("Berlin", 1), *[("Rome", 2)] * 9])
    unseen = ik.tasks.read_queries(new, encoded)
    assert np.array_equal(unseen.x, [[0, 0, 0, 1], *[[0, 0, 1, 2]] * 9])
    assert unseen.unseen == ("city=Berlin",)
    assert unseen.filled.tolist() == [[True, False], *[[False, False]] * 9]
    write(table, "city,size,price", ROWS[:30])
    assert predict(table, "--queries", new, "--encode", *OPTIONS) == 0
    captured = capsys.readouterr()
    assert "whose features are all 0: city=Berlin" in captured.err
    assert "(all 10 queries)" in captured.out


def test_what_makes_predictions_doubtful_is_said(tmp_path, capsys):
    rows = [(i % 7, 3, i % 3, i % 2, 5) for i in range(30)]  # the shape of the table above
    table = write(tmp_path / "t.csv", "a,b,c,d,y", rows)
    query_rows = [(3, 3, 1, 1), (400, 3, 1, 1), (3, 0, 1, 1), *[(2, 3, 1, 1)] * 7]
    queries = write(tmp_path / "q.csv", "a,b,c,d", query_rows)
    assert predict(table, "--queries", queries, *OPTIONS, target="y") == 0
    warnings = capsys.readouterr().err
    assert "y is constant in the supports, so that every interval is empty" in warnings
    assert "constant in the supports: b" in warnings
    assert "2 queries are more than twice as far from the mean" in warnings
    assert "such as row 2, in a, b; do not trust their predictions" in warnings
    write(queries, "a,b,c,d", [*query_rows[:2], *query_rows[3:], (2, 3, 1, 1)])
    assert predict(table, "--queries", queries, *OPTIONS, target="y") == 0
    error = capsys.readouterr().err
    assert "1 query is more than twice as far from the mean as any support, row 2, in a;" in error


def test_queries_and_texts_that_do_not_fit_are_refused(table, tmp_path):
    encoded, path = ik.tasks.read_table(table, "price", encode=True), tmp_path / "other.csv"
    for header, rows, message in (
        ("city", [["R"]], "expected all columns of the table, got no 'size'"),
        ("city,floor", [("R", 2)], r"\(1\) .* no 'size'; \(2\) .* only columns .* got 'floor'; re"),
    ):
        with pytest.raises(ValueError, match=message):
            ik.tasks.read_queries(write(path, header, rows), encoded)
    for texts, message in (
        ("abcd", "column 'name': expected few different texts to be encoded, got 4"),
        (("a", "", "a", "b"), "line 3, column 'name': expected text, got ''"),
    ):
        rows = [(text, i) for i, text in enumerate(texts)]
        with pytest.raises(ValueError, match=message):
            ik.tasks.read_table(write(path, "name,y", rows), "y", encode=True)
