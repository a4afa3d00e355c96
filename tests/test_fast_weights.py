"""Delta rules against plain recurrences of layers, written from their equations for one head.

The names are those of the layers' code: q, k [T, K], v [T, V], beta [T], g [T] or [T, K], the
logarithms of the gates, and o [T, V], read after the write at the query and times 1 / sqrt(K).
"""

from functools import partial

import jax
import numpy as np
import pytest
import references
from helpers import draw, numpy, one, relative, solve

import icl_krr as ik
from icl_krr import constructions, losses, solvers
from icl_krr.experiments.solverbench import rotated
from icl_krr.export import from_linear_attention

pytestmark = pytest.mark.usefixtures("x64")

T, K, V = 7, 4, 3
TOLERANCE = 1e-12


def inputs(seed, channels=False):
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(2, T, K))
    k /= np.linalg.norm(k, axis=1, keepdims=True)
    g = -rng.exponential(0.3, (T, K) if channels else T)
    return q, k, rng.normal(size=(T, V)), rng.uniform(0.1, 0.9, T), g


def of_layer(rule, *sequences, others=(), **numbers):
    """The outputs of a layer whose S starts as 0 and whose further states as `others`."""
    return K**-0.5 * references.of_layer(rule, *sequences, others=others, **numbers)


def outputs(name, layer, **parameters):
    """The outputs of the model, with those of the oracle beside them."""
    steps = {} if name.startswith("prefix") else {"steps": layer.task.num_supports}
    model = getattr(constructions, name)(**layer.keywords, **parameters, **steps)
    bare = {k: v for k, v in layer.keywords.items() if k not in ("num_features", "num_outputs")}
    oracle = solve(getattr(solvers, name), task=layer.task, **bare, **parameters)
    result = layer.outputs(ik.predict_along(model, layer.task))
    assert relative(layer.outputs(oracle.along[-1]), result) < TOLERANCE
    return result


def test_delta_rules_of_layers():
    q, k, v, beta, g = inputs(0, channels=True)
    layer = from_linear_attention(q, k, v, beta, g)
    rules = {"delta_rule": references.gated_delta_rule, "implicit_delta_rule": references.longhorn}
    for name, rule in rules.items():
        expected = of_layer(rule, q, k, v, beta, g)
        assert relative(outputs(name, layer, step_size=1.0), expected) < TOLERANCE, name


def test_several_writes_in_a_token():
    """DeltaProduct: the token forgets once, writes h times, and reads once."""
    rng, h = np.random.default_rng(1), 3
    q, *_, g = inputs(1)
    keys, values = rng.normal(size=(T, h, K)) / 2, rng.normal(size=(T, h, V))
    strengths = rng.uniform(0.1, 0.9, (T, h))
    S, o = np.zeros((K, V)), []
    for t in range(T):
        S = np.exp(g[t]) * S
        for j in range(h):
            _, S = references.gated_delta_rule(S, keys[t, j], values[t, j], strengths[t, j])
        o.append(S.T @ q[t] / np.sqrt(K))
    layer = from_linear_attention(q, keys, values, strengths, g)
    assert layer.task.num_supports == T * (h + 1)
    assert relative(outputs("delta_rule", layer, step_size=1.0), np.stack(o)) < TOLERANCE
    again = from_linear_attention(None, keys, values, strengths, g)
    assert again.task.num_supports == T * h


def gated_delta_net_2(S, k, v, erase_gate, write_gate, g):
    S = np.exp(g)[..., None] * S
    alpha = write_gate * v - S.T @ (erase_gate * k)
    return alpha, S + np.outer(k, alpha)


def test_a_token_that_erases_at_another_vector():
    """Gated DeltaNet-2 has an erase gate of each key channel and a write gate of each value one."""
    q, k, v, _, g = inputs(14, channels=True)
    rng = np.random.default_rng(14)
    erase_gate, write_gate = rng.uniform(0, 1, (T, K)), rng.uniform(0, 1, (T, V))
    expected = of_layer(gated_delta_net_2, q, k, v, erase_gate, write_gate, g)
    layer = from_linear_attention(q, k, write_gate * v, g=g, erase=erase_gate * k)
    assert relative(outputs("delta_rule", layer, step_size=1.0), expected) < TOLERANCE


def test_momentum_of_every_token():
    q, k, v, eta, _ = inputs(2)
    rng = np.random.default_rng(2)
    beta, mu, alpha = (rng.uniform(low, 1, T) for low in (0.5, 0.2, 0.7))
    rule, start = references.momentum_delta_net, np.zeros((K, V))
    expected = of_layer(rule, q, k, v, eta, beta, mu, alpha, others=[start])
    numbers = {"step_size": beta, "momentum": mu, "decay": alpha}
    layer = from_linear_attention(q, k, v, eta, **numbers)
    assert layer.task.num_supports == 2 * T
    assert relative(outputs("momentum_delta_rule", layer), expected) < TOLERANCE


