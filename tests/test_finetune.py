"""Training from a construction: distances, what is read off trained weights, the experiment."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import cut_off, dense, draw, relative

import icl_krr as ik
from icl_krr.experiments.finetune import comparison, problem as problems
from icl_krr.experiments.finetune.problem import (
    FinetuneConfig,
    chebyshev_step_sizes,
    draw_problem,
    gradient_descent,
    train_without_divergence,
)
from icl_krr.plots import finetune_depth_figure, finetune_path_figure
from icl_krr.probes import drift

SMALL = FinetuneConfig(
    depths=(1, 2), depth=2, updates=4, batch=8, every=2, tuning=4, tasks=8, seeds=2,
    num_features=3, num_supports=6,
)  # fmt: skip


def gd(eta=0.1, steps=2, curvature=None):
    if curvature is None:
        return ik.constructions.gradient_descent(
            ik.Linear(), num_features=3, ridge=0.3, steps=steps, step_size=eta
        )
    return ik.constructions.gradient_descent_plus_plus(
        ik.Linear(), num_features=3, steps=steps, step_size=eta, curvature=curvature
    )


def test_drift_is_where_the_weights_moved(x64):
    """A step size twice as large: alpha, r and prediction are written twice as much, by the MLP."""
    rows = drift(gd(0.2), gd(0.1))
    moved = {(row["part"], row["from"], row["to"]) for row in rows if row["change"] > 1e-12}
    assert moved >= {("mlp, query", "K_r", "prediction"), ("mlp, support", "r", "alpha")}
    assert {to for _, _, to in moved} == {"alpha", "r", "prediction"}
    assert not any("head" in part for part, _, _ in moved)
    written = [row["change"] for row in rows if row["to"] == "prediction" and row["block"] == 0]
    # K_r -> prediction 0.1 among K_r -> K_r -1, r -> alpha 0.1 and the like
    assert all(0.05 < change < 0.1 for change in written)
    assert all(row["change"] == 0 for row in drift(gd(), gd()))


def test_drift_compares_models_of_one_depth():
    for model, start in ((gd(steps=3), gd()), (gd(), gd(steps=3))):
        with pytest.raises(ValueError, match="model must have the layout and the depth of start"):
            drift(model, start)


def test_drift_does_not_feel_what_no_prediction_feels(x64):
    """Queries twice as large and values half as large are the same heads."""
    model = dense(gd())
    (block,) = model.weights.steps
    (heads,) = block.attention
    (write,) = heads.writes
    other = heads.replace(query=2 * heads.query, writes=(write.replace(value=0.5 * write.value),))
    steps = (block.replace(attention=(other,)),)
    same = model.replace(weights=model.weights.replace(steps=steps))
    assert max(row["change"] for row in drift(same, model)) < 1e-12
    with pytest.raises(ValueError, match="model must have the layout and the depth"):
        drift(gd(steps=3), gd())


def test_the_steps_that_are_read_off_are_those_of_the_weights(x64):
    """A head that takes 0.05 X^T X x from x makes GD++ of gradient descent."""
    model = dense(gd(0.17))
    steps, curvatures = comparison.block_coefficients(model)
    assert np.allclose(steps, 0.17)
    assert np.allclose(curvatures, 0)
    x, (block,) = model.layout.channels("x"), model.weights.steps
    (heads,) = block.attention
    (write,) = heads.writes
    more = np.zeros((2, model.layout.width, 3))
    more[:, x] = np.eye(3)
    value = np.concatenate([write.value.blocks["stream"], -0.05 * more], axis=2)
    out = np.concatenate([write.out, more.transpose(0, 2, 1)], axis=1)
    wider = write.replace(value=ik.Read({"stream": value}, value.shape[2]), out=out)
    steps = (block.replace(attention=(heads.replace(writes=(wider,)),)),)
    curved = model.replace(weights=model.weights.replace(steps=steps))
    steps, curvatures = comparison.block_coefficients(curved)
    assert np.allclose(steps, 0.17)
    assert np.allclose(curvatures, 0.05)


def test_gradient_descent_takes_a_step_size_for_each_block(x64):
    p, task = draw_problem(SMALL, 0), draw(1, p=3)
    sizes = chebyshev_step_sizes(0.5, 9.0, 4)
    assert np.allclose(np.sort(1 / sizes), 4.75 + 4.25 * np.cos(np.pi * np.array([7, 5, 3, 1]) / 8))
    x, y = task.x, task.y
    A, alpha = x @ x.T + p.ridge * np.eye(7), np.zeros(7)
    for eta in np.asarray(sizes):
        alpha = alpha + eta * (y - A @ alpha)
    ours = ik.predict(gradient_descent(p, 4, sizes), task)
    assert relative(ours, np.asarray(task.x_query) @ x.T @ alpha) < 1e-12


@pytest.mark.slow
def test_a_rate_at_which_training_diverges_gives_way_to_the_next_lower(x64):
    high, low = 1e6, 1e-4
    p = draw_problem(replace(SMALL, learning_rates=(high, low)), 0)
    seen = lambda update, model, loss: [{"update": update, "loss": loss}]  # noqa: E731
    first = dense(gd())
    model, rate, rows = train_without_divergence(p, first, 0, seen)
    assert rate == low
    assert [row["update"] for row in rows] == [0, 2, 4]
    assert rows[0]["loss"] == p.loss(first)
    assert rows[-1]["loss"] == p.loss(model) < 2 * rows[0]["loss"]
    alone = train_without_divergence(
        p._replace(config=replace(SMALL, learning_rates=(high,))), first, 0, seen
    )
    assert alone[1] == high
    assert not alone[2][-1]["loss"] < 2 * rows[0]["loss"]


@pytest.mark.slow
def test_the_experiment_says_what_it_measured(monkeypatch):
    """Untuned here: that takes longer than all the rest."""
    monkeypatch.setattr(problems.FinetuneProblem, "tune_scalars", lambda p, build, first: first)
    found = comparison.compare(replace(SMALL, seeds=1))
    methods = {row["method"] for row in found.losses}
    assert methods >= {
        "textbook step",
        "GD++, tuned",
        comparison.OWN_WEIGHTS,
        comparison.ALL_WEIGHTS,
        comparison.ALL_WEIGHTS_FROM_GD_PLUS_PLUS,
    }
    assert len(found.losses) == 2 * len(methods)
    for row in found.losses:
        assert row["loss"] > row["exact"]
        assert (row["gain"] == 1) == (row["method"] == "textbook step") or row["gain"] > 0
    assert [row["update"] for row in found.path[:6:2]] == [0, 2, 4]
    assert all(row["change"] == 0 for row in found.path if row["update"] == 0)
    assert found.path[0]["loss"] != found.path[-1]["loss"]
    assert np.isclose(
        found.path[0]["step x high"], 2 / (1 + 0.06 / draw_problem(SMALL, 0).spectrum[1]), atol=1e-3
    )
    for header, lines in (comparison.loss_table(found), comparison.most_moved_table(found)):
        assert all(len(line) == len(header) for line in lines)
    for figure in (finetune_depth_figure, finetune_path_figure):
        assert not cut_off(figure(found))
