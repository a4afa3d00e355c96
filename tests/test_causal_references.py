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

import jax
import numpy as np
import pytest
from helpers import numpy, relative

import icl_krr as ik

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


def delta_rule(q, k, v, g, beta, scale=K**-0.5, write=None):
    """The gated delta rule: forget, correct the error at k_t, read at q_t; write along `write`."""
    S, o = np.zeros((K, V)), []
    for t in range(len(k)):
        S = np.exp(g[t]) * S
        error = v[t] - S.T @ k[t]
        S = S + np.outer((k if write is None else write)[t], beta[t] * error)
        o.append(scale * S.T @ q[t])
    return np.stack(o)


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


def along_of(name, kernel, task, form=None, **options):
    """The predictions at supports and queries: of the model, and of the oracle after all steps."""
    built = {**SIZES, **options} | ({} if form is None else {"form": form})
    model = getattr(ik.constructions, name)(kernel, **built)
    oracle = getattr(ik.solvers, name)(kernel, task, **options)
    return {
        "model": np.asarray(ik.predict_along(model, task)),
        "oracle": np.asarray(oracle.along)[-1],
    }


def agree(predictions, expected, select=slice(None), tolerance=TOLERANCE):
    for source, along in predictions.items():
        assert relative(along[select], expected) < tolerance, source


KEYS = ik.Linear(projection=U)
learn = partial(along_of, "delta_rule", step_size=1.0, steps=T, prefix="inclusive", **LAYER)
solve = partial(along_of, "prefix_conjugate_gradient", steps=K, prefix="inclusive", **LAYER)


def test_default_scale_and_separate_queries():
    """The queries of a task see the last state. Their log gate is 0, or they forget once more."""
    q, k, v, g, beta = inputs(1)
    last = delta_rule(q, k, v, g, beta)[-1:]
    for gate in (0.0, -0.3):
        task = task_of(k, v, g, beta, queries=K**-0.5 * q[-1:], gates=gate)
        agree(learn(KEYS, task), np.exp(gate) * last, slice(T, None))


def test_exclusive_predictions_are_what_the_layer_erases():
    """The layer computes exp(g_t) S_{t-1}^T k_t before the write."""
    _, k, v, g, beta = inputs(2)
    S, erased = np.zeros((K, V)), []
    for t in range(T):
        S = np.exp(g[t]) * S
        erased.append(S.T @ k[t])
        S = S + np.outer(k[t], beta[t] * (v[t] - erased[-1]))
    agree(learn(KEYS, task_of(k, v, g, beta), prefix="exclusive"), np.stack(erased), slice(T))


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
    expected = delta_rule(unit(q), unit(k), v, g, beta, scale=1)
    task = read_between(unit(q), k, lengths * v, g, beta)
    agree(learn(KEYS, task, steps=2 * T, normalised=True), expected, slice(1, 2 * T, 2))
    plain = task_of(k, v, g, beta)
    expected = delta_rule(k, unit(k), v / lengths, g, beta, scale=1)
    agree(learn(KEYS, plain, normalised=True), expected, slice(T))


@pytest.mark.parametrize("form", ["textbook", "fused"])
def test_mesa(form):
    _, k, v, g, beta = inputs(8)
    expected = mesa(k, k, v, g, beta, np.full(K, 0.4))
    agree(solve(KEYS, task_of(k, v, g, beta), ridge=0.4, form=form), expected, slice(T))


def test_mesa_with_a_diagonal_regulariser():
    """One lambda for every key channel: a vector, or the projection Lambda^-1/2 U and ridge 1."""
    q, k, v, g, beta = inputs(9)
    lamb = 0.25 + np.random.default_rng(9).exponential(1, K)
    kernel = ik.Linear(projection=lamb[:, None] ** -0.5 * U)
    expected, task = mesa(q, k, v, g, beta, lamb), read_between(q, k, v, g, beta)
    reads = slice(1, 2 * T, 2)
    agree(solve(kernel, task, ridge=1.0), expected, reads)
    agree(solve(KEYS, task, ridge=lamb, preconditioner="jacobi"), expected, reads)
    agree(solve(KEYS, task, ridge=lamb, form="fused"), expected, reads)
    bounds = ik.theory.prefix_bounds(KEYS, task, ridge=lamb)
    options = {"steps": 120, "spectrum": bounds, "prefix": "inclusive", **LAYER}
    agree(along_of("prefix_chebyshev", KEYS, task, ridge=lamb, **options), expected, reads)

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
        near = slice(max(t - w + 1, 0), t + 1)
        weight = beta[near] * np.exp(total[t] - total[near])
        A = (weight[:, None] * k[near]).T @ k[near] + 0.3 * np.eye(K)
        expected.append(k[t] @ np.linalg.solve(A, (weight[:, None] * k[near]).T @ v[near]))
    agree(solve(KEYS, task_of(k, v, g, beta), ridge=0.3, window=w), np.stack(expected), slice(T))


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
    agree(learn(KEYS, task_of(k, v, g, beta), window=w), np.stack(expected), slice(T))