@pytest.mark.parametrize(("squash", "channels"), [(None, False), (1.5, True)])
def test_preconditioned_layers(squash, channels):
    q, k, v, beta, g = inputs(4, channels)
    options = {"step_size": 0.3, "squash": squash, "center": -0.2}
    start = np.full(K, 0.7)
    expected = of_layer(references.preconditioned, q, k, v, beta, g, others=[start], **options)
    layer = from_linear_attention(q, k, v, beta, g)
    result = outputs("preconditioned_delta_rule", layer, initial=0.7, **options)
    assert relative(result, expected) < TOLERANCE


@pytest.mark.parametrize(("covariance", "channels"), [("diagonal", True), ("isotropic", False)])
def test_kalman_layers(covariance, channels):
    q, k, v, r, g = inputs(5, channels)
    omega = np.random.default_rng(5).uniform(0, 0.3, T)
    start = np.ones(1 if covariance == "isotropic" else K)
    expected = of_layer(references.kalman, q, k, v, r, omega, g, others=[start], info_scale=4.0)
    layer = from_linear_attention(q, k, v, 1 / r, g, process_noise=omega)
    options = {"ridge": 1.0, "covariance": covariance, "info_scale": 4.0}
    assert relative(outputs("kalman_delta_rule", layer, **options), expected) < TOLERANCE


def test_kalman_gains_are_exact_for_keys_along_channels_only():
    """With other keys, the covariance is not diagonal, and the mean is another."""
    task = draw(6, K, 12)
    one_hot = task.replace(x=np.eye(K)[np.arange(12) % K] * (1 + np.arange(12.0)[:, None] / 9))
    for data, equal in ((one_hot, True), (task, False)):
        exact = solvers.prefix_posterior(ik.Linear(), data, ridge=0.3, steps=3 * K).along[-1]
        predictions = solvers.kalman_delta_rule(ik.Linear(), data, ridge=0.3).along[-1]
        assert (relative(predictions, exact) < 1e-10) == equal


@pytest.mark.parametrize("loss", [losses.Huber(0.4), losses.Power(1.5, 1e7)])
def test_losses(loss):
    """The error of each write is cut or raised to a power; y is not rescaled."""
    _, k, v, beta, g = inputs(7)
    S, o = np.zeros((K, V)), []
    for t in range(T):
        S = np.exp(g[t]) * S
        e = 1e4 * v[t] - S.T @ k[t]
        if isinstance(loss, losses.Huber):
            e = np.clip(e, -0.4, 0.4)
        else:
            e = e * (e * e + loss.smoothing) ** (loss.exponent / 2 - 1)
        S = S + np.outer(k[t], 1e-6 * beta[t] * e)
        o.append(S.T @ k[t] / np.sqrt(K))
    layer = from_linear_attention(k, k, 1e4 * v, beta, g)
    assert layer.task.num_supports == T  # a query that is its key reads what it writes
    result = outputs("delta_rule", layer, step_size=1e-6, loss=loss)
    assert relative(result, np.stack(o)) < TOLERANCE


def test_small_factors_keep_their_digits_in_float32():
    """A logarithm of 1 + small - 1 would not, and that of 0 would be infinite."""
    _, k, v, *_ = (part.astype("float32") for part in inputs(17))
    for small in (0.0, 1e-12, 1e-6):
        numbers = {"momentum": np.full(T, small, "f"), "step_size": np.full(T, 0.5, "f")}
        decay = np.full(T, max(small, 1e-12), "f")
        layer = from_linear_attention(None, k, v, decay=decay, **numbers)
        bare = {k: v for k, v in layer.keywords.items() if k not in ("num_features", "num_outputs")}
        model = constructions.momentum_delta_rule(**layer.keywords, steps=T, dtype="float32")
        wide = layer.task.astype("float64")
        exact = solve(solvers.momentum_delta_rule, task=wide, **bare).along[-1]
        assert relative(ik.predict_along(model, layer.task), exact) < 1e-5, small
    x = np.ones((40, 2), "f") * np.array([1, 0], "f")  # the curvature of the second one fades away
    task = ik.Task(x=x, y=np.ones(40, "f"), x_query=x[:1])
    rule = {"step_size": 0.3, "squash": 1.5, "log_gate": -3.0}
    path = solve(solvers.preconditioned_delta_rule, ik.Linear(), task, **rule)
    sizes = {"num_features": 2, "steps": 40, "dtype": "float32"}
    model = constructions.preconditioned_delta_rule(ik.Linear(), **sizes, **rule)
    assert relative(ik.predict_along(model, task), path.along[-1]) < 1e-5


