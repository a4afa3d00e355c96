"""Numbers of `icl-krr predict` and `process`: digits, scales, amplitude, and what was learned."""

import csv
import json

import jax
import numpy as np
import pytest

import icl_krr as ik
from icl_krr import cli
from icl_krr.tabular import _model_selection, process
from icl_krr.tabular._model_selection import LogGrid, search

RNG = np.random.default_rng(1)
X, NEW = RNG.normal(size=(40, 2)), np.array([[1.0, 2.0], [3.0, 4.0]])
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=40)
NOISE = np.random.default_rng(0).normal(size=(40, 3))
SIZES = (1e-30, 1e30)


def exactly(y, kernel, ridge, x=X, new=NEW):
    """Mean, deviation of a new y, its part without noise, and amplitude, in float64."""
    with jax.enable_x64(True):
        K, k = np.asarray(kernel(x, x)), np.asarray(kernel(new, x))
    A = K + ridge * np.eye(len(x))
    amplitude = y @ np.linalg.solve(A, y) / len(x)
    variance = 1 - np.sum(k * np.linalg.solve(A, k.T).T, axis=1)
    mean = k @ np.linalg.solve(A, y)
    return mean, np.sqrt(amplitude * (variance + ridge)), variance, amplitude


def check(posterior, y, kernel, ridge, rtol=0.01):
    mean, std, variance, amplitude = exactly(y, kernel, ridge)
    assert posterior.ok
    np.testing.assert_allclose(posterior.amplitude, amplitude, rtol=2 * rtol)
    np.testing.assert_allclose(posterior.noise, amplitude * ridge, rtol=2 * rtol)
    np.testing.assert_allclose(posterior.std, std, rtol=rtol)
    np.testing.assert_allclose(posterior.variance, variance, rtol=2 * rtol)
    assert np.all(np.abs(posterior.mean - mean) <= rtol * std)


@pytest.mark.parametrize("size", SIZES)
def test_a_process_has_the_size_of_y_for_each_output(size):
    kernel, y = ik.Gaussian(2.0), size * np.stack([Y, 100 * Y[::-1], 0 * Y], axis=1)
    posterior = process(kernel, ik.Task(X, y, NEW), 0.05)
    assert "float32" in posterior.source
    names = ("mean", "std", "amplitude", "noise")
    for i in (0, 1):
        part = posterior._replace(**{name: getattr(posterior, name)[..., i] for name in names})
        check(part, y[:, i], kernel, 0.05)
    assert not np.any(posterior.mean[:, 2])
    assert not np.any(posterior.std[:, 2])


def test_a_given_amplitude_and_a_mask():
    pad = lambda values: np.pad(values, [(0, 3)] + [(0, 0)] * (values.ndim - 1), constant_values=9)  # noqa: E731
    task = ik.Task(pad(X), pad(Y), NEW, mask=np.arange(43) < 40)
    check(process(ik.Gaussian(2.0), task, 0.05), Y, ik.Gaussian(2.0), 0.05)
    posterior = process(ik.Gaussian(2.0), task, 0.05, amplitude=3.0)
    variance = exactly(Y, ik.Gaussian(2.0), 0.05)[2]
    assert posterior.amplitude == pytest.approx(3)
    np.testing.assert_allclose(posterior.std, np.sqrt(3 * (variance + 0.05)), rtol=0.01)


def test_what_computed_a_process_is_said_and_nothing_is_better_than_wrong_numbers():
    """A wide kernel and a small ridge need float64, then exact regression, then more digits."""
    task, kernel = ik.Task(X, Y, NEW), ik.Gaussian(20.0)
    posteriors = {ridge: process(kernel, task, ridge) for ridge in (1e-1, 1e-7, 1e-18)}
    for ridge in (1e-1, 1e-7):
        check(posteriors[ridge], Y, kernel, ridge)
    sources = [each.source for each in posteriors.values()]
    assert "transformer" in sources[0]
    assert "float32" in sources[0]
    assert "float64" in sources[1]
    assert sources[2].startswith("nothing")
    assert posteriors[1e-18].error == np.inf
    assert all(np.all(np.isnan(part)) for part in posteriors[1e-18][:5])


def test_a_transformer_whose_features_need_more_digits_does_not_run(programs):
    """Features in float32 lack eigenvalues of K that are as large as the ridge."""
    posterior = process(ik.Gaussian(20.0), ik.Task(X[:30], Y[:30], NEW), 1e-3)
    assert "float64" in posterior.source
    assert sum("evaluate_task" in name for name in programs) == 1


def table(path, y, x=X):
    rows = [",".join(map(repr, map(float, (*row, value)))) for row, value in zip(x, y, strict=True)]
    path.write_text("\n".join(["a,b,y", *rows]) + "\n")
    return path


