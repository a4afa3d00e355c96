"""Comparisons of the variance that a model reports with those of solvers and nulls."""

import jax
import numpy as np
import pytest
from helpers import numpy, relative

import icl_krr as ik
from icl_krr.probes.naming.identification import STATUSES
from icl_krr.probes.naming.variances import BY_COUNT, CONSTANT, REGRESSION, judge, variances_of
from icl_krr.training.batches import draw

pytestmark = pytest.mark.usefixtures("x64")

FAMILY = ik.tasks.LinearRegression(num_features=4, num_supports=6, num_queries=3, noise=0.2)
RIDGE = 0.8


@pytest.fixture
def tasks(x64):
    return numpy(draw(jax.random.key(0), FAMILY, 24))


def solver(steps):
    return ik.constructions.prefix_posterior(ik.Linear(), num_features=4, ridge=RIDGE, steps=steps)


def test_steps_are_told_from_each_other_and_from_the_limit(tasks):
    """A construction of t steps is the candidate of t steps; one that has converged is exact."""
    for steps, name in ((2, "2 steps"), (4, REGRESSION)):
        found = ik.probes.compare_variances(solver(steps), tasks, ik.Linear(), RIDGE, steps=4)
        assert (found.status, found.remain, found.as_near) == ("identified", (name,), ())
        assert found.rows[0].distance < 1e-9
        assert all(row.because for row in found.rows if row.name not in (name, CONSTANT))
        assert found.verdict.startswith(f"identified: {name}; nearest")
    because = {row.name: row.because for row in found.rows}
    assert because["4 steps"] == f"has converged to {REGRESSION}"
    assert because["1 step"].startswith(f"farther than {REGRESSION} by")


def test_a_model_of_one_variance_is_no_solver(tasks):
    sizes = {"num_features": 4, "width": 8, "depth": 1, "heads": 1}
    model = ik.init(jax.random.key(0), ik.Architecture(**sizes, variance=True))
    found = ik.probes.compare_variances(model, tasks, ik.Linear(), RIDGE, steps=2)
    assert (found.status, found.remain, found.as_near) == ("not identified", (), (CONSTANT,))
    assert "no nearer than a variance by constant" in found.verdict


@pytest.mark.slow
def test_variances_of_a_kernel_without_features_end_at_exact_regression(x64):
    """Also under a mask, where the candidates see the supports that the model sees."""
    family = ik.tasks.GaussianProcess(
        ik.Gaussian(0.7), noise=0.1, num_features=1, num_supports=5, num_queries=2
    )
    tasks = numpy(draw(jax.random.key(1), family, 3))
    tasks = tasks.replace(mask=np.arange(5)[None] < np.array([5, 3, 4])[:, None])
    sizes = {"num_features": 1, "width": 8, "depth": 1, "heads": 1}
    model = ik.init(jax.random.key(0), ik.Architecture(**sizes, variance=True))
    own, exact, path = variances_of(model, tasks, ik.Gaussian(0.7), 0.1, 12)
    assert own.shape == (3, 2, 1)
    assert relative(path[:, -1], exact) < 1e-6
    assert np.all(path[:, 0] < exact)  # what the features leave out


def around(logs, level, seed):
    return logs + level * np.random.default_rng(seed).normal(size=logs.shape)


def test_what_differs_by_chance_only_is_not_distinguishable():
    logs = np.random.default_rng(0).normal(size=(80, 4))
    counts = np.full(80, 6)
    both = {REGRESSION: around(logs, 0.05, 1), "1 step": around(logs, 0.05, 2)}
    found = judge(logs, both, counts, seed=0)
    assert found.status == "not distinguishable"
    assert set(found.remain) == {*both}
    apart = {REGRESSION: around(logs, 0.05, 1), "1 step": around(logs, 0.2, 2)}
    found = judge(logs, apart, counts, seed=0)
    assert (found.status, found.remain) == ("close to", (REGRESSION,))
    far = {REGRESSION: around(logs, 0.3, 1), "1 step": around(logs, 0.6, 2)}
    assert judge(logs, far, counts, seed=0).status == "none is close"
    assert {found.status} <= {*STATUSES}


def test_a_variance_by_the_number_of_supports_is_told():
    counts = np.random.default_rng(0).integers(2, 7, 200)
    logs = around(np.repeat(-0.3 * counts[:, None], 4, axis=1), 0.02, 3)
    found = judge(logs, {REGRESSION: around(logs, 0.1, 1)}, counts, seed=0)
    assert (found.status, found.as_near) == ("not identified", (BY_COUNT,))
    closer = judge(logs, {REGRESSION: around(logs, 0.001, 1)}, counts, seed=0)
    assert (closer.status, closer.as_near) == ("identified", ())


def test_a_variance_that_is_not_positive_is_not_hidden(tasks):
    model = solver(2)
    reads = {**model.weights.readouts}
    reads["variances"] = -1 * reads["variances"]
    wrong = model.replace(weights=model.weights.replace(readouts=reads))
    with pytest.raises(ValueError, match="variances of model must be > 0 and finite, got -"):
        ik.probes.compare_variances(wrong, tasks, ik.Linear(), RIDGE)
