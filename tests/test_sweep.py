"""`icl-krr sweep`: its numbers, and that no cell is run twice."""

import csv
import json
import re
from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from helpers import numpy

import icl_krr as ik
from icl_krr import cli, plots, theory
from icl_krr.catalogue import AXES, AxisEntry, compared
from icl_krr.experiments import SweepConfig, _study
from icl_krr.experiments._shared.rows import Plot, tidy
from icl_krr.experiments._sweep import grid as module
from icl_krr.experiments._sweep.axis import along, positive
from icl_krr.experiments._sweep.config import axis_of
from icl_krr.experiments._sweep.grid import last, run_cell
from icl_krr.experiments._sweep.trial import beside_exact, draw, kernel_of
from icl_krr.report import sweep_section, training_section
from icl_krr.tabular import DepthResult

SMALL = {"num_supports": 8, "num_queries": 5, "steps": 4}
ARGV = ["--num-supports", "8", "--num-queries", "5", "--steps", "4"]
GRID = {
    "depth": (),
    "width": (1, 3),
    "ridge": (0.1, 2.0),
    "temperature": (0.5, 2.0),
    "context": (3, 8),
    "features": (2, 4),
    "precision": ("float32", "float64"),
    "arithmetic": (16, 256),
}


def small(axis, **options):
    return SweepConfig(axis, **{"values": GRID[axis], "seeds": 1, **SMALL, **options})


def task_of(config):
    return numpy(draw(jax.random.split(jax.random.key(0))[1], config))


def exact_of(kernel, task, ridge):
    return numpy(ik.solvers.exact(kernel, task, ridge=ridge).prediction)


def gaps_of(kernel, task, ridge, exact):
    """The gaps of conjugate gradient on this kernel to an exact answer, after every step."""
    run = ik.solvers.conjugate_gradient(kernel, task, ridge=ridge, steps=SMALL["steps"])
    return np.linalg.norm(np.asarray(run.prediction) - exact, axis=1) / np.linalg.norm(exact)


@pytest.mark.parametrize("axis", ["ridge", "temperature", "context", "width", "features"])
def test_rows_are_what_the_solver_gives(x64, axis):
    value = {"context": 3, "width": 3, "features": 4}.get(axis, 2.0)
    config = small(axis, values=(value,), num_features=4 if axis == "width" else 2)
    line = {"width": "coordinates", "features": "landmarks"}.get(axis, "conjugate_gradient")
    kernel, ridge, task = ik.Exponential(config.temperature), config.ridge, task_of(config)
    if axis == "ridge":
        ridge = value
    elif axis == "temperature":
        kernel = ik.Exponential(value)
    elif axis == "context":
        task = ik.Task(x=task.x[:value], y=task.y[:value], x_query=task.x_query)
    elif axis == "width":
        kernel = ik.Linear()
    exact = exact_of(kernel, task, ridge)
    if axis == "width":
        kernel = ik.sketched(kernel, ik.sketches.coordinates(4, value))
    elif axis == "features":
        kernel = ik.sketched(kernel, numpy(ik.sketches.nystrom_features(kernel, task.x[:value])))
    rows = run_cell(config, line, 0)
    assert {(row["line"], row["seed"], row["value"]) for row in rows} == {(line, 0, value)}
    assert np.allclose([row["gap"] for row in rows], gaps_of(kernel, task, ridge, exact), atol=1e-7)
    gap = np.linalg.norm(np.mean(task.y) - exact) / np.linalg.norm(exact)  # of no masked support
    assert rows[0]["mean gap"] == pytest.approx(gap)


