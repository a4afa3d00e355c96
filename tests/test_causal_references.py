"""Causal constructions and oracles against the recurrences of linear attention layers.

The recurrences are those of the reference implementations in flash-linear-attention, derived again
from their equations, for one sequence and one head. They use the names of that library:

    q, k [T, K]   queries and keys              v [T, V]   values
    beta [T]      write strengths               g [T]      logarithms of the gates
    lamb [K]      diagonal of the regulariser   o [T, V]   outputs, after the write at the token

A token x_i carries k_i, g_i and beta_i side by side. The kernel is `Linear(projection=U)`, where U
selects the key channels, and `log_gate` and `strength` are the unit vectors of the other two.
"""

from functools import partial

import helpers
import jax
import numpy as np
import pytest
import references
from helpers import numpy, relative

import icl_krr as ik
from icl_krr.constructions import SUPPORTS_AND_QUERIES

pytestmark = pytest.mark.usefixtures("x64")

T, K, V = 9, 4, 3
P = K + 2
U, GATE, STRENGTH = np.split(np.eye(P), [K, K + 1])
LAYER = {"log_gate": GATE[0], "strength": STRENGTH[0]}
SIZES = {"num_features": P, "num_outputs": V}
TOLERANCE = 1e-12


def inputs(seed, lengths=False):
    """q, k, v, g and beta of a layer; with keys of length 1 unless `lengths`."""
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(2, T, K))
    v, g = rng.normal(size=(T, V)), -rng.exponential(0.2, T)
    return (q, k if lengths else unit(k), v, g, rng.uniform(0.1, 0.9, T))


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def states(k, v, g, beta):
    """H_kk and H_kv after every token: both have the gates and the strengths."""
    kk, kv, along = np.zeros((K, K)), np.zeros((K, V)), []
    for t in range(len(k)):
        kk = np.exp(g[t]) * kk + beta[t] * np.outer(k[t], k[t])
        kv = np.exp(g[t]) * kv + beta[t] * np.outer(k[t], v[t])
        along.append((kk, kv))
    return along


def mesa(q, k, v, g, beta, lamb):
    """The Mesa layer: solve with H_kk + diag(lamb) for the query, read H_kv."""
    along = zip(q, states(k, v, g, beta), strict=True)
    return np.stack([kv.T @ np.linalg.solve(kk + np.diag(lamb), qt) for qt, (kk, kv) in along])


def task_of(k, v, g, beta, queries=None, gates=0.0):
    """A task whose supports are the tokens, and whose queries have log gates of their own."""
    queries = k[-1:] if queries is None else queries
    gates = np.broadcast_to(gates, len(queries))
    x = np.column_stack([k, g, beta])
    x_query = np.column_stack([queries, gates, np.zeros(len(queries))])
    return numpy(ik.Task(x=x, y=v, x_query=x_query))


def read_between(q, k, v, g, beta):
    """A task that reads at q_t after token t: a support with g = 0 and beta = 0 does not write."""
    pairs = ((k, q), (v, 7 + v), (g, 0 * g), (beta, 0 * beta))
    return task_of(*(np.stack(pair, axis=1).reshape(2 * T, *pair[0].shape[1:]) for pair in pairs))


KEYS = ik.Linear(projection=U)
READS = slice(1, 2 * T, 2)


def agree(name, task, expected, at=slice(T), kernel=KEYS, form=None, **options):
    """The predictions at supports and queries: of the model, and of the oracle after all steps."""
    keywords = {"prefix": "inclusive", **LAYER, **options}
    built = SIZES | keywords | ({} if form is None else {"form": form})
    model = getattr(ik.constructions, name)(kernel, **built)
    assert relative(np.asarray(ik.predict_along(model, task))[at], expected) < TOLERANCE
    oracle = helpers.solve(getattr(ik.solvers, name), kernel, task, **keywords)
    assert relative(np.asarray(oracle.along)[-1][at], expected) < TOLERANCE


delta_rule = partial(references.of_layer, references.gated_delta_rule)
learn = partial(agree, "delta_rule", step_size=1.0, steps=T)
solve = partial(agree, "prefix_conjugate_gradient", steps=K)
iterate = partial(agree, "prefix_chebyshev")


