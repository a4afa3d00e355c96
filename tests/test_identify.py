"""Identification: right on models whose solver is known, and modest where none is told apart."""

import json
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import cut_off, draw as one_task, often, stacked

import icl_krr as ik
from benchmarks.records import RUNS
from icl_krr.catalogue import SOLVERS, candidates, taken
from icl_krr.cli import main
from icl_krr.experiments import load
from icl_krr.experiments.identify import (
    IdentifyConfig,
    _trained_model,
    _trained_model as trained_model,
    examine,
)
from icl_krr.experiments.identify._probe_controls import tasks_of
from icl_krr.experiments.identify._trained_model import examine_positions, markdown
from icl_krr.experiments.solverbench import BenchConfig, bench_family, candidate_model
from icl_krr.kernels import make_kernel
from icl_krr.plots import filter_figure, identification_figure
from icl_krr.probes import agreement, identify, layerwise
from icl_krr.probes._naming import candidate_fit, comparison
from icl_krr.probes._naming.candidates import parameters, solve
from icl_krr.probes._naming.comparison import Options
from icl_krr.probes._naming.layer_predictions import split_halves

SETTING = cache(lambda: bench_family("linear", BenchConfig(tasks=8, steps=4, probe_tasks=2)))


@cache
def made_of(solver, kernel):
    """A known model of SolverBench in float64: its parameters, and tasks to fit and to score."""
    model = candidate_model(solver, kernel, SETTING())
    at = model.layers or tuple(range(5))

    def answers(task):
        return layerwise(model.weights, task)[jnp.array(at)]

    width = SETTING().kernel(kernel).bandwidth
    truth = {width: getattr(SETTING().kernel(kernel), width)} if width else {}
    fitted = SOLVERS[solver].fitted or {}
    truth |= {name: value for name, value in model.truth.known.items() if name in fitted}
    halves = split_halves(SETTING().tasks)
    return SimpleNamespace(answers=answers, truth=truth, halves=halves)


def found_of(solver, kernel, candidates, answers=None, **options):
    """The model of a solver, or other answers on its tasks, compared with some candidates."""
    subject = made_of(solver, kernel)
    options = {"candidates": candidates, "kernels": (kernel,), **options}
    return identify(answers or subject.answers, *subject.halves, **options)


DESCENTS = ("gradient_descent", "conjugate_gradient")
FIRST_ORDER = ("gradient_descent", "heavy_ball", "chebyshev", "conjugate_gradient")


@often("solver", FIRST_ORDER[:1], FIRST_ORDER)
def test_solvers_on_the_linear_kernel_are_identified(x64, solver):
    result = found_of(solver, "linear", FIRST_ORDER)
    assert (result.status, result.remain) == ("identified", (solver,))
    assert result.best.fit.alignment == (1, 2, 3, 4)
    assert all(distance.mean < 1e-3 for distance in result.best.distances.values())
    ridge = made_of(solver, "linear").truth["ridge"]
    assert abs(result.best.fit.values["ridge"] / ridge - 1) < 0.02
    for other in result.candidates[1:]:
        special = "special case" in other.reason
        assert special or other.distances["prediction"].interval[0] > 1e-3
    assert all(spaces["prediction"].mean > 0.05 for spaces in result.baselines.values())


CAUSAL = ("gradient_descent", "delta_rule", "prefix_conjugate_gradient")
SMOOTH = ("nadaraya_watson", "richardson")
OTHERS = (
    ("delta_rule", "linear", CAUSAL, (1, 1, 1, 1)),
    ("prefix_conjugate_gradient", "linear", CAUSAL, (1, 2, 3, 4)),
    ("nadaraya_watson", "exponential", SMOOTH, None),
    ("richardson", "exponential", SMOOTH, None),
)