RULES = {
    "delta_rule": {"step_size": 0.3, "loss": losses.Huber(0.5)},
    "implicit_delta_rule": {"step_size": 3.0},
    "momentum_delta_rule": {"step_size": 0.2, "momentum": 0.5, "decay": 0.9},
    "preconditioned_delta_rule": {"step_size": 0.3, "squash": 1.5},
    "kalman_delta_rule": {"ridge": 0.3, "process_noise": 0.1},
}
GATES = np.array([[-0.1, 0.0, 0.0], [0.0, -0.2, 0.0], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize("name", RULES)
def test_masks_outputs_and_gates(name):
    """All predictions, with a token of its own for each of three y, and gates of features."""
    task = draw(9, 3, T, r=3)
    task = task.replace(x=np.abs(task.x), mask=np.arange(T) % 3 != 1)  # gates below 1
    options = {**RULES[name], "log_gate": GATES, "steps": T}
    path = getattr(solvers, name)(ik.Linear(), task, **options)
    assert path.status.ok
    sizes = {"num_features": 3, "num_outputs": 3, "tokens": "interleaved", "max_supports": T}
    model = getattr(constructions, name)(ik.Linear(), **sizes, **options)
    assert relative(ik.predict_along(model, task), path.along[-1]) < 1e-11


@pytest.mark.parametrize(
    "name", ["implicit_delta_rule", "preconditioned_delta_rule", "kalman_delta_rule"]
)
def test_rotated_weights_divide_no_rounding_error_by_another(name):
    task = draw(15, 3, T)
    model = getattr(constructions, name)(ik.Linear(), num_features=3, steps=T, **RULES[name])
    prediction = ik.predict(rotated(model, jax.random.key(0)), task)
    assert relative(prediction, ik.predict(model, task)) < 1e-11


@partial(jax.jit, static_argnums=0)
@partial(jax.value_and_grad, argnums=1)
def size_and_slopes(name, values, task):
    """Of the predictions, and their slopes in the numbers of the rule."""
    model = getattr(constructions, name)(ik.Linear(), num_features=3, steps=T, **values)
    return jax.numpy.sum(ik.predict_along(model, task) ** 2)


@pytest.mark.parametrize("name", RULES)
def test_gradients(name):
    """In all numbers of a rule, along a random direction."""
    at = {k: v for k, v in RULES[name].items() if k != "squash"}
    rng = np.random.default_rng(0)
    direction = jax.tree.map(lambda value: rng.normal(), at)
    task = draw(10, 3, T)

    def moved(t):
        values = jax.tree.map(lambda value, change: value + t * change, at, direction)
        return size_and_slopes(name, values, task)

    (less, _), (_, slopes), (more, _) = map(moved, (-1e-6, 0.0, 1e-6))
    slope = sum(jax.tree.leaves(jax.tree.map(np.multiply, slopes, direction)))
    assert np.isclose(slope, (more - less) / 2e-6, rtol=1e-5)


def test_a_gradient_passes_momentum_0():
    name, task = "momentum_delta_rule", draw(10, 3, T)
    starts = [RULES[name] | {"momentum": momentum} for momentum in (0.0, 1e-6)]
    (start, slopes), (end, _) = (size_and_slopes(name, values, task) for values in starts)
    assert np.isclose(slopes["momentum"], (end - start) / 1e-6, rtol=1e-4)


def test_the_status_says_that_a_rule_diverges_before_a_number_is_not_finite():
    rng, n = np.random.default_rng(11), 80
    x, y = (rng.normal(size=size).astype("float32") for size in ((n, 64), n))
    task = ik.Task(x=x, y=y, x_query=x[:1])
    rule = {"step_size": 1.0, "momentum": 0.5}

    @jax.jit
    @jax.vmap
    def runs(mask):
        path = solvers.momentum_delta_rule(ik.Linear(), task.replace(mask=mask), **rule)
        return path.along[-1], path.status

    along, status = numpy(runs(np.tri(n, dtype=bool)))
    warned, lost = np.argmax(status.grows), np.argmax(~np.isfinite(along).all(axis=1))
    assert warned < lost - 10 < n
    assert np.array_equal(np.isfinite(along[-1, :n]), np.arange(n) < lost)
    assert "diverges" in one(status, -1).advice()
    safe = solvers.implicit_delta_rule(ik.Linear(), task, step_size=1.0)
    assert safe.status.ok
    assert np.all(np.isfinite(safe.along))


def test_inputs_that_are_refused():
    q, k, v, beta, g = inputs(12)
    for change, text in (
        ({"v": v[:3]}, "v must have shape"),
        ({"beta": beta[:2]}, r"beta must have shape \[7, 1\] to fit k"),
        ({"k": k[None, None]}, "k must have 2 axes, or 3 for several writes"),
    ):
        with pytest.raises(ValueError, match=text):
            from_linear_attention(**({"q": q, "k": k, "v": v, "beta": beta, "g": g} | change))


def test_check_says_that_a_model_diverges():
    rng = np.random.default_rng(13)
    task = ik.Task(x=rng.normal(size=(20, 64)), y=rng.normal(size=20), x_query=np.ones((1, 64)))
    for eta, good in ((1.0, False), (0.01, True)):
        model = constructions.delta_rule(ik.Linear(), num_features=64, step_size=eta, steps=20)
        status = ik.check(model, task)
        assert status.ok == good
        assert status.grows != good
        oracle = solvers.delta_rule(ik.Linear(), task, step_size=eta).status
        assert np.isclose(oracle.error, status.error)
        if good:
            assert status.advice().startswith("no sign of divergence, but not a solution of a ")
