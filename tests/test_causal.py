"""Causal constructions: masks, gates, tokens and prefixes, and what they must never see."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import dense, draw, relative

import icl_krr as ik
from icl_krr import constructions, solvers, theory

P, N = 3, 9
GAUSSIAN = ik.Gaussian(1.5)
PREFIX = {"num_features": P, "ridge": 0.1}
CHANNELS = {"log_gate": np.array([0.0, 0.0, -1.0]), "strength": np.array([0.0, 0.0, 1.0])}
KEYS = ik.Linear(jnp.eye(P)[:2])
"""The first two channels of x are the key; the third is the write strength, and minus the gate."""


def models(**options):
    """One causal model of each kind, with its oracle's results along the supports and queries."""
    high = {"spectrum": (0.1, 80.0)}
    bare = {k: v for k, v in options.items() if k not in ("tokens", "max_supports", "form")}
    kernel = KEYS if "log_gate" in options and np.ndim(options["log_gate"]) else ik.Linear()
    cases = (
        ("delta_rule", kernel, {"step_size": 0.1, "steps": N}),
        ("delta_rule", GAUSSIAN, {"step_size": 0.3, "steps": N, "normalised": True}),
        ("prefix_conjugate_gradient", kernel, {"ridge": 0.1, "steps": 3}),
        (
            "prefix_conjugate_gradient",
            kernel,
            {"ridge": 0.1, "steps": 2, "preconditioner": "jacobi"},
        ),
        ("prefix_chebyshev", kernel, {"ridge": 0.1, "steps": 5, **high}),
    )
    for name, kernel, needs in cases:
        model = getattr(constructions, name)(kernel, num_features=P, **needs, **options)
        oracle = lambda task, name=name, kernel=kernel, needs=needs: getattr(solvers, name)(  # noqa: E731
            kernel, task, **needs, **bare
        )
        yield name, model, oracle


def positive(task):
    """The third channel is in [0, 1]: a strength, and minus a log gate."""
    return task.replace(x=task.x.at[:, 2].set(jax.nn.sigmoid(task.x[:, 2])))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prefix": "inclusive", "log_gate": -0.2, "strength": 0.5},
        CHANNELS,
        {"tokens": "interleaved", "max_supports": N + 2, "log_gate": -0.2},
    ],
    ids=["exclusive", "inclusive", "channels", "interleaved"],
)
def test_models_equal_their_oracles_at_every_position(x64, options):
    task = positive(draw(3, P, N)).replace(mask=jnp.arange(N) % 4 != 1)
    for name, model, oracle in models(**options):
        assert relative(ik.predict_along(model, task), oracle(task).along[-1]) < 1e-11, name


def test_merged_slots_keep_their_gates(x64):
    task = draw(3, P, N)
    for name, model, oracle in [*models(log_gate=-0.2)][1:3]:
        merged = dense(model)
        assert relative(ik.predict_along(merged, task), oracle(task).along[-1]) < 1e-9, name


@pytest.mark.parametrize("tokens", ["pairs", "interleaved"])
def test_a_position_does_not_depend_on_what_comes_later_or_on_its_own_y(x64, tokens):
    options = {"tokens": tokens, "log_gate": -0.1}
    options |= {"max_supports": N} if tokens == "interleaved" else {}
    task = draw(4, P, N)
    later = jnp.arange(N) >= 5
    y = jnp.where(later, 100.0, task.y)
    x = jnp.where((jnp.arange(N) > 5)[:, None], 3.0, task.x)
    for name, model, _ in [*models(**options)][::2]:
        before, after = (ik.predict_along(model, t) for t in (task, task.replace(x=x, y=y)))
        assert jnp.array_equal(before[:6], after[:6]), name
        assert not jnp.allclose(before[6:], after[6:]), name


def test_a_support_is_predicted_like_a_query_of_the_cut_task(x64):
    task = draw(5, P, N)
    for name, model, _ in [*models(log_gate=-0.1)][1:3]:
        along = ik.predict_along(model, task)
        for i in (1, 8):
            cut = ik.Task(x=task.x[:i], y=task.y[:i], x_query=task.x[i : i + 1])
            assert relative(ik.predict(model, cut), along[i : i + 1]) < 1e-10, (name, i)