@often(("solver", "kernel", "candidates", "alignment"), OTHERS[:1], OTHERS)
def test_other_solvers_are_identified(x64, solver, kernel, candidates, alignment):
    result = found_of(solver, kernel, candidates)
    assert (result.status, result.remain) == ("identified", (solver,))
    for name, value in made_of(solver, kernel).truth.items():
        error = abs(result.best.fit.values[name] / value - 1)
        assert error < (1e-3 if alignment else 0.02), name
    if alignment:
        assert result.best.fit.alignment == alignment
        assert all(distance.mean < 1e-6 for distance in result.best.distances.values())
        assert min(one.distances["hat"].mean for one in result.candidates[1:]) > 0.1


def test_the_delta_rule_is_identified_by_the_order_of_the_supports(x64):
    """A model that learns the supports from the last to the first is not close to it."""
    subject = made_of("delta_rule", "linear")

    def backwards(task):
        return subject.answers(task.replace(x=task.x[::-1], y=task.y[::-1]))

    result = found_of("delta_rule", "linear", ("delta_rule",), backwards)
    assert result.status == "none is close"
    assert result.best.distances["prediction"].interval[0] > 0.1


def test_what_is_no_candidate_is_close_to_none(x64):
    """Gradient descent's distances when only smoothing is offered; strata and layers add up."""
    result = found_of("gradient_descent", "exponential", ("nadaraya_watson",), strata=3)
    assert result.status == "none is close"
    gap, hat = (result.best.distances[space] for space in ("prediction", "hat"))
    away = f"{gap.mean:.2g} away in predictions and {hat.mean:.2g} away in hat matrices"
    nearest = f"(nearest: nadaraya_watson, {away})"
    assert result.verdict.startswith(f"none is close {nearest}; close is at")
    assert agreement([result, result]).verdict.startswith("none is close; nearest with each seed")
    assert "cond: condition number of K + ridge I" in " ".join(str(result).split())
    assert gap.interval[0] <= gap.mean <= gap.interval[1]
    assert np.isclose(gap.mean, np.mean(gap.by_layer))
    for (low, high), value in zip(gap.layer_intervals, gap.by_layer, strict=True):
        assert low < value < high
    assert (len(gap.by_stratum), len(result.strata), gap.matrix.shape) == (3, 4, (4, 17))
    chosen = np.asarray(gap.matrix)[range(4), list(result.best.fit.alignment)]
    assert np.allclose(chosen, gap.by_layer)


def zero(task):
    return jnp.zeros((5, task.num_queries))


def mean(task):
    return jnp.full((5, task.num_queries), jnp.mean(task.y)).at[0].set(0)


def stuck(task):
    """A gradient step before the first layer, and nothing in the layers."""
    return jnp.stack([0.005 * (task.x_query @ task.x.T @ task.y)] * 5)


RUN_NONE = (
    (zero, "gradient_descent", "linear", "zero", "predicting 0"),
    (stuck, "newton_schulz", "linear", "start", "the prediction before the first layer"),
    (mean, "nadaraya_watson", "exponential", "mean", "predicting the mean of y"),
)


@often(("answers", "solver", "kernel", "null", "words"), RUN_NONE[:2], RUN_NONE)
def test_no_solver_is_named_for_a_model_that_runs_none(x64, solver, kernel, answers, null, words):
    result = found_of("gradient_descent", "linear", (solver,), answers, kernels=(kernel,))
    assert (result.status, result.remain) == ("not identified", ())
    assert result.tied[0] == null
    assert all(distance.mean < 1e-12 for distance in result.baselines[null].values())
    assert f"no candidate is nearer than {words}" in result.verdict
    assert not any(name in result.verdict for name in candidates())
    assert all(one.reason for one in result.candidates)
    assert any(one.reason == f"no nearer than {words}" for one in result.candidates)
    assert f"not identified: no candidate is nearer than {words}" in " ".join(str(result).split())


