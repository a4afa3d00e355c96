"""Training from a construction: distances, what is read off trained weights, the benchmark."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import cut_off, dense, draw, relative

import icl_krr as ik
from benchmarks import finetune
from icl_krr.probes import weight_difference

SMALL = finetune.Config(
    depths=(1, 2), depth=2, updates=4, batch=8, every=2, tuning=4, tasks=8, seeds=2,
    num_features=3, num_supports=6,
)  # fmt: skip


def gd(eta=0.1, steps=2):
    options = {"ridge": 0.3, "steps": steps, "step_size": eta}
    return ik.constructions.gradient_descent(ik.Linear(), num_features=3, **options)


def test_drift_is_where_the_weights_moved(x64):
    """A step size twice as large: alpha, r and prediction are written twice as much, by the MLP."""
    rows = weight_difference(gd(0.2), gd(0.1))
    moved = {(row["part"], row["from"], row["to"]) for row in rows if row["change"] > 1e-12}
    assert moved >= {("mlp, query", "K_r", "prediction"), ("mlp, support", "r", "alpha")}
    assert {to for _, _, to in moved} == {"alpha", "r", "prediction"}
    assert not any("head" in part for part, _, _ in moved)
    written = [row["change"] for row in rows if row["to"] == "prediction" and row["block"] == 0]
    # K_r -> prediction 0.1 among K_r -> K_r -1, r -> alpha 0.1 and the like
    assert all(0.05 < change < 0.1 for change in written)
    assert all(row["change"] == 0 for row in weight_difference(gd(), gd()))


def test_drift_does_not_feel_what_no_prediction_feels(x64):
    """Queries twice as large and values half as large are the same heads."""
    model = dense(gd())
    (block,) = model.weights.steps
    (heads,) = block.attention
    (write,) = heads.writes
    other = heads.replace(query=2 * heads.query, writes=(write.replace(value=0.5 * write.value),))
    steps = (block.replace(attention=(other,)),)
    same = model.replace(weights=model.weights.replace(steps=steps))
    assert max(row["change"] for row in weight_difference(same, model)) < 1e-12
    for model, start in ((gd(steps=3), gd()), (gd(), gd(steps=3))):
        with pytest.raises(ValueError, match="model must have the layout and the depth of start"):
            weight_difference(model, start)


def test_the_steps_that_are_read_off_are_those_of_the_weights(x64):
    """A head that takes 0.05 X^T X x from x makes GD++ of gradient descent."""
    model = dense(gd(0.17))
    steps, curvatures = finetune.block_coefficients(model)
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
    steps, curvatures = finetune.block_coefficients(curved)
    assert np.allclose(steps, 0.17)
    assert np.allclose(curvatures, 0.05)


def test_gradient_descent_takes_a_step_size_for_each_block(x64):
    p, task = finetune.draw_problem(SMALL, 0), draw(1, p=3)
    sizes = finetune.chebyshev_step_sizes(0.5, 9.0, 4)
    assert np.allclose(np.sort(1 / sizes), 4.75 + 4.25 * np.cos(np.pi * np.array([7, 5, 3, 1]) / 8))
    x, y = task.x, task.y
    A, alpha = x @ x.T + p.ridge * np.eye(7), np.zeros(7)
    for eta in np.asarray(sizes):
        alpha = alpha + eta * (y - A @ alpha)
    ours = ik.predict(finetune.gradient_descent(p, 4, sizes), task)
    assert relative(ours, np.asarray(task.x_query) @ x.T @ alpha) < 1e-12


@pytest.mark.slow
def test_a_rate_at_which_training_diverges_gives_way_to_the_next_lower(x64):
    high, low = 1e6, 1e-4
    p = finetune.draw_problem(replace(SMALL, learning_rates=(high, low)), 0)
    first = dense(gd())
    path, rate = finetune.train_without_divergence(p, first, 0)
    updates, models, losses = zip(*path, strict=True)
    assert (rate, updates, models[0]) == (low, (0, 2, 4), first)
    assert losses[-1] == p.loss(models[-1]) < 2 * losses[0] == 2 * p.loss(first)
    alone = p._replace(config=replace(SMALL, learning_rates=(high,)))
    path, rate = finetune.train_without_divergence(alone, first, 0)
    assert rate == high
    assert not path[-1][2] < 2 * losses[0]


@pytest.mark.slow
def test_the_experiment_says_what_it_measured(monkeypatch):
    """Untuned here: that takes longer than all the rest."""
    monkeypatch.setattr(finetune.Problem, "tune_scalars", lambda p, build, first: first)
    result = finetune.compare(replace(SMALL, seeds=1))
    methods = {row["method"] for row in result.losses}
    assert methods >= {
        "textbook step",
        "GD++, tuned",
        finetune.OWN_WEIGHTS,
        finetune.ALL_WEIGHTS,
        finetune.ALL_WEIGHTS_FROM_GD_PLUS_PLUS,
    }
    assert len(result.losses) == 2 * len(methods)
    for row in result.losses:
        assert row["loss"] > row["exact"]
        assert (row["gain"] == 1) == (row["method"] == "textbook step") or row["gain"] > 0
    assert [row["update"] for row in result.path[:6:2]] == [0, 2, 4]
    assert all(row["change"] == 0 for row in result.path if row["update"] == 0)
    assert result.path[0]["loss"] != result.path[-1]["loss"]
    high = finetune.draw_problem(SMALL, 0).spectrum[1]
    assert np.isclose(result.path[0]["step x high"], 2 / (1 + 0.06 / high), atol=1e-3)
    for header, lines in (finetune.loss_table(result), finetune.most_moved_table(result)):
        assert all(len(line) == len(header) for line in lines)
    for figure in finetune.figures(result).values():
        assert not cut_off(figure)