def conjugate_gradient(A, b, x, steps, M):
    """Preconditioned conjugate gradient from x, for one right-hand side."""
    r = b - A @ x
    z = p = M * r
    for _ in range(steps):
        step = (r @ z) / (p @ A @ p)
        x, r, before = x + step * p, r - step * (A @ p), r @ z
        z = M * r
        p = z + (r @ z) / before * p
    return x


@pytest.mark.parametrize("steps", [1, K])
def test_jacobi(steps):
    """The preconditioner diag(H_kk) + lambda, by which a Mesa layer divides its first guess."""
    _, k, v, g, beta = inputs(11)
    expected = []
    for kt, (kk, kv) in zip(k, states(k, v, g, beta), strict=True):
        A = kk + 0.1 * np.eye(K)
        solved = [conjugate_gradient(A, b, 0 * b, steps, 1 / np.diag(A)) for b in kv.T]
        expected.append(np.stack(solved) @ kt)
    options = {"ridge": 0.1, "steps": steps, "preconditioner": "jacobi"}
    task = task_of(k, v, g, beta)
    agree(solve(KEYS, task, **options), np.stack(expected), slice(T))
    if steps == K:
        exact = mesa(k, k, v, g, beta, np.full(K, 0.1))
        agree(solve(KEYS, task, **options), exact, slice(T))


def chebyshev(steps, low, high, eigenvalues):
    """T_n(s(e)) / T_n(s(0)), what is left of the error, with s from [low, high] to [1, -1]."""
    basis = np.eye(steps + 1)[steps]
    at = [(high + low - 2 * e) / (high - low) for e in (eigenvalues, 0.0)]
    return np.divide(*(np.polynomial.chebyshev.chebval(value, basis) for value in at))


@pytest.mark.parametrize("steps", [1, 20])
def test_prefix_chebyshev_is_the_chebyshev_polynomial(steps):
    """The factors of the error do not depend on the right-hand side: both sides have them."""
    q, k, v, g, beta = inputs(12)
    ridge = 0.2
    spectrum = (ridge, ridge + float(np.sum(beta)))  # keys of length 1
    task = read_between(q, k, v, g, beta)
    options = {"ridge": ridge, "steps": steps, "spectrum": spectrum, **LAYER}
    found = along_of("prefix_chebyshev", KEYS, task, prefix="inclusive", **options)
    expected = []
    for qt, (kk, kv) in zip(q, states(k, v, g, beta), strict=True):
        e, Q = np.linalg.eigh(kk + ridge * np.eye(K))
        expected.append(kv.T @ Q @ ((1 - chebyshev(steps, *spectrum, e)) / e * (Q.T @ qt)))
    agree(found, np.stack(expected), slice(1, 2 * T, 2))
    if steps == 20:
        rate = (spectrum[1] / ridge) ** 0.5
        exact = mesa(q, k, v, g, beta, np.full(K, ridge))
        left = 2 * ((rate - 1) / (rate + 1)) ** steps
        agree(found, exact, slice(1, 2 * T, 2), tolerance=left * 4)


def test_gated_kalmanet():
    """Gated KalmaNet: strengths beta^2, lambda_t = a |H_t|, the bounds lambda_t, lambda_t + |H_t|.

    Its iteration starts with a gradient step, which is the first step here. A model has one ridge
    and one pair of bounds, so that every token is the query of a task with the supports before it.
    """
    q, k, v, g, beta = inputs(13)
    ratio, more = 0.02, 6
    squared = task_of(k, v, g, beta**2, queries=q)

    def step(A, low, high, qt):
        size, shrink = 2 / (high + low), ((high - low) / (high + low)) ** 2
        before, x, omega = 0 * qt, size * qt, 2.0
        for _ in range(more):
            omega = 4 / (4 - shrink * omega)
            x, before = x - omega * size * (A @ x - qt) + (omega - 1) * (x - before), x
        return x

    @jax.jit
    def both(ridge, norm, mask, query):
        task = squared.replace(mask=mask, x_query=query)
        options = {"ridge": ridge, "steps": more + 1, "spectrum": (ridge, ridge + norm), **LAYER}
        model = ik.constructions.prefix_chebyshev(KEYS, **SIZES, **options)
        oracle = ik.solvers.prefix_chebyshev(KEYS, task, **options)
        return ik.predict(model, task)[0], oracle.prediction[-1, 0]

    layer = states(beta[:, None] * k, beta[:, None] * v, g, np.ones(T))
    found, expected = [], []
    for t, (kk, kv) in enumerate(layer):
        norm = np.linalg.norm(kk)
        ridge = ratio * norm
        expected.append(kv.T @ step(kk + ridge * np.eye(K), ridge, ridge + norm, q[t]))
        found.append(both(ridge, norm, np.arange(T) <= t, squared.x_query[t : t + 1]))
    for predictions in zip(*found, strict=True):
        assert relative(np.stack(predictions), np.stack(expected)) < TOLERANCE
