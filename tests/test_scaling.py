"""Curves of tuned solvers, the steps that are as good as a model, and slopes over models."""

import jax
import numpy as np
import pytest
from scipy.stats import qmc

from icl_krr.catalogue import SOLVERS
from icl_krr.experiments import _scaling, curves, draw_tasks
from icl_krr.report import scaling_section

KEY = (0.8, 0.05, 2, 6)
NAMES = ("gradient_descent", "newton_schulz", "conjugate_gradient")
POINTS = 32


@pytest.fixture(scope="module")
def family():
    return _scaling.family_of(KEY, queries=4)


@pytest.fixture(scope="module")
def solver_curves(family):
    with jax.enable_x64(True):
        return curves(family, names=NAMES, steps=6, tasks=16, points=POINTS)


def models():
    """Three depths, each after two stages, and a model of other tasks."""
    one = dict(zip(_scaling.TASK_SETTINGS, KEY, strict=True)) | {"width": 32, "sampling": 0.0}
    rows = [
        one | {"model": f"depth {d}", "depth": d, "updates": u, "excess": 800 / d**2 / u}
        for d in (8, 4, 12)
        for u in (100, 200)
    ]
    return [*rows, rows[0] | {"model": "other", "num_supports": 7}]


def regressed(family, place):
    """Drawn tasks with their kernel matrices, exact regression and its variances, by NumPy."""
    tasks = draw_tasks(jax.random.split(jax.random.key(0))[place], 16, family)
    for x, y, x_query in zip(*map(np.asarray, (tasks.x, tasks.y, tasks.x_query)), strict=True):
        squares = [((z[:, None] - x[None]) ** 2).sum(axis=-1) for z in (x, x_query)]
        gram, k = (np.exp(-values / 2 / KEY[0] ** 2) for values in squares)
        weights = np.linalg.solve(gram + KEY[1] * np.eye(len(x)), k.T).T
        yield gram, k, y, weights @ y, 1 - (weights * k).sum(axis=1)


def test_curves_go_from_the_answer_0_to_exact_regression(solver_curves, family, x64):
    _, _, _, exact, variances = zip(*regressed(family, 1), strict=True)
    for name in NAMES:
        excess = solver_curves.excess(name)
        if name != "newton_schulz":  # which starts from one gradient step
            np.testing.assert_allclose(excess[0], np.mean(np.square(exact)) / np.mean(variances))
        low, high = solver_curves.interval(name)
        assert np.all((low <= excess + 1e-9) & (excess <= high + 1e-9))
    conjugate = solver_curves.excess("conjugate_gradient")
    assert conjugate[6] < 1e-8 < conjugate[4]
    descent = solver_curves.excess("gradient_descent")
    assert solver_curves.excess("newton_schulz")[6] < descent[6] / 10


def descended(step, gram, k, y, exact, _):
    """Squared distances of gradient descent from exact regression after 0 to 6 steps."""
    alpha = 0 * y
    for _ in range(7):
        yield np.mean((k @ alpha - exact) ** 2)
        alpha = alpha + step * (y - gram @ alpha - KEY[1] * alpha)


def test_a_step_size_has_the_least_error_on_tasks_apart(solver_curves, family, x64):
    tuning, scored = (list(regressed(family, place)) for place in (0, 1))
    low, high, _, _ = SOLVERS["gradient_descent"].fitted["step_size"]
    size = np.mean([np.linalg.norm(gram) for gram, *_ in tuning])
    steps = 10 ** (low + (high - low) * qmc.Halton(1, scramble=False).random(POINTS)[:, 0]) / size
    apart, here = (
        np.array([[[*descended(step, *task)] for task in tasks] for step in steps])
        for tasks in (tuning, scored)
    )
    best, other = (np.argmin(one.mean(axis=1), axis=0) for one in (apart, here))
    assert np.any(best != other)
    squares = solver_curves.squares["gradient_descent"]
    np.testing.assert_allclose(squares, here[best, :, range(7)].T, rtol=1e-6)


def test_a_smaller_excess_takes_more_steps(solver_curves):
    curve = solver_curves.excess("gradient_descent")
    steps = [_scaling.equivalent_steps(curve, excess) for excess in (99, *curve[1:], 0)]
    assert steps[0] == 0
    assert steps[-1] is None
    assert steps[1:-1] == sorted(steps[1:-1])
    row = {"excess": float(curve[3]), "sampling": 0.0}
    steps_of = _scaling.equivalents(solver_curves, row)["gradient_descent"]
    assert steps_of["from"] <= steps_of["steps"] == 3
    assert steps_of["to"] is None or steps_of["to"] >= 3
    assert _scaling.format_steps(steps_of | {"to": None}).endswith("to > 6)")


def test_the_last_row_of_a_model_is_its_last_stage():
    last = {row["model"]: row["updates"] for row in _scaling.last_stages(models())}
    assert last == {"depth 8": 200, "depth 4": 200, "depth 12": 200, "other": 100}


def test_the_page_shows_models_beside_solvers(solver_curves):
    """Of these, only those with the same tasks have equivalent steps."""
    section = scaling_section(models(), KEY, solver_curves, "seed 0")
    (board,) = section.parts
    assert [chart.title.split()[-1] for chart in board.charts] == ["depth", "updates"]
    points = [chart.complete()["data"]["values"] for chart in board.charts]
    values = {(one["line"], one["x"]): one["value"] for one in points[0]}
    assert values["conjugate gradient", 2] == solver_curves.excess("conjugate_gradient")[2]
    np.testing.assert_allclose([values["trained decoder", d] for d in (4, 12)], [1 / 4, 1 / 36])
    assert len([x for line, x in values if line == "trained decoder"]) == 3
    ((_, header, lines),) = board.tables
    assert header[-3:] == [name.replace("_", " ") for name in NAMES]
    assert [line[-1] == "-" for line in lines] == 6 * [False] + [True]
    assert {(one["line"], one["x"]) for one in points[1]} >= {("depth 4", 100), ("other", 100)}
    # a solver that diverges does not flatten the others
    squares = {"newton_schulz": np.full((16, 7), 1e32)}
    diverged = solver_curves._replace(squares=solver_curves.squares | squares)
    section = scaling_section(models(), KEY, diverged, "seed 0")
    points = section.parts[0].charts[0].complete()["data"]["values"]
    limit = 10 * solver_curves.excess("gradient_descent")[0]
    assert {one["line"] for one in points} == {line for line, _ in values} - {"newton schulz"}
    assert max(one["value"] for one in points) <= limit
    assert f"Values above {limit:.3g}, 10 times that of the prediction 0" in section.words[2]