def test_default_scale_and_separate_queries():
    """The queries of a task see the last state. Their log gate is 0, or they forget once more."""
    q, k, v, g, beta = inputs(1)
    last = K**-0.5 * delta_rule(q, k, v, beta, g)[-1:]
    for gate in (0.0, -0.3):
        task = task_of(k, v, g, beta, queries=K**-0.5 * q[-1:], gates=gate)
        learn(task, np.exp(gate) * last, slice(T, None))


def test_exclusive_predictions_are_what_the_layer_erases():
    """The layer computes exp(g_t) S_{t-1}^T k_t before the write."""
    _, k, v, g, beta = inputs(2)
    S, erased = np.zeros((K, V)), []
    for t in range(T):
        S = np.exp(g[t]) * S
        erased.append(S.T @ k[t])
        S = S + np.outer(k[t], beta[t] * (v[t] - erased[-1]))
    learn(task_of(k, v, g, beta), np.stack(erased), prefix="exclusive")


def test_coefficients_are_the_pseudo_values():
    """(I + diag(beta) tril(Gamma * K K^T, -1)) U = diag(beta) V, with Gamma from the gates."""
    _, k, v, g, beta = inputs(4)
    total = np.cumsum(g)
    gamma = np.exp(total[:, None] - total)
    system = np.eye(T) + beta[:, None] * np.tril(gamma * (k @ k.T), -1)
    expected = np.linalg.solve(system, beta[:, None] * v)
    oracle = ik.solvers.delta_rule(KEYS, task_of(k, v, g, beta), step_size=1.0, **LAYER)
    assert relative(np.asarray(oracle.alpha)[-1], expected) < TOLERANCE


def test_normalised_step_size():
    """`normalised` erases as for keys of length 1, but writes v / |k|: so give it |k| v."""
    q, k, v, g, beta = inputs(6, lengths=True)
    lengths = np.linalg.norm(k, axis=1, keepdims=True)
    expected = delta_rule(unit(q), unit(k), v, beta, g)
    task = read_between(unit(q), k, lengths * v, g, beta)
    learn(task, expected, READS, steps=2 * T, normalised=True)
    plain = task_of(k, v, g, beta)
    expected = delta_rule(k, unit(k), v / lengths, beta, g)
    learn(plain, expected, normalised=True)


def test_mesa_with_a_diagonal_regulariser():
    """One lambda for every key channel: a vector, or the projection Lambda^-1/2 U and ridge 1."""
    q, k, v, g, beta = inputs(9)
    lamb = 0.25 + np.random.default_rng(9).exponential(1, K)
    kernel = ik.Linear(projection=lamb[:, None] ** -0.5 * U)
    expected, task = mesa(q, k, v, g, beta, lamb), read_between(q, k, v, g, beta)
    solve(task, expected, READS, kernel, ridge=1.0)
    solve(task, expected, READS, ridge=lamb, preconditioner="jacobi")
    solve(task, expected, READS, ridge=lamb, form="fused")
    bounds = ik.theory.prefix_bounds(KEYS, task, ridge=lamb)
    iterate(task, expected, READS, ridge=lamb, steps=120, spectrum=bounds)

    @jax.jit
    def traced(lamb):
        model = ik.constructions.prefix_conjugate_gradient(KEYS, **SIZES, ridge=lamb, steps=K)
        return ik.predict(model, task)

    plain = task_of(k, v, 0 * g, 1 + 0 * beta, queries=q)
    model = ik.constructions.prefix_conjugate_gradient(KEYS, **SIZES, ridge=lamb, steps=K)
    assert model.problem is None
    assert ik.check(model, plain, kernel=kernel, ridge=1.0).ok
    assert relative(traced(lamb), ik.predict(model, task)) < TOLERANCE


@pytest.mark.parametrize("w", [1, 4])
def test_regression_on_the_last_pairs(w):
    """The objective of the Omega rule of Atlas, a sum over the last w pairs, solved exactly."""
    _, k, v, g, beta = inputs(14)
    total, expected = np.cumsum(g), []
    for t in range(T):
        window = slice(max(t - w + 1, 0), t + 1)
        weight = beta[window] * np.exp(total[t] - total[window])
        A = (weight[:, None] * k[window]).T @ k[window] + 0.3 * np.eye(K)
        expected.append(k[t] @ np.linalg.solve(A, (weight[:, None] * k[window]).T @ v[window]))
    solve(task_of(k, v, g, beta), np.stack(expected), ridge=0.3, window=w)