def test_a_solver_that_starts_in_a_later_layer_is_named(x64):
    answers = made_of("gradient_descent", "linear").answers
    late = lambda task: jnp.roll(answers(task), 1, axis=0).at[0].set(0)  # noqa: E731
    result = found_of("gradient_descent", "linear", DESCENTS, late)
    assert (result.status, result.remain, result.tied) == ("identified", ("gradient_descent",), ())
    assert result.best.fit.alignment == (0, 1, 2, 3)
    assert result.verdict.startswith("identified: gradient_descent; every other candidate is")


@pytest.mark.parametrize("name", candidates())
def test_a_candidate_is_the_solver_of_its_name(x64, name):
    """So that what is fitted is what is claimed: the oracle's own parameters fit at once."""
    task = one_task(0, p=3)
    values = {
        "temperature": 2.0, "lengthscale": 1.5, "ridge": 0.3, "step_size": 0.02, "momentum": 0.4,
        "high": 9.0, "low_over_high": 0.1, "scale": 0.05, "num_supports": 7.0, "decay": 0.9,
        "initial": 2.0, "process_noise": 0.2,
    }  # fmt: skip
    overrides = {"chebyshev": {"spectrum": (0.9, 9.0)}, "newton_schulz": {"spectrum": (20.0, 20.0)}}
    same = ("ridge", "step_size", "momentum", "num_supports", "decay", "initial", "process_noise")
    row = SOLVERS[name]
    kernel = "exponential" if "exponential" in taken(name) else taken(name)[0]
    fitted = {key: np.float64(values[key]) for key in parameters(row, kernel)}
    options = {key: value for key, value in fitted.items() if key in same} | overrides.get(name, {})
    if row.iterates:
        options["steps"] = task.num_supports if row.sequential else 3
    oracle = ik.solvers.lookup(row)(make_kernel(kernel, fitted), task, **options).prediction
    expected = np.asarray(oracle)
    path = np.asarray(solve(row, kernel, np.log([*fitted.values()]), task, 3))
    if row.iterates and not row.sequential:
        assert np.allclose(path, expected, atol=1e-8)
    else:
        assert not np.any(path[0])
        assert np.allclose(path[1:], expected[-1] if row.iterates else expected, atol=1e-8)


def test_identify_refuses_what_it_cannot_compare(x64):
    for names, answers, message in (
        (("nadaraya_watson",), None, "kernels must contain a kernel that a candidate accepts"),
        (DESCENTS, lambda task: zero(task) / 0, "of layer_predictions must be finite, got nan"),
    ):
        with pytest.raises(ValueError, match=message):
            found_of("gradient_descent", "linear", names, answers)


@pytest.mark.parametrize(
    ("layer_predictions", "error", "got"),
    [
        (lambda task: zero(task)[0], ValueError, r"got shape \[6\]"),
        (lambda task: zero(task)[:1], ValueError, r"got shape \[1, 6\]"),
        (lambda task: zero(task)[:, 1:], ValueError, r"got shape \[5, 5\]"),
        (lambda task: [*zero(task)], TypeError, "got list; return one array"),
        (lambda task: zero(task).astype(int), TypeError, "must be floating point, got int"),
    ],
)
def test_shapes_of_predictions_are_checked_first(x64, programs, layer_predictions, error, got):
    halves = made_of("gradient_descent", "linear").halves
    programs.clear()
    with pytest.raises(error, match=got) as caught:
        identify(layer_predictions, *halves)
    assert programs == []
    if "array" in got or "shape" in got:
        assert "[layers + 1, queries] with layers >= 1 and queries = 6" in str(caught.value)


LINEAR = IdentifyConfig(tasks=12, probe_tasks=64, kernels=("linear",), steps=2)


def test_a_shift_scores_and_the_training_family_fits(x64):
    drawn = [tasks_of(load("linear"), replace(LINEAR, shift=name)) for name in (None, "larger_y")]
    for factor, plain, larger in zip((1, 4, 1), *drawn, strict=True):
        assert np.allclose(larger.y, factor * plain.y)


