"""Similarities of linear probes to the iterates of solvers."""

from functools import partial

import jax
import numpy as np
import pytest

import icl_krr as ik
from benchmarks import probe_similarity
from icl_krr.experiments import draw_tasks
from icl_krr.experiments.identify import (
    channels_of,
    compared_by_cosine,
    inputs_of,
    iterates,
    similarities,
)

TASKS, N, P, RIDGE = 50, 5, 3, 0.1


@pytest.fixture
def tasks(x64):
    family = ik.tasks.LinearRegression(num_features=P, num_supports=N)
    return draw_tasks(jax.random.key(0), TASKS, family)


def cosine(inputs, targets):
    """The cosine of a ridge regression on the first 40 tasks, over all numbers of the others."""
    cut = TASKS * 4 // 5
    h, t = (part[:cut].reshape(-1, part.shape[-1]) for part in (inputs, targets))
    weights = np.linalg.inv(h.T @ h + 1e-3 * np.eye(h.shape[1])) @ h.T @ t
    read, right = (inputs[cut:] @ weights).ravel(), targets[cut:].ravel()
    return read @ right / np.linalg.norm(read) / np.linalg.norm(right)


def test_iterates_are_those_of_the_source(tasks):
    found = iterates(ik.Linear(), RIDGE, tasks, N)
    for i, (x, y) in enumerate(zip(np.asarray(tasks.x), np.asarray(tasks.y), strict=True)):
        A, alpha = x @ x.T + RIDGE * np.eye(N), 0 * y
        step = 2 / np.linalg.eigvalsh(A)[[0, -1]].sum()
        for path in np.asarray(found["gradient_descent"][i]):
            np.testing.assert_allclose(path, alpha, atol=1e-12)
            alpha = alpha + step * (y - A @ alpha)
        last = found["conjugate_gradient"][i, -1]
        np.testing.assert_allclose(last, np.linalg.solve(A, y), rtol=1e-6, atol=1e-6)
    normalised = iterates(ik.Gaussian(), RIDGE, tasks, 2)
    assert {*normalised} - {*found} == {"richardson", "preconditioned_chebyshev"}


def test_a_similarity_is_the_cosine_of_a_ridge_regression(x64):
    rng = np.random.default_rng(0)
    for tokens in (1, N):
        channels = rng.standard_normal((TASKS, 3, tokens, 4))
        targets = {"first": rng.standard_normal((TASKS, 3, N)), "held": np.zeros((TASKS, 3, N))}
        targets["held"] += channels[..., 0].reshape(TASKS, 3, -1)
        found = similarities(channels, targets)
        shaped = targets["first"].reshape(TASKS, 3, tokens, -1)
        expected = [cosine(channels[:, layer], shaped[:, layer]) for layer in (1, 2)]
        np.testing.assert_allclose(found["first"].layers, expected)
        assert found["first"].mean == pytest.approx(np.mean(expected))
        turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
        turned = similarities(channels @ turn, targets)
        np.testing.assert_allclose(turned["first"].layers, expected)
        assert found["held"].mean > 1 - 1e-6
        assert 0.01 < found["first"].resampled.std() < 1
        compared = compared_by_cosine(found)
        assert compared.leader == 1
        assert compared.low[0, 0] > 0


def test_the_inputs_alone_are_all_that_a_model_gets(tasks):
    read = partial(inputs_of, layers=2)
    query, support = (channels_of(read, role, tasks) for role in ("query", "support"))
    assert query.shape == (TASKS, 3, 1, N * (P + 1) + P)
    assert support.shape == (TASKS, 3, N, P + 1)
    np.testing.assert_array_equal(query[3, 2, 0, -P:], tasks.x_query[3, 0])
    np.testing.assert_array_equal(support[3, 2, :, -1], tasks.y[3])


def residual(name, low, high, values, steps):
    """The residual polynomial of a solver for the interval from low to high, at eigenvalues."""
    if name == "gradient_descent":
        return (1 - 2 * values / (low + high)) ** steps
    basis = np.polynomial.Chebyshev.basis(steps)
    return basis((high + low - 2 * values) / (high - low)) / basis((high + low) / (high - low))


def test_tuned_solvers_have_the_best_of_the_intervals(x64, monkeypatch):
    shares, count = (0.02, 0.05, 0.3), 20  # the best: the last and the second
    monkeypatch.setattr(probe_similarity, "SHARES", shares)
    p = N - 1  # the smallest eigenvalue stands alone
    family = ik.tasks.LinearRegression(num_features=p, num_supports=N, noise=0.03)
    ridge, steps = family.noise * p, N
    build, names = ik.constructions.conjugate_gradient, ("gradient_descent", "chebyshev")
    model = build(ik.Linear(), num_features=p, ridge=ridge, steps=steps, dtype=float)
    found = probe_similarity.errors_of(model, family, count)
    tasks, errors = draw_tasks(jax.random.key(2), count, family), []
    parts = map(np.asarray, (tasks.x, tasks.y, tasks.x_query, tasks.y_query))
    for x, y, at, truth in zip(*parts, strict=True):
        values, vectors = np.linalg.eigh(x @ x.T + ridge * np.eye(N))
        ends = [(values[0], values[-1]), *((share * values[-1], values[-1]) for share in shares)]
        left = [residual(name, *both, values, steps) for name in names for both in ends]
        alpha = (1 - np.array([*left, 0 * values])) / values * (y @ vectors)
        errors.append(np.square(alpha @ (at @ x.T @ vectors).T - truth))
    source, *tuned, _, a, b, c, exact = np.mean(errors, axis=(0, 2))
    named = {"gradient_descent": source, "exact": exact, "tuned gradient_descent": min(tuned)}
    named |= {"tuned chebyshev": min(a, b, c), "conjugate_gradient": exact, "model": exact}
    assert found == pytest.approx(named | {"condition": 1.0}, rel=1e-6)


def test_controls_are_those_of_all_stages():
    said = {"similarity": {"chebyshev": 0.25}, "nearest": "chebyshev", "tied": ["richardson"]}
    rows = {}
    for name, size in (("a, 1 updates", 0.5), ("a, 4 updates", 0.125)):
        rows[name] = {key: {"query": said} for key in ("untrained", "inputs")}
        rows[name]["read"] = {"query": said | {"similarity": {"chebyshev": size}}}
    _, lines = probe_similarity.trained_table(rows, ["query"])
    assert [(line[0], line[1], line[4]) for line in lines] == [
        ("a, 1 updates", "the model", "0.500"),
        ("a", "random weights", "0.250"),
        ("a", "inputs alone", "0.250"),
        ("a, 4 updates", "the model", "0.125"),
    ]
    assert {line[-1] for line in lines} == {"chebyshev, richardson"}