def test_sketches_keep_so_many_features_of_the_kernel(x64):
    """The Nystrom features; d_eff and the tail are there."""
    config = small("width", kernel="exponential", num_features=4)
    task, of = task_of(config), ik.Exponential(config.temperature)
    exact, sigma = exact_of(of, task, config.ridge), numpy(theory.eigenvalues(of, task))
    for line in ("best", "landmarks"):
        for row in last(run_cell(config, line, 0)):
            m = row["value"]
            whole = {"best": (task.x, m), "landmarks": (task.x[:m], None)}[line]
            sketch = numpy(ik.sketches.nystrom_features(of, whole[0], width=whole[1]))
            gaps = gaps_of(ik.sketched(of, sketch), task, config.ridge, exact)
            assert row["gap"] == pytest.approx(gaps[-1], abs=1e-7), (line, m)
            d_eff = numpy(theory.effective_dimension(sigma, config.ridge))
            assert row["d_eff"] == pytest.approx(float(d_eff))
            assert row["tail"] == pytest.approx(np.sum(sigma[:-m]) / np.sum(sigma))


def test_a_sketch_with_the_best_metric(x64):
    """Queries and keys are the least-squares estimate of x from P^T x."""
    config = small("width", values=(2,), num_features=4)
    key, _ = jax.random.split(jax.random.key(0))
    task, P = task_of(config), numpy(ik.sketches.orthonormal(key, 4, 4))[:, :2]
    C, kernel = task.x.T @ task.x, ik.Linear()
    sketched = ik.sketched(kernel, P @ np.linalg.solve(P.T @ C @ P, P.T @ C))
    exact = exact_of(kernel, task, config.ridge)
    gaps = [row["gap"] for row in run_cell(config, "random, best metric", 0)]
    assert np.allclose(gaps, gaps_of(sketched, task, config.ridge, exact), atol=1e-9)


def test_the_depth_has_the_rate_of_its_solver(x64):
    config = small("depth")
    rows, task = run_cell(config, "chebyshev", 0), task_of(config)
    low, high = numpy(ik.spectral_bounds(ik.Exponential(0.5), task, ridge=config.ridge))
    bounds = numpy(theory.chebyshev_rate(low, high, np.arange(5.0)))
    assert np.allclose([row["bound"] for row in rows], bounds)
    assert [row["value"] for row in rows] == [row["step"] for row in rows] == list(range(5))


def run(folder, *argv):
    return cli.main(["sweep", "depth", *ARGV, "--out", str(folder), *argv])


def rows_of(folder):
    return list(csv.DictReader((folder / "results.csv").read_text().splitlines()))


@pytest.fixture
def no_figure(monkeypatch):
    """For tests of what a command computes: `test_what_a_run_leaves` has the figure."""
    monkeypatch.setattr(plots, "sweep_figure", lambda *_: None)
    monkeypatch.setattr(plots, "images", lambda *_: {})


@pytest.fixture
def calls(monkeypatch, no_figure):
    """The cells that are run, one after the other."""
    names = []
    original = module.run_cell

    def counted(config, line, seed):
        names.append((line, seed))
        return original(config, line, seed)

    monkeypatch.setattr(module, "run_cell", counted)
    return names


def test_a_run_is_taken_up_where_it_was(tmp_path, calls, monkeypatch, capsys):
    lines = ("--lines", "chebyshev", "richardson")
    assert run(tmp_path / "whole", *lines, "--seeds", "2") == 0
    assert len(calls) == 4
    assert run(tmp_path / "whole", *lines, "--seeds", "2") == 0
    assert len(calls) == 4
    assert "4 of 4 cells (pairs of line and seed) were finished before" in capsys.readouterr().err
    assert run(tmp_path / "whole", *lines, "--seeds", "3") == 0
    assert calls[4:] == [("chebyshev", 2), ("richardson", 2)]

    counted, broken = module.run_cell, tmp_path / "broken"

    def stopped(config, line, seed):
        if seed == 1:
            raise KeyboardInterrupt
        return counted(config, line, seed)

    monkeypatch.setattr(module, "run_cell", stopped)
    assert run(broken, *lines, "--seeds", "2") == 130
    assert not (broken / "results.csv").exists()
    monkeypatch.setattr(module, "run_cell", counted)
    del calls[:]
    assert run(broken, *lines, "--seeds", "3") == 0
    assert ("chebyshev", 0) not in calls
    key = lambda row: (row["line"], row["seed"], int(row["step"]))  # noqa: E731
    assert sorted(rows_of(broken), key=key) == sorted(rows_of(tmp_path / "whole"), key=key)