def test_the_queries_of_a_mesa_layer_have_kernel_ridge_regression(x64):
    """With random features of the Gaussian kernel, too; ik.check says so."""
    task = draw(6, P, 24, r=2)
    features = ik.sketches.trigonometric_features(
        jax.random.key(0), GAUSSIAN, num_features=P, width=8
    )
    for sketch in (None, features):
        model = constructions.prefix_conjugate_gradient(
            ik.Linear() if sketch is None else GAUSSIAN,
            **{**PREFIX, "steps": 12, "num_outputs": 2, "sketch": sketch},
        )
        kernel = ik.Linear() if sketch is None else ik.sketched(GAUSSIAN, features)
        exact = solvers.exact(kernel, task, ridge=0.1).prediction
        assert relative(ik.predict(model, task), exact) < 1e-8
        assert ik.probes.check(model, task).ok


def test_prefix_chebyshev_is_chebyshev_at_the_queries(x64):
    """Both residual polynomials are the same: no candidate of `identify` of its own."""
    task = draw(7, P, N)
    bounds = theory.prefix_bounds(ik.Linear(), task, ridge=0.1)
    needs = {"ridge": 0.1, "steps": 6, "spectrum": bounds}
    dual = solvers.chebyshev(ik.Linear(), task, **needs).prediction
    primal = solvers.prefix_chebyshev(ik.Linear(), task, **needs).prediction
    assert relative(primal, dual) < 1e-12
    cg = [f(ik.Linear(), task, ridge=0.1, steps=2).prediction for f in (
        solvers.conjugate_gradient, solvers.prefix_conjugate_gradient)]  # fmt: skip
    assert relative(*cg) > 1e-3


def test_stored_sums_are_the_sums(x64):
    task = draw(8, P, N, r=2)
    for name, more in (
        ("prefix_conjugate_gradient", {}),
        ("prefix_chebyshev", {"spectrum": (0.1, 60.0)}),
    ):
        build = getattr(constructions, name)
        common = {**PREFIX, "steps": 3, "num_outputs": 2, "log_gate": -0.1, **more}
        stored = build(ik.Linear(), stores_sums=True, **common)
        headed = build(ik.Linear(), **common)
        assert relative(ik.predict_along(stored, task), ik.predict_along(headed, task)) < 1e-12
        C = ik.run_with_cache(stored, task, names=("C",))[1]["C"][-1, 4].reshape(P, P)
        decay = jnp.exp(-0.1 * (3.0 - jnp.arange(3.0)))[:, None]
        assert relative(C, (decay * task.x[:3]).T @ task.x[:3]) < 1e-12


def test_gradients_reach_gates_strengths_and_step_sizes(x64):
    task = positive(draw(9, P, N))
    start = jax.tree.map(jnp.asarray, CHANNELS)

    def loss(values):
        model = constructions.delta_rule(
            KEYS, num_features=P, step_size=0.1, steps=N, normalised=True, **values
        )
        mesa = constructions.prefix_conjugate_gradient(KEYS, **PREFIX, steps=2, **values)
        return sum(jnp.sum(ik.predict_along(m, task) ** 2) for m in (model, mesa))

    slope = jax.grad(loss)(start)
    for name, value in start.items():
        nudge = jnp.zeros(P).at[2].set(1e-5)
        ends = [loss({**start, name: value + s * nudge}) for s in (1, -1)]
        assert np.isclose((ends[0] - ends[1]) / 2e-5, slope[name][2], rtol=1e-6), name
        assert jnp.abs(slope[name][2]) > 1e-3


def test_strong_gates_neither_overflow_nor_lose_the_present():
    """e^G would leave float32 after 18 supports; only differences of G are used."""
    task = draw(10, P, 64)
    for name, model, oracle in models(log_gate=-5.0):
        steps = {"steps": 64} if name == "delta_rule" else {}
        along = ik.predict_along(model.replace(**steps), task)
        assert jnp.all(jnp.isfinite(along)), name
        with jax.enable_x64(True):
            wide = jax.tree.map(lambda a: a.astype(jnp.float64), task)
            assert name == "delta_rule" or relative(along, oracle(wide).along[-1]) < 1e-3, name