def command(folder, y, *options, x=X):
    (folder / "q.csv").write_text("\n".join(["a,b", *(f"{a},{b}" for a, b in NEW)]) + "\n")
    argv = ["predict", str(table(folder / "t.csv", y, x)), "--target", "y"]
    return [*argv, "--queries", str(folder / "q.csv"), *options]


def written(folder, argv):
    """Columns of predictions.csv, and meta.json."""
    assert cli.main([*argv, "--out", str(folder / "out")]) == 0
    lines = list(csv.DictReader((folder / "out" / "predictions.csv").read_text().splitlines()))
    columns = {name: np.array([float(line[name] or "nan") for line in lines]) for name in lines[0]}
    return columns, json.loads((folder / "out" / "meta.json").read_text())


FIXED = ("--kernel", "gaussian", "--lengthscale", "10", "--steps", "30")


@pytest.mark.slow
def test_too_few_digits_in_float32_are_replaced_by_float64(tmp_path, capsys):
    rows, meta = written(tmp_path, command(tmp_path, Y, *FIXED, "--ridge", "1e-5"))
    output = capsys.readouterr()
    assert "float64 was used, because" in output.err
    assert "differ from the exact" not in output.err
    assert meta["dtype"] == ["float64"]
    assert meta["float64_because"] in output.err
    assert "dtype = float64" in output.out
    x, new = ((part - X.mean(0)) / X.std(0) for part in (X, NEW))
    mean, *_ = exactly((Y - Y.mean()) / Y.std(), ik.Gaussian(10.0), 1e-5, x, new)
    np.testing.assert_allclose(rows["exact"], Y.mean() + Y.std() * mean, rtol=1e-6)


def test_what_float64_cannot_compute_is_not_written(tmp_path, capsys):
    rows, meta = written(tmp_path, command(tmp_path, Y, *FIXED, "--ridge", "1e-17"))
    message = capsys.readouterr().err
    assert "the intervals are not written, because float64, too, has too few digits" in message
    assert all(np.all(np.isnan(rows[name])) for name in ("std", "low", "high"))
    assert meta["calibration"] == {}


@pytest.mark.slow
def test_a_given_amplitude_is_told(tmp_path, capsys):
    argv = command(tmp_path, Y, "--kernel", "gaussian", "--ridge", "0.1")
    base, meta = written(tmp_path, argv)
    rows, other = written(tmp_path, [*argv, "--amplitude", "2"])
    assert "amplitude of the prior: 2, given" in capsys.readouterr().out
    ratio = np.sqrt(2 / meta["process"]["amplitude"])
    np.testing.assert_allclose(rows["std"], ratio * base["std"], rtol=0.01)
    assert other["process"]["amplitude"] == pytest.approx(2)


def test_noise_gives_a_prediction_and_says_that_nothing_was_learned(tmp_path, capsys):
    rows, meta = written(tmp_path, command(tmp_path, NOISE[:, 2], x=NOISE[:, :2]))
    out = " ".join(capsys.readouterr().out.split())
    assert "nothing was learned: the mean is as good (leave-one-out RMSE" in out
    assert "estimated from the supports by maximum likelihood" in out
    assert np.all(np.isfinite(rows["exact"]))
    assert np.all(rows["std"] > 0)
    learned = meta["tasks"]["t.csv"]["loo_result"]
    others = (NOISE[:, 2] - NOISE[:, 2].mean()) / NOISE[:, 2].std() * 40 / 39
    assert not learned["ok"]
    assert learned["mean"] == pytest.approx(np.sqrt(np.mean(others**2)))


def test_a_grid_grows_until_its_best_point_is_inside_and_an_edge_is_said():
    axis = LogGrid(10.0, 6, -12, 12)
    steps = np.arange(-12, 13)
    fixed = _model_selection.FIXED
    for best in (-9, -3, 0, 8):  # one valley
        loss, (_, step) = search(fixed, axis, lambda _, best=best: (steps - best) ** 2.0)
        assert (loss, step) == (0, best)
    assert search(fixed, axis, lambda _: 0.0 * steps)[1] == (0, -6)
    assert search(axis, axis, lambda i: i + 1.0 * steps)[1] == (-12, -12)
    # what lies behind a hill is not searched: the best point of the grid is inside
    assert search(fixed, axis, lambda _: np.where(steps == -12, -1.0, steps**2.0))[1] == (0, 0)
    edges = [axis.edge(2.0, 2.0 * 10.0**power) for power in (-6, 0, 6)]
    assert edges == ["smallest", "", "largest"]


def test_what_float32_cannot_hold_is_not_chosen(x64):
    """Values of the exponential kernel far away, whatever the error of leave-one-out."""
    task = ik.Task(X, Y, np.full((1, 2), 1e5))
    with pytest.raises(ValueError, match="ridge must be given"):
        _model_selection.choose_ridge(ik.Exponential(0.01), task)
    assert _model_selection.choose_kernel(ik.Exponential, task, None).error == np.inf
    assert np.isfinite(_model_selection.choose_kernel(ik.Gaussian, task, None).error)