def test_a_run_is_examined_layer_by_layer(x64, monkeypatch):
    """The layer that was trained on linear tasks is a step of gradient descent.

    So is the start of Newton-Schulz, which takes no step then. What is known of the exact predictor
    stands beside it.
    """
    names = ("gradient_descent", "newton_schulz")
    monkeypatch.setattr(comparison, "all_candidates", lambda: names)
    findings = examine(load("linear"), LINEAR)
    identification = findings.identification
    assert identification.status == "close to"  # trained weights are not exact
    assert identification.remain == ("gradient_descent",)
    reasons = {one.fit.candidate: one.reason for one in identification.candidates}
    assert reasons["newton_schulz"] == "takes no step"
    assert all(distance.mean < 0.03 for distance in identification.best.distances.values())
    first, last = findings.layers
    assert last["error"] < 0.7 * min(last["shuffled"], last["untrained"], last["zero"])
    assert last["exact"] < last["error"]
    assert last["lens"] == pytest.approx(last["error"])
    assert last["error"] < last["other family"]
    assert "ridge" not in first
    assert 0.2 < last["distance"] < 0.6  # one step is not yet regression
    assert findings.filter.q.shape[0] == 2
    assert len(_trained_model.distance_rows(identification)) == 3 * len(identification.candidates)
    (bins,) = findings.filter.sigma.shape
    rows = _trained_model.filter_rows(findings)
    assert [row["q"] for row in rows] == findings.filter.q[1].tolist()
    assert len(rows) == bins
    assert rows[0]["exact"] == pytest.approx(1 / (rows[0]["sigma"] + findings.ridge))
    hat_distance = identification.best.distances["hat"]
    low, high = hat_distance.layer_intervals[0]
    assert f"| {hat_distance.by_layer[0]:.2g} ({low:.2g}, {high:.2g}) |" in markdown(findings)
    assert not cut_off(identification_figure(identification, "linear"))
    assert not cut_off(filter_figure(findings, "linear"))


def test_positions_are_numbers_of_supports_up_to_those_of_the_tasks(monkeypatch):
    def lengths(run, config, progress):
        progress("fitting")
        return run.family.num_supports, run.family.num_features

    monkeypatch.setattr(trained_model, "examine", lengths)
    run, words = load(RUNS / "linear-decoder"), []
    result = examine_positions(run, IdentifyConfig(), (8, 2, 12, 2), words.append)
    assert result == {2: (2, 3), 8: (8, 3), 12: (12, 3)}
    assert words == [f"{count} of 12 supports: fitting" for count in (2, 8, 12)]
    assert [*examine_positions(run, IdentifyConfig())] == [12]
    with pytest.raises(ValueError, match=r"positions must be <= 12, .*, got 13"):
        examine_positions(run, IdentifyConfig(), (13,))


@pytest.mark.slow
def test_the_command_writes_a_verdict_for_every_position(tmp_path, capsys):
    """A layer trained on ten supports is a step of gradient descent after five as well."""
    few = ["--tasks", "8", "--probe-tasks", "64", "--kernels", "linear", "--steps", "2"]
    out = ["--out", str(tmp_path), "--candidates", "gradient_descent", "cg"]
    assert main(["identify", "linear", "--positions", "5", *few, *out]) == 0
    record = json.loads((tmp_path / "identify.json").read_text())
    assert [entry["num_supports"] for entry in record["positions"]] == [5, 10]
    assert all(entry["remain"] == ["gradient_descent"] for entry in record["positions"])
    assert record["together"]["status"] == "close to"
    assert [entry["seed"] for entry in record["seeds"]] == [0, 1]
    assert record["positions"][-1]["candidates"] == record["candidates"]
    output = (tmp_path / "positions.md").read_text().splitlines()
    for entry, line in zip(record["positions"], output[2:], strict=True):
        assert line.startswith(f"| {entry['num_supports']} | {entry['layers'][-1]['error']:.3g} |")
        assert "| close to | gradient_descent | gradient_descent, linear |" in line
    names = {entry["candidate"] for entry in record["candidates"]}
    assert names == {"conjugate_gradient", "gradient_descent"}
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 14  # with two for each position
    assert max(map(len, lines[:-1])) <= 100
    assert "tables.txt; --long prints" in " ".join(" ".join(lines).split())
    assert "after some supports" in " ".join((tmp_path / "tables.txt").read_text().split())


