"""Streams of any framework: arrays and files of them say what the function they come from says."""

import json
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import numpy

import icl_krr as ik
from icl_krr.cli import main
from icl_krr.cli.identification import answered
from icl_krr.probes import identify_arrays, identify_streams
from icl_krr.training.batches import draw

CONFIG = ik.tasks.LinearRegression(num_features=2, num_supports=5, num_queries=3)
TURN = np.random.default_rng(0).normal(size=(3, 4))
OPTIONS = {"candidates": ("gradient_descent",), "kernels": ("linear",)}


def descent(task):
    """Two steps of gradient descent, in channels that say nothing by themselves."""
    w, after = 0 * task.x[0], []
    for _ in range(3):
        prediction = (task.x_query @ w)[:, None]
        after.append(jnp.concatenate([task.x_query, prediction], axis=1) @ TURN)
        w = w + 0.1 * task.x.T @ (task.y - task.x @ w)
    return jnp.stack(after)


def still(task):
    """A model of the same shape whose layers take no steps."""
    first = descent(task)[1]
    return jnp.stack([jnp.tanh(size * first) for size in (0, 1, 2)])


def arrays_of(reader, tasks, names=("streams", "stream_jacobians")):
    both = lambda task: (reader(task), ik.probes.hat_matrix(reader, task))  # noqa: E731
    return dict(zip(names, map(np.asarray, jax.vmap(both)(tasks)), strict=True))


@cache
def drawn():
    """Tasks, and both halves of them."""
    with jax.enable_x64(True):
        tasks = numpy(draw(jax.random.key(0), CONFIG, 24))
        halves = (
            jax.tree.map(lambda leaf, part=part: leaf[part], tasks)
            for part in (slice(12), slice(12, None))
        )
        return tasks, *halves


def means(found):
    """The distances of the nearest candidate, then of its controls."""
    best = found.best
    every = [best.distances, *best.evidence.controls.values()]
    return [distance.mean for spaces in every for distance in spaces.values()]


@pytest.mark.slow
@pytest.mark.parametrize("control", [None, still], ids=["untrained encoders", "own control"])
def test_arrays_say_what_their_function_says(control, x64):
    tasks, *halves = drawn()
    arrays = arrays_of(descent, tasks)
    if control:
        arrays |= arrays_of(control, tasks, ("control_streams", "control_jacobians"))
    found = identify_arrays(tasks, **arrays, **OPTIONS)
    same = identify_streams(descent, *halves, control=control, **OPTIONS)
    assert found.status == same.status == "close to"  # two layers say too little
    assert found.remain == same.remain == ("gradient_descent",)
    assert [*found.best.evidence.controls] == [*same.best.evidence.controls]
    assert means(found) == pytest.approx(means(same), rel=1e-6, abs=1e-6)


@pytest.mark.slow
def test_arrays_in_single_precision_are_near(x64):
    tasks, *_ = drawn()
    arrays = {name: array.astype("f4") for name, array in arrays_of(descent, tasks).items()}
    found = identify_arrays(tasks, **arrays, **OPTIONS)
    assert found.status == "close to"  # two layers say too little
    assert found.remain == ("gradient_descent",)
    assert all(distance.mean < 1e-5 for distance in found.best.distances.values())


def written(path, **arrays):
    tasks, *_ = drawn()
    np.savez(path, x=tasks.x, y=tasks.y, x_query=tasks.x_query, **arrays)
    return path


def test_a_file_may_hold_answers_and_streams(tmp_path, capsys, x64):
    tasks, *_ = drawn()
    streams = arrays_of(descent, tasks)
    control = arrays_of(still, tasks, ("control_streams", "control_jacobians"))
    answers = {
        "answers": streams["streams"][..., 0],
        "hats": streams["stream_jacobians"][..., 0, :],
    }
    held = answered(written(tmp_path / "both.npz", **control, **streams, **answers))
    assert [*held.given] == ["answers", "streams"]
    assert {name for arrays in held.given.values() for name in arrays} == {
        *(*streams, *control, *answers)
    }
    for missing in ("stream_jacobians", "control_streams"):
        rest = {name: array for name, array in (streams | control).items() if name != missing}
        path = written(tmp_path / "rest.npz", **rest)
        assert main(["identify", str(path)]) == 2
        assert f"{missing} is missing; add the predictions" in capsys.readouterr().err


@pytest.mark.slow
def test_a_file_of_both_is_identified_twice(tmp_path, capsys, x64):
    tasks, *_ = drawn()
    streams, out = arrays_of(descent, tasks), tmp_path / "out"
    own = np.linalg.pinv(TURN)[:, 2]  # the channel of the prediction
    answers = {"answers": streams["streams"] @ own}
    answers["hats"] = np.einsum("blqdn,d->blqn", streams["stream_jacobians"], own)
    path = written(tmp_path / "both.npz", **streams, **answers)
    run = ["identify", str(path), "--kernels", "linear", "--steps", "4", "--out", str(out)]
    assert main(run) == 0
    record = json.loads((out / "identify.json").read_text())
    for one in (record, record["streams"]):  # other solvers take the same two steps
        assert "gradient_descent" in one["remain"]
    said = capsys.readouterr().out
    assert 0 < said.index("answers: ") < said.index("streams: ")
    assert (out / "streams-heatmaps.csv").exists()