@pytest.mark.parametrize("w", [1, 4])
def test_delta_rule_that_forgets_a_write(w):
    """S_t is the sum of the last w writes; each corrects the error of the state before it."""
    _, k, v, g, beta = inputs(15)
    writes, expected = [], []
    for t in range(T):
        writes = [np.exp(g[t]) * write for write in writes[-w:]]
        error = v[t] - sum(writes, np.zeros((K, V))).T @ k[t]
        writes.append(np.outer(k[t], beta[t] * error))
        expected.append(sum(writes[-w:]).T @ k[t])
    learn(task_of(k, v, g, beta), np.stack(expected), window=w)


def test_gated_kalmanet():
    """Strengths beta^2, lambda_t = a |H_t|, the bounds lambda_t, lambda_t + |H_t|.

    Its iteration starts with a gradient step, which is the first step here. A model has one ridge
    and one pair of bounds, so that every token is the query of a task with the supports before it.
    """
    q, k, v, g, beta = inputs(13)
    squared, more = task_of(k, v, g, beta**2, queries=q), 6

    @jax.jit
    def both(ridge, norm, mask, query):
        task = squared.replace(mask=mask, x_query=query)
        options = {"ridge": ridge, "steps": more + 1, "spectrum": (ridge, ridge + norm), **LAYER}
        model = ik.constructions.prefix_chebyshev(KEYS, **SIZES, **options)
        oracle = ik.solvers.prefix_chebyshev(KEYS, task, **options)
        return ik.predict(model, task)[0], oracle.prediction[-1, 0]

    for t, (H, kv) in enumerate(states(beta[:, None] * k, beta[:, None] * v, g, np.ones(T))):
        norm = np.linalg.norm(H)
        A, size, shrink = H + 0.02 * norm * np.eye(K), 2 / (1.04 * norm), (1 / 1.04) ** 2
        before, x, omega = 0 * q[t], size * q[t], 2.0
        for _ in range(more):
            omega = 4 / (4 - shrink * omega)
            x, before = x - omega * size * (A @ x - q[t]) + (omega - 1) * (x - before), x
        for result in both(0.02 * norm, norm, np.arange(T) <= t, squared.x_query[t : t + 1]):
            assert relative(result, kv.T @ x) < TOLERANCE


def test_random_feature_attention():
    """Normalised and gated (Peng et al., 2021): features, log gates and strengths 1 - gate.

    The last output of each support is 1, so that its sum is z, by which the others are divided.
    """
    q, k, v, g, _ = inputs(6)
    q, kernel = unit(q), ik.Exponential(projection=U)
    sizes = {"num_features": P, "width": 64}
    features = ik.sketches.trigonometric_features(jax.random.key(0), kernel, **sizes)
    m = ik.constructions.prefix_sums(
        kernel, P, ridge=1.0, prefix="inclusive", sketch=features, num_outputs=V + 1,
        **LAYER,
    )  # fmt: skip
    w = m.vector("w", "sum_j phi_j y_j", starts_as=m.right)
    prediction = m.state("prediction", SUPPORTS_AND_QUERIES, "phi . S / phi . z", width=V + 1)
    last = np.repeat(np.eye(V + 1)[:, -1:], V + 1, axis=1)

    def step():
        fit = m.fit_of(w, None, to="fit")
        m.divide(fit, fit @ last, to=prediction)

    model = m.transformer(step, steps=1, readout=prediction)
    task = read_between(q, k, np.column_stack([v, np.ones(T)]), g, 1 - np.exp(g))
    S, z, expected = 0, 0, []
    phi_q, phi_k = (np.asarray(features(part @ U)) for part in (q, k))
    for at, phi, value, gate in zip(phi_q, phi_k, v, np.exp(g), strict=True):
        S, z = gate * S + (1 - gate) * np.outer(phi, value), gate * z + (1 - gate) * phi
        expected.append(at @ S / (at @ z))
    outputs = np.asarray(ik.predict_along(model, task))[READS, :V]
    assert relative(outputs, np.stack(expected)) < 1e-10
    slopes = jax.jit(jax.grad(lambda model: ik.predict(model, task).sum()))(model)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slopes))