def test_what_a_run_leaves(tmp_path, capsys):
    assert run(tmp_path, "--lines", "chebyshev", "--seeds", "1", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    meta = json.loads((tmp_path / "meta.json").read_text())
    assert printed["meta"] == meta
    assert len(printed["rows"]) == len(rows_of(tmp_path)) == 5
    assert meta["config"]["num_supports"] == 8
    assert meta["dtype"] == "float32"
    assert {"seed", "versions", "device"} <= set(meta)
    assert (tmp_path / "depth.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_has_the_baselines(x64, no_figure, tmp_path, capsys):
    assert run(tmp_path, "--lines", "chebyshev", "--values", "0", "4", "--seeds", "1") == 0
    table = {
        cells[0]: cells[1:]
        for line in capsys.readouterr().out.splitlines()
        if (cells := re.findall(r"[^│┃ ][^│┃]*(?<! )", line)) and line[0] == "│"
    }
    task = task_of(small("depth"))
    exact = exact_of(ik.Exponential(0.5), task, SweepConfig("depth").ridge)
    smooth = numpy(ik.solvers.nadaraya_watson(ik.Exponential(0.5), task).prediction)
    predictions = {"zero": 0.0, "mean": np.mean(task.y), "nadaraya_watson": smooth, "exact": exact}
    for name, f in predictions.items():
        gap = np.linalg.norm(f - exact) / np.linalg.norm(exact)
        assert table[name] == [f"{gap:.2g}"] * 2
        assert [float(row[f"{name} gap"]) for row in rows_of(tmp_path)] == pytest.approx([gap] * 2)
    assert list(table) == ["chebyshev", *predictions]


@pytest.mark.parametrize("axis", ["width", "precision"])
def test_baselines_see_what_the_model_sees(x64, axis):
    """The linear kernel has no Nadaraya-Watson estimator."""
    config = small(axis)
    rows = last(run_cell(config, config.lines[0], 0))
    assert [row["exact gap"] for row in rows] == [0.0, 0.0]
    assert [row["zero gap"] for row in rows] == pytest.approx([1.0, 1.0])
    assert np.isnan([row["nadaraya_watson gap"] for row in rows]).all() == (axis == "width")


def test_another_sweep_is_left_alone(no_figure, tmp_path, capsys):
    assert run(tmp_path, "--lines", "chebyshev", "--seeds", "1") == 0
    before = rows_of(tmp_path)
    assert run(tmp_path, "--lines", "chebyshev", "--seeds", "1", "--temperature", "2.0") == 2
    assert "temperature: stored 0.5, given 2.0" in capsys.readouterr().err
    assert rows_of(tmp_path) == before


def test_what_is_shown_is_what_was_asked_for(no_figure, tmp_path, capsys):
    assert run(tmp_path, "--lines", "chebyshev", "--seeds", "2") == 0
    capsys.readouterr()
    assert run(tmp_path, "--lines", "richardson", "--seeds", "1", "--seed", "1", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert {(row["line"], row["seed"]) for row in printed["rows"]} == {("richardson", 1)}
    cells = [("chebyshev", 0), ("chebyshev", 1), ("richardson", 1)]
    assert [(cell["line"], cell["seed"]) for cell in printed["meta"]["cells"]] == cells
    assert len(rows_of(tmp_path)) == 15
    assert json.loads((tmp_path / "meta.json").read_text()) == printed["meta"]


def test_an_axis_has_all_solvers_that_are_compared_but_two_that_say_which():
    """Causal solvers are few, and no comparison has them; with tables, every value is compiled."""
    axes = {name: axis_of(name) for name in AXES}
    of_solvers = {name: {*compared(axis.kernel)} for name, axis in axes.items() if axis.solvers}
    few = [name for name, every in of_solvers.items() if every - {*SweepConfig(name).lines}]
    assert few == ["position", "arithmetic"]
    assert "nadaraya_watson" in {*SweepConfig("ridge").lines} - {*SweepConfig("depth").lines}


@along(positive, values=GRID["ridge"], lines=("chebyshev",), solvers=True)
def another(line, value, task, config, key):
    return beside_exact(line, kernel_of(config), task, value, config)


def test_an_axis_of_ones_own_is_a_function_and_a_row(monkeypatch):
    monkeypatch.setitem(AXES, "another", AxisEntry("another", another))
    config = SweepConfig("another", seeds=1, **SMALL)
    ((_, rows),) = _study.run(module.study(config)).cells
    built_in = run_cell(small("ridge"), "chebyshev", 0)
    assert [row["gap"] for row in rows] == [row["gap"] for row in built_in]


def test_defaults_fit_what_was_asked_for():
    assert max(SweepConfig("context", num_supports=20).values) == 16
    assert max(SweepConfig("width", num_features=7).values) == 6
    assert SweepConfig("features", lines=("positive",), values=(7, 99)).values == (7, 99)
    config = SweepConfig("ridge", lines=("richardson", "richardson"), values=(1.0, 1.0))
    assert (config.lines, config.values) == (("richardson",), (1.0,))


def test_figure_and_page_are_cut_where_a_line_diverges():
    """And a page has a sentence in place of a chart with one point on its axis."""
    axes = {"line": ["good", "bad"], "seed": [0, 1], "value": [2], "step": range(4)}
    errors = np.array([[0.9, 0.5, 0.1, 0.01], [1.0, 7.0, 1e9, 1e32]])[:, None, None]
    both = {"gap": errors, "rmse": 2 * errors}
    rows = tidy(axes, **both, **{"exact rmse": 0.1, "zero rmse": 2.0})
    plot = Plot("step", "gap", ("line",))
    rule = "10 times that of the prediction 0, are not drawn: bad."
    cut = [f"Values above {limit}, {rule}" for limit in (10, 20)]
    figure = plots.sweep_figure("depth", plot, rows, "float32")
    assert [axis.get_ylim()[1] for axis in figure.axes] == [10, 20]
    (legend,), (top, bottom) = figure.legends, figure.axes
    assert legend.get_title().get_text() == "\n".join(cut)
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["good", "bad", "exact KRR", "zero prediction"]
    assert "units of y" in bottom.get_ylabel()
    assert all(words in top.get_title() for words in ("2 seeds", "float32"))
    row = partial(SimpleNamespace, predictor="zero", alpha_error=np.nan, bound=np.nan)
    steps, zero = ([row(step=t, gap=10.0**t, rmse=2 * 10.0**t) for t in k] for k in (range(4), [0]))
    facts = dict.fromkeys(("n", "p", "ridge", "d_eff", "cond", "blocks_per_step"), 1)
    facts |= {"solver": "bad", "kernel": "linear", "dtype": "float64"}
    figure = plots.depth_figure({"a task": DepthResult(steps, zero, facts, {}, ik.Linear())}, 0)
    assert [axis.get_ylim()[1] for axis in figure.axes] == [10, 20]
    section = sweep_section("sweep-1", "depth", plot, rows, "")
    assert [words.partition(". ")[2] for words in section.words] == cut
    for chart, limit in zip(section.parts[0].charts, (10, 20), strict=True):
        (drawn,) = chart.complete()["layer"]
        assert drawn["encoding"]["y"]["scale"]["domain"][1] <= 100
        assert f"datum.value <= {limit}" in json.dumps(drawn)
    single = sweep_section("sweep-1", "width", Plot("value", "gap", ("line",)), rows, "")
    assert single.words == ("There is one value of width, 2: the table has its numbers.",)
    assert not single.parts[0].charts
    assert len(single.parts[0].tables) == 2
    trained = {"step": 8, "loss": 1e9, "validation": 0.5, "exact": 0.1, "nadaraya_watson": 0.2}
    trained |= {"mean": 0.9, "zero": 1.0}
    section = training_section("a run", [trained, trained | {"step": 16, "loss": 0.5}], "")
    assert section.words[1] == cut[0].replace("bad", "training batches")
    points = section.parts[0].charts[0].complete()["data"]["values"]
    assert max(point["value"] for point in points) == 1
    single = training_section("a run", [trained], "")
    assert not single.parts[0].charts
    assert "one step" in single.words[-1]
