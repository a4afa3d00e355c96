"""Families of tasks are distributed as they say."""

import dataclasses

import jax
import numpy as np
import pytest
from helpers import numpy, relative, sample

import icl_krr as ik
from icl_krr.tasks import DecisionTree, GaussianProcess, ReLUNetwork, Rows, Sinusoids

SIZES = {"num_features": 3, "num_supports": 20, "num_queries": 4}
sample_each = jax.jit(jax.vmap(ik.tasks.sample, in_axes=(0, None)))


def draw(config, count=400, seed=0):
    return numpy(sample_each(jax.random.split(jax.random.key(seed), count), config))


def test_hyperparameters_are_drawn_for_each_task():
    config = GaussianProcess(ik.Gaussian(0.5), noise=0.1, spread=4.0, noise_spread=2.0)
    hyperparameters = jax.jit(jax.vmap(config.hyperparameters))
    draws = numpy(hyperparameters(jax.random.split(jax.random.key(0), 2000)))
    for values, centre, spread in ((draws.kernel.lengthscale, 0.5, 4.0), (draws.noise, 0.1, 2.0)):
        logs = np.log(values / centre) / np.log(spread)
        assert np.all(np.abs(logs) <= 1 + 1e-5)
        assert abs(np.mean(logs)) < 0.05
        assert abs(np.std(logs) - 3**-0.5) < 0.03
    fixed = GaussianProcess(ik.Gaussian(0.5), noise=0.1)
    assert fixed.optimal() == (fixed.kernel, 0.1)
    assert config.optimal() is None
    key = jax.random.key(3)
    task = sample(key, config)
    same = jax.jit(lambda key: ik.tasks.sample(key, config.hyperparameters(key)))(key)
    assert relative(same.y, task.y) < 1e-5


def test_sparse_weights_leave_most_features_alone():
    sizes = {"num_features": 6, "num_supports": 12, "sparsity": 2}
    config = ik.tasks.LinearRegression(noise=0.0, inputs="uniform", **sizes)
    tasks = draw(config)
    assert np.all(np.abs(tasks.x) <= 1)
    for i in range(50):
        w = np.linalg.lstsq(tasks.x[i], tasks.y[i], rcond=None)[0]
        assert np.sum(np.abs(w) > 1e-4) == 2
    assert abs(np.var(tasks.y) - 1 / 3) < 0.05
    assert config.optimal() is None
    dense = dataclasses.replace(config, sparsity=None, noise=0.2)
    assert dense.optimal()[1] == 0.2 * 6


def test_networks_have_unit_variance_and_no_more_than_their_noise():
    tasks = draw(ReLUNetwork(hidden=50, **SIZES))
    assert abs(np.var(tasks.y) - 1) < 0.15
    assert tasks.y.shape == (400, 20)
    noisy = draw(ReLUNetwork(hidden=50, noise=0.5, **SIZES))
    assert abs(np.var(noisy.y - tasks.y) - 0.5) < 0.05
    assert np.array_equal(noisy.y_query, tasks.y_query)


def test_trees_ask_for_the_signs_of_coordinates():
    config = DecisionTree(depth=2, **SIZES)
    f = jax.jit(lambda x: config.function(jax.random.key(7), x, 1)[:, 0])
    x = np.random.default_rng(0).normal(size=(200, 3)).astype("f4")
    leaves = np.asarray(f(x))
    assert len(set(leaves.tolist())) <= 4
    assert np.array_equal(leaves, f(np.sign(x) * np.float32(0.3)))
    nodes, drawn = jax.random.split(jax.random.key(7))
    coordinates = np.asarray(jax.random.randint(nodes, (4,), 0, 3))
    values = np.asarray(jax.random.normal(drawn, (4, 1)))
    for row, leaf in zip(x, leaves, strict=True):
        right = row[coordinates[1]] > 0
        below = row[coordinates[3 if right else 2]] > 0
        assert leaf == values[2 * right + below, 0]


def test_sinusoids_are_sums_of_nothing_else():
    config = Sinusoids(frequency=2.0, num_supports=40, inputs="uniform")
    task = sample(jax.random.key(1), config)
    _, of_wave, _ = jax.random.split(jax.random.split(jax.random.key(1), 3)[1], 3)
    wave = 2.0 * float(jax.random.normal(of_wave, (1, 1))[0, 0])
    x = np.asarray(task.x, np.float64)
    basis = np.hstack([np.sin(wave * x), np.cos(wave * x)])
    fit, *_ = np.linalg.lstsq(basis, np.asarray(task.y), rcond=None)
    assert np.max(np.abs(basis @ fit - task.y)) < 1e-4
    assert 0.5 <= np.linalg.norm(fit) <= 1.5


def test_rows_of_a_table_are_scaled_by_their_supports_alone():
    table = ik.tasks.diabetes()
    config = Rows.of(table, num_supports=50, num_queries=30)
    tasks = draw(config, 3)
    assert np.max(np.abs(np.mean(tasks.x, axis=1))) < 1e-5
    assert np.max(np.abs(np.std(tasks.y, axis=1) - 1)) < 1e-5
    assert np.std(np.asarray(tasks.y_query)) != 1
    scaled = np.concatenate([tasks.x[0], tasks.x_query[0]])
    assert len(np.unique(scaled, axis=0)) == 80
    assert not np.array_equal(tasks.x[0], tasks.x[1])


def test_families_refuse():
    with pytest.raises(ValueError, match="sparsity must be <= num_features = 8"):
        ik.tasks.LinearRegression(sparsity=9)
    with pytest.raises(ValueError, match=r"must be <= 442, .* table, got 443"):
        Rows.of(ik.tasks.diabetes(), 440, 3)