def test_progress_says_the_time_that_is_left(monkeypatch):
    """By that of the first candidate, for each of its kernels; the unit here is a minute."""
    clock, words = [0.0], []

    def fit(name, kernels):
        clock[0] += 60 * len(kernels)

    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    names = ("chebyshev", "richardson", "nadaraya_watson")
    Options(names, ("exponential", "gaussian"), progress=words.append).fits(fit)
    left = ["", ", about 4 min left", ", about 2 min left"]
    assert words == [name + more for name, more in zip(names, left, strict=True)]


def test_searches_with_more_points_run_the_same_program(x64):
    tasks = SETTING().tasks
    data = candidate_fit.PredictionData(tasks, np.ones((len(tasks.x), 1, tasks.num_queries)))
    fixed = candidate_fit.PREDICTIONS, "nadaraya_watson", "exponential", 1
    problem, size = candidate_fit.FitProblem(*fixed, data, np.asarray), candidate_fit.BLOCK
    before = candidate_fit.search._cache_size()
    every, first = (problem.search(problem.halton(count)) for count in (2 * size, size))
    assert candidate_fit.search._cache_size() == before + 1
    assert [len(part) for part in every] == [2 * size] * 2
    assert all(np.array_equal(part[:size], few) for part, few in zip(every, first, strict=True))


def descent(x, y, x_query, steps=4, step_size=0.02):
    """Gradient descent on the linear kernel, in NumPy alone."""
    w, after = np.zeros(x.shape[1]), []
    for _ in range(steps + 1):
        after.append(x_query @ w)
        w = w + step_size * x.T @ (y - x @ w)
    return after


def test_a_function_of_arrays_is_identified(x64):
    answers = ik.probes.array_layer_predictions(descent, layers=4)
    result = found_of("gradient_descent", "linear", DESCENTS, answers)
    assert (result.status, result.remain) == ("identified", ("gradient_descent",))
    assert np.isclose(result.best.fit.values["step_size"], 0.02, rtol=1e-3)
    task = one_task(0, q=5)
    longer = ik.probes.array_layer_predictions(partial(descent, steps=5), layers=4)
    with pytest.raises(Exception, match=r"= \[5, 5\], got shape \[6, 5\]"):
        jax.block_until_ready(longer(task))


@pytest.mark.parametrize("queries", [2, 9])
def test_the_hat_matrix_of_a_function_of_arrays(x64, queries):
    """By reverse and by forward mode; in a batch, too."""
    single = one_task(0, p=3, n=6, q=queries)
    square = lambda x, y, x_query: [x_query @ x.T @ y**2]  # noqa: E731
    answers = ik.probes.array_layer_predictions(square, layers=0)
    hat = np.asarray(jax.jit(lambda task: ik.probes.hat_matrix(answers, task))(single))
    expected = single.x_query @ single.x.T * 2 * single.y
    np.testing.assert_allclose(hat[0], expected, rtol=1e-6, atol=1e-9)
    tasks = stacked(single, one_task(1, p=3, n=6, q=queries))
    many = jax.jit(jax.vmap(lambda task: ik.probes.hat_matrix(answers, task)))(tasks)
    np.testing.assert_allclose(np.asarray(many)[0], hat, rtol=1e-10)
    with pytest.raises(ValueError, match="has no derivative in x or x_query"):
        jax.jit(jax.jacobian(lambda x: answers(single.replace(x=x))))(single.x)
