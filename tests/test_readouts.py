"""Further readouts of a model, and the predictive distribution that they give."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import dense, draw, numpy, relative, stacked
from test_export import rewrite

import icl_krr as ik
from icl_krr.experiments.solverbench import rotated
from icl_krr.export import T5, _native
from icl_krr.residual import join

pytestmark = pytest.mark.usefixtures("x64")

SIZES = {"num_features": 2, "width": 8, "depth": 2, "heads": 2}


def with_readouts(model, **readouts):
    return model.replace(weights=model.weights.replace(readouts=readouts))


@cache
def drawn(outputs=1):
    """A causal model with random weights, whose slots `icl_krr.dense` can merge."""
    plain = {"attention": "linear", "hidden": 0, "layer_norm": False, "causal": True}
    return ik.init(jax.random.key(1), ik.Architecture(num_outputs=outputs, **SIZES, **plain))


def constant(*values):
    return ik.Read({"one": jnp.array([values])}, len(values))


@pytest.fixture
def task(x64):
    return draw(0, p=2)


@pytest.fixture
def model(x64):
    own = drawn()
    stream = ik.Read({"stream": np.full((), 2.0)}, 8)
    return with_readouts(own, stream=stream, twice=2 * own.weights.readout)


def test_readouts_are_of_the_final_stream_at_the_tokens_of_the_prediction(model, task):
    n = task.num_supports
    at, along = ik.readouts(model, task), ik.readouts(model, task, along=True)
    assert set(at) == set(along) == {"prediction", "stream", "twice"}
    assert np.array_equal(at["prediction"], ik.predict(model, task))
    assert np.array_equal(along["prediction"], ik.predict_along(model, task))
    _, slots = numpy(ik.run_with_cache(model, task, names=("stream",)))
    assert relative(along["stream"], 2 * slots["stream"][-1, 1:]) < 1e-14
    assert relative(along["twice"][:, 0], 2 * along["prediction"]) < 1e-14
    assert all(np.array_equal(at[name], along[name][n:]) for name in at)


def test_a_prediction_costs_nothing_more(model, task):
    """XLA gets the same program with and without further readouts."""
    plain, arguments = drawn(), jax.tree.leaves(drawn())

    def instructions(model):
        rest = jax.tree.structure(model)
        extra = jax.tree.leaves(model)[len(arguments) :]
        run = lambda leaves, task: ik.predict(rest.unflatten([*leaves, *extra]), task)  # noqa: E731
        return len(jax.jit(run).lower(arguments, task).compile().as_text().splitlines())

    assert instructions(model) == instructions(plain)


def test_every_change_of_the_weights_keeps_the_readouts(model, task, tmp_path):
    expected = numpy(ik.readouts(model, task, along=True))
    _native.save(tmp_path / "model.safetensors", model)
    changed = {
        "dense": dense(model),
        "untied": ik.untie(model),
        "rotated": rotated(model, jax.random.key(0)),
        "file": _native.load(tmp_path / "model.safetensors"),
    }
    for name, other in changed.items():
        got = numpy(ik.readouts(other, task, along=True))
        assert {*got} == {*expected}, name
        for key, value in got.items():
            assert relative(value, expected[key]) < 1e-12, (name, key)


def test_a_file_from_before_the_readouts_loads(task, tmp_path):
    """Such a file has no field `readouts`."""
    path = tmp_path / "model.safetensors"
    _native.save(path, drawn())
    rewrite(path, lambda record, tensors: record["model"]["weights"].pop("readouts"))
    assert np.array_equal(ik.predict(_native.load(path), task), ik.predict(drawn(), task))


def test_a_file_with_a_read_out_that_does_not_run_is_refused(tmp_path):
    path, gone = tmp_path / "model.safetensors", ik.Read({"gone": np.ones(())}, 1)
    _native.save(path, with_readouts(drawn(), other=gone))
    with pytest.raises(ValueError, match="gone"):
        _native.load(path)


def mixture(outputs=1):
    """Two Gaussians whose means are the prediction and -2 times it, variances and weights fixed."""
    own = drawn(outputs)
    return with_readouts(
        own,
        means=join(own.weights.readout, -2 * own.weights.readout),
        variances=constant(0.5, 3.0),
        weights=constant(0.25, 0.75),
    )


@pytest.mark.parametrize("together", [True, False])
def test_a_mixture_of_several_outputs(together, task):
    """A model of all outputs, and a model of one output that runs for each."""
    y = np.stack([task.y, 3 - task.y, task.y**2], axis=1)
    several = task.replace(y=y, y_query=None)
    got = numpy(ik.predictive(mixture(3 if together else 1), several, along=True))
    f = numpy(ik.predict_along(drawn(3 if together else 1), several))
    assert relative(got.means, np.stack([f, -2 * f], axis=-1)) < 1e-12
    assert got.variances.shape == got.weights.shape == (*f.shape, 2)
    assert np.array_equal(got.variances[2, 1], np.array([0.5, 3.0]))
    assert np.array_equal(got.weights[2, 1], np.array([0.25, 0.75]))
    assert relative(got.mean, -1.25 * f) < 1e-12
    second = 0.25 * (0.5 + f**2) + 0.75 * (3 + 4 * f**2)
    assert relative(got.variance, second - got.mean**2) < 1e-12


def test_one_gaussian_around_the_prediction(task):
    """The names of a trained model, and a construction that has a variance alone."""
    log = with_readouts(drawn(), log_variance=constant(-0.5))
    plain = with_readouts(drawn(), variances=constant(-2.0))
    for model, variance in ((log, np.exp(-0.5)), (plain, -2.0)):  # what is wrong stays visible
        for task_ in (task, task.replace(y=np.stack([task.y] * 2, axis=1), y_query=None)):
            got = numpy(ik.predictive(model, task_))
            assert np.array_equal(got.mean, ik.predict(model, task_))
            assert relative(got.variance, np.full(got.mean.shape, variance)) < 1e-14
            assert np.array_equal(got.weights, np.ones_like(got.means))


def test_a_distribution_that_lacks_a_part_is_refused(task):
    two = constant(1.0, 2.0)
    parts = ({}, {"variances": two}, {"variances": two, "means": two}, {"means": two})
    for readouts in parts:
        with pytest.raises(ValueError, match="got readouts"):
            ik.predictive(with_readouts(drawn(), **readouts), task)


def test_a_distribution_is_batched_and_differentiated(task):
    model = mixture()
    several = [task, task.replace(x=2 * task.x)]
    got = jax.jit(jax.vmap(ik.predictive, in_axes=(None, 0)))(model, stacked(*several))
    expected = stacked(*(ik.predictive(model, one) for one in several))
    assert got.means.shape == got.variances.shape == (2, task.num_queries, 2)  # of one output
    assert max(jax.tree.leaves(jax.tree.map(relative, got, expected))) < 1e-13

    def spread(scale):
        return jnp.sum(ik.predictive(model, task.replace(y=scale * task.y)).variance)

    spread = jax.jit(spread)
    slope, h = jax.jit(jax.grad(spread))(1.0), 1e-5
    assert relative(slope, (spread(1 + h) - spread(1 - h)) / (2 * h)) < 1e-7


def test_a_head_for_the_variance_changes_no_other_weight():
    key = jax.random.key(0)
    plain, unsure = (ik.init(key, ik.Architecture(**SIZES, variance=v)) for v in (False, True))
    assert plain.weights.readouts == {}
    others = unsure.weights.replace(readouts={})
    assert jax.tree.all(jax.tree.map(np.array_equal, others, plain.weights))
    got = numpy(ik.predictive(unsure, draw(0, p=2)))
    assert np.array_equal(got.variance, np.ones_like(got.mean))


def test_a_run_over_devices_has_all_readouts(model, task):
    mesh = jax.make_mesh((1,), ("context",), (jax.sharding.AxisType.Auto,))
    for function, use in ((ik.readouts, model), (ik.predictive, mixture())):
        for along in (False, True):
            got, expected = (function(use, task, along=along, mesh=m) for m in (mesh, None))
            gaps = jax.tree.map(relative, got, expected)
            assert max(jax.tree.leaves(gaps)) < 1e-12


def test_a_t5_encoder_holds_all_readouts(x64, task):
    """They are read from its last hidden state, as the prediction is."""
    plain = {"activation": "relu", "layer_norm": False}
    model = ik.init(jax.random.key(0), ik.Architecture(**SIZES, **plain))
    model = with_readouts(model, log_variance=3 * model.weights.readout)
    t5 = T5(model)
    hidden = np.array(t5.embed(task))
    _, slots = numpy(ik.run_with_cache(model, task, names=("stream",)))
    hidden[0, :, model.layout.channels("stream")] = slots["stream"][-1]
    for name, expected in ik.readouts(model, task).items():
        got = t5.read_out(hidden, task, name)
        assert relative(got, expected) < 1e-13
    with pytest.raises(ValueError, match="name must be one of"):
        t5.read_out(hidden, task, "variance")
