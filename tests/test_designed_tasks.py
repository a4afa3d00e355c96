"""Designed tasks: within the budget, candidates farther apart; a filter that is read directly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import icl_krr as ik
from icl_krr.catalogue import BATTERIES
from icl_krr.probes import CandidateFit, along_eigenvector, design, identify, read_filter
from icl_krr.probes.naming.separation import separation

RIDGE, TOP = 0.3, 40.0
VALUES = {"ridge": RIDGE, "step_size": 1 / TOP}
BALL = CandidateFit("heavy_ball", "linear", VALUES | {"momentum": 0.4}, (1, 2, 3), 0.0)
GRADIENT = CandidateFit("gradient_descent", "linear", VALUES, (1, 2, 4), 0.0)
FAMILY = ik.tasks.LinearRegression(num_features=3, num_supports=10, num_queries=4)


@pytest.fixture(scope="module")
def tasks():
    with jax.enable_x64(True):
        return batch(1, 16)


def batch(seed, count):
    keys = jax.random.split(jax.random.key(seed), count)
    return jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, FAMILY)


@pytest.fixture(scope="module")
def found(tasks):
    with jax.enable_x64(True):
        return design(BALL, GRADIENT, tasks, support_distance=0.4, budget=0.1)


def test_a_design_separates_the_candidates(found):
    assert found.after.interval[0] > found.before.interval[1] + 0.01
    assert found.after.deviation < found.before.deviation


def test_a_design_keeps_within_its_budget(x64, tasks, found):
    own = np.asarray(found.log_prior_before)
    assert np.array_equal(found.floor, np.minimum(np.quantile(own, 0.1), own))
    assert np.all(found.log_prior_after >= found.floor)
    assert 0.1 < found.moved.max() < 0.4
    moved = np.linalg.norm(found.tasks.x - tasks.x, axis=-1)
    assert np.allclose(moved, found.moved)
    assert np.array_equal(found.tasks.x_query, tasks.x_query)
    assert found.tasks.y_query is None


def test_the_log_prior_is_that_of_the_family(x64, tasks, found):
    """The weights of a linear regression are N(0, I / p): the amplitude must make up for p."""
    p, noise = 3, 0.1
    for i in range(3):
        covariance = tasks.x[i] @ tasks.x[i].T / p + noise * np.eye(10)
        y, (_, size) = tasks.y[i], np.linalg.slogdet(covariance)
        truth = -(y @ np.linalg.solve(covariance, y) + size + 10 * np.log(2 * np.pi)) / 2
        assert abs(found.log_prior_before[i] - truth) < 0.6


def test_without_reach_supports_stay(x64, tasks):
    still = design(BALL, GRADIENT, tasks, steps=20, support_distance=0.0)
    assert np.array_equal(still.tasks.x, tasks.x)
    assert not np.allclose(still.tasks.y, tasks.y)


def test_a_log_prior_of_ones_own_is_kept(x64, tasks):
    """A prior that forbids any change sends every task back to its drawn place."""

    def fixed(task):
        gaps = jnp.sum((tasks.y - task.y[None]) ** 2, axis=1)
        return jnp.where(jnp.min(gaps) > 0, -1.0, 0.0)

    still = design(BALL, GRADIENT, tasks, steps=5, log_prior=fixed)
    assert np.array_equal(still.tasks.y, tasks.y)
    assert still.after.mean == still.before.mean


def test_separation_is_the_distance_of_two_oracles(x64, tasks):
    found = separation(BALL, GRADIENT, tasks)
    linear = ik.Linear()
    options = {"ridge": RIDGE, "steps": 4, "step_size": 1 / TOP}
    pairs = []
    for i in range(len(tasks.x)):
        one = jax.tree.map(lambda leaf, i=i: leaf[i], tasks)
        a = ik.solvers.heavy_ball(linear, one, momentum=0.4, **options).prediction
        b = ik.solvers.gradient_descent(linear, one, **options).prediction
        pairs.append((a[jnp.array([1, 2, 3])], b[jnp.array([1, 2, 4])]))
    a, b = (np.stack(side) for side in zip(*pairs, strict=True))
    norm = np.sqrt((np.sum(a**2, (0, 2)) + np.sum(b**2, (0, 2))) / 2)
    assert np.allclose(found.by_layer, np.sqrt(np.sum((a - b) ** 2, (0, 2))) / norm)
    assert found.by_layer[0] < 1e-12 < found.interval[0] < found.mean < found.interval[1]


@pytest.mark.slow
def test_a_noisy_model_is_identified_more_clearly_on_designed_tasks(x64, tasks):
    """Heavy ball with errors of a few percent: Chebyshev is near on drawn tasks only."""
    drawn = batch(0, 16)

    def model(task):
        path = ik.solvers.heavy_ball(
            ik.Linear(), task, ridge=RIDGE, steps=3, step_size=1 / TOP, momentum=0.4
        ).prediction
        return path * (1 + 0.05 * jnp.sin(3 * jnp.sum(task.x_query, axis=1)))[None]

    options = {"candidates": ("heavy_ball", "chebyshev"), "kernels": ("linear",), "steps": 4}
    before = identify(model, drawn, tasks, **options)
    made = design(*(suspect.fit for suspect in before.suspects), tasks)
    after = identify(model, drawn, made.tasks, **options)

    def ratio(found):
        ball, other = sorted(found.suspects, key=lambda s: s.fit.candidate != "heavy_ball")
        return other.distances["prediction"].mean / ball.distances["prediction"].mean

    assert ratio(before) < 2.2
    assert ratio(after) > 1.5 * ratio(before)
    assert after.remain == ("heavy_ball",)


@pytest.mark.parametrize("index", [0, 2])
def test_along_an_eigenvector_the_reading_is_the_filter_of_the_solver(x64, tasks, index):
    kernel = ik.Gaussian(1.5)
    along = along_eigenvector(kernel, tasks, index)
    assert np.allclose(np.linalg.norm(along.y, axis=1), np.linalg.norm(tasks.y, axis=1))
    assert np.all(np.sum(along.y * tasks.y, axis=1) >= 0)

    def path(task):
        return ik.solvers.gradient_descent(
            kernel, task, ridge=RIDGE, steps=3, step_size=0.1
        ).prediction

    found = read_filter(kernel, along, ik.map_tasks(path, along))
    sigma = np.linalg.eigvalsh(
        np.asarray([ik.tasks.system(kernel, one).gram for one in each(along)])
    )
    assert np.allclose(found.sigma, sigma[:, -1 - index])
    shift = found.sigma[:, None] + RIDGE
    expected = (1 - (1 - 0.1 * shift) ** np.arange(4)[None]) / shift
    assert np.allclose(found.q, expected)
    assert np.all(found.rest < 1e-6)


def test_what_is_no_filter_has_a_rest(x64, tasks):
    along = along_eigenvector(ik.Linear(), tasks)
    smooth = lambda task: ik.solvers.nadaraya_watson(ik.Gaussian(), task).prediction[None]  # noqa: E731
    found = read_filter(ik.Linear(), along, ik.map_tasks(smooth, along))
    assert np.median(found.rest) > 0.1


def each(tasks):
    return [jax.tree.map(lambda leaf, i=i: leaf[i], tasks) for i in range(len(tasks.x))]


def sampled(name, family=FAMILY):
    return jax.vmap(ik.tasks.sample, in_axes=(0, None))(
        jax.random.split(jax.random.key(1), 16), ik.tasks.battery(name, family)
    )


def test_batteries_change_one_thing(x64, tasks):
    same = ("x", "y", "x_query", "y_query")
    for name, expected in {
        "larger_x": {"x": 2 * tasks.x, "x_query": 2 * tasks.x_query},
        "smaller_x": {"x": tasks.x / 2, "x_query": tasks.x_query / 2},
        "larger_y": {"y": 4 * tasks.y, "y_query": 4 * tasks.y_query},
        "smaller_y": {"y": tasks.y / 4, "y_query": tasks.y_query / 4},
        "duplicates": {
            "x": jnp.concatenate([tasks.x[:, :5]] * 2, axis=1),
            "y": jnp.concatenate([tasks.y[:, :5]] * 2, axis=1),
        },
        "conditioning": {
            field: getattr(tasks, field) * np.array([[[1, 0.1**0.5, 0.1]]]) for field in same[::2]
        },
    }.items():
        made = sampled(name)
        for field in same:
            assert np.allclose(getattr(made, field), expected.get(field, getattr(tasks, field)))


def test_batteries_change_the_family(x64, tasks):
    assert sampled("fewer_supports").x.shape == (16, 5, 3)
    assert sampled("more_supports").x.shape == (16, 20, 3)
    for name, factor in {"less_noise": 0.1, "more_noise": 10}.items():
        made = sampled(name)
        silent = ik.tasks.LinearRegression(num_features=3, num_supports=10, num_queries=4, noise=0)
        keys = jax.random.split(jax.random.key(1), 16)
        f = jax.vmap(ik.tasks.sample, in_axes=(0, None))(keys, silent).y
        assert np.allclose(made.y - f, (tasks.y - f) * factor**0.5)
        assert np.array_equal(made.x, tasks.x)


def test_every_battery_is_told():
    for name in BATTERIES:
        assert f'"{name}"' in ik.tasks.battery.__doc__
