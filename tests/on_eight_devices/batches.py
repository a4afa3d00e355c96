"""Batches of tasks over eight devices: `tests/test_devices.py` runs this file on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import cg, draw, numpy, of_random_weights, relative
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import icl_krr as ik

FAMILY = ik.tasks.GaussianProcess(ik.Gaussian(), num_features=2, num_supports=6, num_queries=2)
MODEL = cg(draw(0, p=2), 0.3, 2)


draw_tasks = jax.jit(jax.vmap(ik.tasks.sample, in_axes=(0, None)))


def tasks_of(count):
    tasks = draw_tasks(jax.random.split(jax.random.key(0), 64), FAMILY)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:count], tasks)


def mesh_of(kind, name="tasks"):
    return jax.make_mesh((8,), (name,), (kind,))


def mapped(model, tasks):
    return ik.map_tasks(lambda task: ik.predict(model, task), tasks)


RUNS = {
    "predict_batch": (ik.predict_batch, AxisType.Auto),
    "vmap": (jax.vmap(ik.predict, in_axes=(None, 0)), AxisType.Explicit),
    "map_tasks": (mapped, AxisType.Explicit),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_batch_that_is_divided_already_stays_where_it_is(name):
    """Under any name, and inside of a jitted function, too."""
    tasks, (run, kind) = tasks_of(16), RUNS[name]
    divided = NamedSharding(mesh_of(kind, "data"), PartitionSpec("data"))
    there = jax.device_put(tasks, divided)
    expected = ik.predict_batch(MODEL, tasks)
    for function in (run, jax.jit(run)):
        got = function(MODEL, there)
        assert got.sharding.is_equivalent_to(divided, got.ndim)
        assert relative(got, expected) < 1e-6


def test_gradients_at_weights_that_are_on_all_devices():
    tasks, mesh = tasks_of(24), mesh_of(AxisType.Auto)
    place = lambda tree, *axes: jax.device_put(tree, NamedSharding(mesh, PartitionSpec(*axes)))  # noqa: E731
    slopes = jax.jit(jax.grad(lambda m, tasks: jnp.sum(ik.predict_batch(m, tasks, chunk=2) ** 2)))
    runs = slopes(MODEL, tasks), slopes(place(MODEL), place(tasks, "tasks"))
    expected, got = (ravel_pytree(numpy(slope))[0] for slope in runs)
    assert relative(got, expected) < 1e-5


def test_a_batch_that_does_not_divide():
    tasks, expected = tasks_of(11), ik.predict_batch(MODEL, tasks_of(16))[:11]
    assert relative(ik.predict_batch(MODEL, tasks, mesh=mesh_of(AxisType.Auto)), expected) < 1e-6
    with jax.set_mesh(mesh_of(AxisType.Explicit)):
        assert relative(ik.predict_batch(MODEL, tasks), expected) < 1e-6


def test_each_device_runs_its_own_tasks():
    """Two of sixteen tasks, and the weights."""
    tasks = tasks_of(16)
    with jax.set_mesh(mesh_of(AxisType.Auto)):
        run = jax.jit(lambda tasks: ik.predict_batch(MODEL, tasks, chunk=2))
        there = jax.device_put(tasks, PartitionSpec("tasks"))
        text = run.lower(there).compile().as_text()
    assert "all-gather" not in text
    assert "f32[2,6,2]" in text
    assert "f32[16,6,2]" not in text


def test_factorisations_on_all_devices_at_once():
    """Batched LAPACK would hang here."""
    tasks = tasks_of(64)
    solve = lambda task: ik.solvers.exact(ik.Gaussian(1.0), task, ridge=0.1).prediction  # noqa: E731
    run = jax.jit(lambda tasks: ik.map_tasks(solve, tasks))
    expected = run(tasks)
    with jax.set_mesh(mesh_of(AxisType.Auto)):
        assert relative(run(tasks), expected) < 1e-5


def test_the_gradient_of_a_training_step_is_a_sum_over_devices():
    """Of 21 tasks, which eight devices do not divide evenly."""
    model, tasks = of_random_weights(num_features=2, width=8, depth=1, heads=1), tasks_of(21)
    expected = jax.value_and_grad(ik.training.mean_loss)(model, tasks, "queries")
    with jax.set_mesh(mesh_of(AxisType.Auto)):
        ours = jax.jit(ik.training.loss_and_gradient, static_argnums=2)(model, tasks, "queries")
    assert relative(ravel_pytree(ours)[0], ravel_pytree(expected)[0]) < 1e-5


@pytest.mark.slow
def test_training_has_the_same_losses(monkeypatch):
    """On a mesh of `jax.set_mesh`, where the weights are, too; a device computes in chunks.

    Tasks are linear: a Gaussian process draws y by eigenvectors, whose signs change with rounding.
    """
    monkeypatch.setattr("icl_krr.tasks._batches.TOKENS", 9)
    family = ik.tasks.LinearRegression(num_features=2, num_supports=6, num_queries=2)
    spec = ik.Architecture(num_features=2, width=8, depth=1, heads=1)
    settings = ik.training.Training(steps=4, batch=21, log_every=1, validation=9, min_supports=3)

    def curve():
        model = ik.init(jax.random.key(0), spec)
        _, rows = ik.training.train(model, family, settings)
        return np.array([[row["loss"], row["validation"], row["exact"]] for row in rows[1:]])

    expected = curve()
    with jax.set_mesh(mesh_of(AxisType.Explicit)):
        assert relative(curve(), expected) < 1e-6


def test_a_model_that_is_on_all_devices_is_read_by_a_function_of_one_task():
    """As commands do, which draw and load models on the mesh; JAX indexes no such array there."""
    sizes = {"num_features": 2, "width": 8, "depth": 1, "heads": 1, "max_tokens": 16}
    model, tasks = of_random_weights(**sizes, causal=True, tokens="interleaved"), tasks_of(8)
    run = lambda model: ik.map_tasks(lambda task: ik.probes.streams(model, task), tasks)  # noqa: E731
    expected = run(model)
    with jax.set_mesh(mesh_of(AxisType.Auto)):
        there = jax.jit(lambda model: jax.tree.map(jnp.positive, model))(model)
        assert relative(run(there), expected) < 1e-6