def test_patterns_that_hooks_see_are_those_that_are_applied(x64):
    task = draw(11, P, N)
    model = constructions.prefix_chebyshev(
        ik.Linear(), **PREFIX, steps=3, spectrum=(0.1, 60.0), log_gate=-0.3
    )
    seen = {"blocks.*.heads.0.pattern": lambda pattern, where: pattern}
    assert relative(ik.run_with_hooks(model, task, seen), ik.predict(model, task)) < 1e-12


def test_sums_over_all_supports_are_refused_under_a_causal_mask():
    m = constructions.machine(ik.Linear(), num_features=2)
    m.spec = dataclasses.replace(m.spec, causal=True)
    with pytest.raises(ValueError, match="attention must not be causal for inner products"):
        m.dot(m.y, m.y, to="yy")


def test_a_default_delta_rule_refuses_more_supports_than_it_has_steps():
    model = constructions.delta_rule(ik.Linear(), num_features=1, step_size=0.1)
    task = ik.Task(x=jnp.ones((257, 1)), y=jnp.ones(257), x_query=jnp.ones((1, 1)))
    with pytest.raises(ValueError, match=r"at most 256 supports to fit the model, got 257"):
        ik.predict(model, task)


def test_a_log_gate_needs_causal_linear_attention(x64):
    task = draw(12, P, N)
    model = constructions.prefix_chebyshev(
        ik.Linear(), **PREFIX, steps=2, spectrum=(0.1, 60.0), log_gate=-0.3
    )
    other = model.replace(spec=dataclasses.replace(model.spec, causal=False))
    with pytest.raises(ValueError, match="log_gate needs causal linear attention on one device"):
        ik.predict(other, task)


@pytest.mark.parametrize(
    ("error", "n", "ridge"), [(0.1, 8, 0.5), pytest.param(0.02, 12, 1.0, marks=pytest.mark.slow)]
)
def test_a_budget_is_enough_with_tables(error, n, ridge):
    kernel = ik.Gaussian(1.0)
    size = theory.budget(error, n, ridge)
    for seed in range(2):
        process = ik.tasks.GaussianProcess(kernel, num_supports=n, num_queries=8)
        task = ik.tasks.sample(jax.random.key(seed), process)
        options = {"num_features": 2, "ridge": ridge, "steps": size.steps, "num_supports": n}
        twin = constructions.preconditioned_chebyshev(kernel, **options)
        tables = ik.ReLU(size.width, ik.operand_bounds(twin, task))
        model = constructions.preconditioned_chebyshev(kernel, arithmetic=tables, **options)
        gap = ik.predict(model, task) - solvers.exact(kernel, task, ridge=ridge).prediction
        assert jnp.max(jnp.abs(gap)) <= error * jnp.max(jnp.abs(task.y))
    assert theory.budget(error / 10, n, ridge).steps > size.steps
    assert theory.budget(error, 4 * n, ridge).steps < 2.6 * size.steps  # about sqrt(n)


def test_rounded_slots_hold_values_of_their_format(x64):
    task = draw(13, P, N)
    model = constructions.prefix_conjugate_gradient(
        ik.Linear(), **PREFIX, steps=4, stores_sums=True
    )
    exact = ik.predict(model, task)
    for slot in ("C", "r", "Ad"):
        hooks = ik.probes.round_slots(model, {slot: "bfloat16"})
        f, cache = ik.run_with_cache(model, task, names=("r", "C"), hooks=hooks)
        assert jnp.array_equal(f, ik.run_with_hooks(model, task, hooks))
        assert 1e-6 < relative(f, exact) < 0.2, slot
        if slot in ("C", "r"):
            stored = cache[slot]
            assert jnp.array_equal(stored, stored.astype(jnp.bfloat16).astype(jnp.float64))
    same = ik.probes.round_slots(model, {"C": "float64"})
    assert jnp.array_equal(ik.run_with_hooks(model, task, same), exact)


def test_float16_overflows_where_it_must(x64):
    """The finding of C39: an inner product above 65504 makes the predictions NaN."""
    task = draw(14, P, 64)
    task = task.replace(x=16 * task.x)
    model = constructions.prefix_conjugate_gradient(ik.Linear(), **PREFIX, steps=4)
    for slot, finite in (("dAd", False), ("gamma", True)):
        f = ik.run_with_hooks(model, task, ik.probes.round_slots(model, {slot: "float16"}))
        assert bool(jnp.all(jnp.isfinite(f))) == finite, slot
