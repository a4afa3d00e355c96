"""Causal constructions: masks, gates, tokens and prefixes, and what they must never see."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import dense, draw, of_random_weights, operand_bounds, relative, solve

import icl_krr as ik
from icl_krr import constructions, solvers, theory
from icl_krr.transformer import Heads

P, N = 3, 9
GAUSSIAN = ik.Gaussian(1.5)
PREFIX = {"num_features": P, "ridge": 0.1}
CHANNELS = {"log_gate": np.array([0.0, 0.0, -1.0]), "strength": np.array([0.0, 0.0, 1.0])}
KEYS = ik.Linear(np.eye(P)[:2])
"""The first two channels of x are the key; the third is the write strength, and minus the gate."""
MASK = np.arange(N) % 4 != 1

SOLVERS = {
    "delta": ("delta_rule", {"step_size": 0.1, "steps": N}),
    "normalised": ("delta_rule", {"step_size": 0.3, "steps": N, "normalised": True}),
    "cg": ("prefix_conjugate_gradient", {"ridge": 0.1, "steps": 3}),
    "jacobi": ("prefix_conjugate_gradient", {"ridge": 0.1, "steps": 2, "preconditioner": "jacobi"}),
    "chebyshev": ("prefix_chebyshev", {"ridge": 0.1, "steps": 5, "spectrum": (0.1, 80.0)}),
}
FORMS = {
    "exclusive": {"log_gate": -0.2},
    "inclusive": {"prefix": "inclusive", "log_gate": -0.2, "strength": 0.5},
    "channels": CHANNELS,
    "interleaved": {"tokens": "interleaved", "max_supports": N + 2, "log_gate": -0.2},
    "window": {"prefix": "inclusive", "window": 3, "log_gate": -0.2, "strength": 0.5},
    "last": {"prefix": "inclusive", "window": 1},
    "pairs": {"tokens": "interleaved", "max_supports": N + 2, "window": 2, "log_gate": -0.2},
}
QUICK = {
    "exclusive": ("delta", "jacobi"),
    "inclusive": ("normalised", "cg"),
    "channels": ("delta", "chebyshev"),
    "interleaved": ("normalised", "cg"),
    "window": ("normalised", "cg"),
    "last": ("delta",),
    "pairs": ("normalised",),
}
"""Every solver, and every form with a delta rule and with the state of a prefix."""
MERGED = "window", "cg"


def built(solver, options, **changes):
    """A causal model, and its oracle's results along the supports and queries."""
    name, needs = SOLVERS[solver]
    needs = needs | changes
    kernel = KEYS if options is CHANNELS else ik.Linear()
    kernel = GAUSSIAN if solver == "normalised" else kernel
    model = getattr(constructions, name)(kernel, num_features=P, **needs, **options)
    bare = {k: v for k, v in options.items() if k not in ("tokens", "max_supports")}
    solver = getattr(solvers, name)
    return model, lambda task: solve(solver, kernel, task, **needs, **bare).along[-1]


def positive(task):
    """The third channel is in [0, 1]: a strength, and minus a log gate."""
    third = 1 / (1 + np.exp(-task.x[:, 2:]))
    return task.replace(x=np.concatenate([task.x[:, :2], third], axis=1))


@pytest.mark.parametrize(
    ("form", "solver"),
    [
        pytest.param(form, solver, marks=[pytest.mark.slow] * (solver not in QUICK[form]))
        for form in FORMS
        for solver in SOLVERS
    ],
)
def test_models_equal_their_oracles_at_every_position(x64, form, solver):
    task = positive(draw(3, P, N)).replace(mask=MASK)
    model, oracle = built(solver, FORMS[form])
    expected = oracle(task)
    assert relative(ik.predict_along(model, task), expected) < 1e-11
    if (form, solver) == MERGED:
        assert relative(ik.predict_along(dense(model), task), expected) < 1e-9


@pytest.mark.parametrize(
    ("form", "solver"),
    [("exclusive", "delta"), ("exclusive", "cg"), ("interleaved", "normalised"),
     ("interleaved", "cg")],
)  # fmt: skip
def test_a_position_does_not_depend_on_what_comes_later_or_on_its_own_y(x64, form, solver):
    task, at = draw(4, P, N), np.arange(N)
    y = np.where(at >= 5, 100.0, task.y)
    x = np.where((at > 5)[:, None], 3.0, task.x)
    model, _ = built(solver, FORMS[form])
    before, after = (
        np.asarray(ik.predict_along(model, one))
        for one in (task.replace(mask=MASK), task.replace(x=x, y=y, mask=MASK))
    )
    assert np.array_equal(before[:6], after[:6])
    assert not np.allclose(before[6:], after[6:])


@pytest.mark.parametrize("solver", ["cg", "chebyshev"])
def test_what_left_the_window_changes_nothing(solver):
    """Not a digit, in float32, and where products with what left overflow, too."""
    task, at = draw(4, P, 24), np.arange(24)
    model, oracle = built(solver, {"window": 4, "log_gate": -0.2})
    # queries do not have the regression on all supports, also without gates
    assert model.rebuild(log_gate=None).problem is None
    mask, left = at % 4 != 1, at < 12  # the window of support 18 is 12, 14, 15, 16
    expected = np.asarray(ik.predict_along(model, task.replace(mask=mask)))
    for size in (1e6, 1e18):
        x, y = np.where(left[:, None], size, task.x), np.where(left, 1e6, task.y)
        changed = task.replace(x=x.astype(np.float32), y=y.astype(np.float32), mask=mask)
        along = np.asarray(ik.predict_along(model, changed))
        assert np.array_equal(along[18:], expected[18:])
        assert not np.array_equal(along[:18], expected[:18])
        assert relative(oracle(changed)[18:], expected[18:]) < 1e-4


@pytest.mark.parametrize(
    ("mask", "attention"),
    [("exclusive", "linear"), ("inclusive", "softmax"), ("own", "linear"), ("own", "softmax")],
)
def test_heads_with_a_window_read_the_last_visible_tokens(x64, attention, mask):
    """Formed patterns, and attention that forms none: sums in blocks, and tiles."""
    task, w = draw(5, P, N).replace(mask=MASK), 3
    spec = {"inclusive": mask != "exclusive", "aggregator": mask != "own"}
    sizes = {"num_features": P, "width": 8, "depth": 1, "heads": 2, "attention": attention}
    model = of_random_weights(**sizes, **spec, causal=True, streaming=True)

    def windowed(part):
        return part.replace(window=w) if type(part) is Heads else part

    weights = jax.tree.map(windowed, model.weights, is_leaf=lambda part: type(part) is Heads)
    model = model.replace(weights=weights)
    prediction, cache = ik.run_with_cache(model, task, everything=True)
    key_mask = np.concatenate([[mask != "own"], MASK, np.zeros(task.num_queries, bool)])
    pattern = np.asarray(cache["blocks.0.heads.0.pattern"])
    for i in (i for i in range(1, len(key_mask)) if key_mask[i] or i > N):  # not at padding
        keys = np.flatnonzero(key_mask[1 : i + (mask != "exclusive")]) + 1
        expected = {*keys[-w:], *([0] if key_mask[0] else []), *([i] if mask == "own" else [])}
        assert {*np.flatnonzero(pattern[:, i].any(axis=0))} == expected, i
    assert relative(ik.predict(model, task), prediction) < 1e-12


def test_the_queries_of_a_mesa_layer_have_kernel_ridge_regression(x64):
    """With random features of the Gaussian kernel; ik.check says so."""
    task = draw(6, P, 24, r=2)
    sizes = {"num_features": P, "width": 8}
    features = ik.sketches.trigonometric_features(jax.random.key(0), GAUSSIAN, **sizes)
    options = {**PREFIX, "steps": 12, "num_outputs": 2, "sketch": features}
    model = constructions.prefix_conjugate_gradient(GAUSSIAN, **options)
    exact = solvers.exact(ik.sketched(GAUSSIAN, features), task, ridge=0.1).prediction
    assert relative(ik.predict(model, task), exact) < 1e-8
    assert ik.check(model, task).ok


def test_stored_sums_are_the_sums(x64):
    """The oracles have neither sums nor heads."""
    task = draw(8, P, N, r=2)
    options = {**PREFIX, "steps": 3, "log_gate": -0.1}
    stored = {"stores_sums": True, "num_outputs": 2}
    model = constructions.prefix_conjugate_gradient(ik.Linear(), **stored, **options)
    prediction, cache = ik.run_with_cache(model, task, names=("C",))
    del options["num_features"]
    oracle = solve(solvers.prefix_conjugate_gradient, ik.Linear(), task, **options)
    assert relative(prediction, oracle.prediction[-1]) < 1e-11
    C = np.asarray(cache["C"])[-1, 4].reshape(P, P)
    decay = np.exp(-0.1 * (3.0 - np.arange(3.0)))[:, None]
    assert relative(C, (decay * task.x[:3]).T @ task.x[:3]) < 1e-12
    options["spectrum"] = (0.1, 60.0)
    model = constructions.prefix_chebyshev(ik.Linear(), num_features=P, **stored, **options)
    oracle = solve(solvers.prefix_chebyshev, ik.Linear(), task, **options)
    assert relative(ik.predict_along(model, task), oracle.along[-1]) < 1e-11


def test_gradients_reach_gates_strengths_and_step_sizes(x64):
    task = positive(draw(9, P, N))

    @jax.jit
    @jax.value_and_grad
    def loss(values):
        options = {"step_size": 0.1, "normalised": True, **values}
        model = constructions.delta_rule(KEYS, num_features=P, steps=N, **options)
        mesa = constructions.prefix_conjugate_gradient(KEYS, **PREFIX, steps=2, window=3, **values)
        return sum(jnp.sum(ik.predict_along(m, task) ** 2) for m in (model, mesa))

    _, slope = loss(CHANNELS)
    nudge = np.array([0, 0, 1e-5])
    for name, value in CHANNELS.items():
        high, low = (loss({**CHANNELS, name: value + s * nudge})[0] for s in (1, -1))
        derivative = float(slope[name][2])
        assert np.isclose((float(high) - float(low)) / 2e-5, derivative, rtol=1e-6), name
        assert abs(derivative) > 1e-3


@pytest.mark.parametrize("solver", ["delta", "chebyshev"])
def test_strong_gates_neither_overflow_nor_lose_the_present(solver):
    """e^G would leave float32 after 18 supports; only differences of G are used.

    Padding between supports does not change that.
    """
    task = draw(10, P, 64).replace(mask=np.arange(64) % 40 != 39)
    steps = {"steps": 64} if solver == "delta" else {}
    model, oracle = built(solver, {"log_gate": -5.0}, **steps)
    along = np.asarray(ik.predict_along(model, task))
    assert np.all(np.isfinite(along))
    if solver == "chebyshev":
        with jax.enable_x64(True):
            wide = task.astype(float)
            assert relative(along, oracle(wide)) < 1e-3


def gated_chebyshev(steps):
    options = {**PREFIX, "spectrum": (0.1, 60.0), "log_gate": -0.3}
    return constructions.prefix_chebyshev(ik.Linear(), steps=steps, **options)


def test_patterns_that_hooks_see_are_those_that_are_applied(x64):
    task = draw(11, P, N)
    model = gated_chebyshev(steps=3)
    hooks = {"blocks.*.heads.0.pattern": lambda pattern, where: pattern}
    assert relative(ik.run_with_hooks(model, task, hooks), ik.predict(model, task)) < 1e-12


def test_sums_over_all_supports_are_refused_under_a_causal_mask():
    m = constructions.machine(ik.Linear(), num_features=2)
    m.spec = dataclasses.replace(m.spec, causal=True)
    with pytest.raises(ValueError, match="attention must not be causal for inner products"):
        m.dot(m.y, m.y, to="yy")


def test_a_default_delta_rule_refuses_more_supports_than_it_has_steps():
    model = constructions.delta_rule(ik.Linear(), num_features=1, step_size=0.1)
    task = ik.Task(x=np.ones((257, 1)), y=np.ones(257), x_query=np.ones((1, 1)))
    with pytest.raises(ValueError, match=r"at most 256 supports to fit the model, got 257"):
        ik.predict(model, task)


def test_a_log_gate_needs_causal_linear_attention(x64):
    task = draw(12, P, N)
    model = gated_chebyshev(steps=2)
    other = model.replace(spec=dataclasses.replace(model.spec, causal=False))
    with pytest.raises(ValueError, match="log_gate needs causal linear attention on one device"):
        ik.predict(other, task)


@pytest.mark.parametrize("radius", [0.01, 1e4])
def test_the_width_of_a_budget_grows_as_its_errors_do(radius):
    """With (n / ridge)^(3/2), and with another root of n for the coefficients of a small radius."""
    wide = ik.theory.budget(1e-3, 10**4, 1e-3, radius=radius).width
    more = ik.theory.budget(1e-3, 10**4, 1e-3 / 16, radius=radius).width
    longer = ik.theory.budget(1e-3, 16 * 10**4, 1e-3, radius=radius).width
    assert more / wide == pytest.approx(16**0.75, rel=0.02)
    assert longer / wide == pytest.approx(16 ** (1 if radius < 1 else 0.75), rel=0.02)


def test_a_budget_is_enough_with_tables():
    kernel, error, n, ridge = ik.Gaussian(1.0), 0.1, 8, 0.5
    size = theory.budget(error, n, ridge)
    for seed in range(2):
        process = ik.tasks.GaussianProcess(kernel, num_supports=n, num_queries=8)
        task = ik.tasks.sample(jax.random.key(seed), process)
        options = {"num_features": 2, "ridge": ridge, "steps": size.steps, "num_supports": n}
        twin = constructions.preconditioned_chebyshev(kernel, **options)
        tables = ik.ReLU(size.width, operand_bounds(twin, task))
        model = constructions.preconditioned_chebyshev(kernel, arithmetic=tables, **options)
        exact = np.asarray(solvers.exact(kernel, task, ridge=ridge).prediction)
        gap = np.asarray(ik.predict(model, task)) - exact
        assert np.max(np.abs(gap)) <= error * np.max(np.abs(task.y))
    assert theory.budget(error / 10, n, ridge).steps > size.steps
    assert theory.budget(error, 4 * n, ridge).steps < 2.6 * size.steps  # about sqrt(n)


def test_rounded_slots_hold_values_of_their_format(x64):
    task = draw(13, P, N)
    options = {**PREFIX, "steps": 4, "stores_sums": True}
    model = constructions.prefix_conjugate_gradient(ik.Linear(), **options)
    exact = ik.predict(model, task)
    hooks = ik.probes.round_slots(model, {"C": "bfloat16"})
    rounded, cache = ik.run_with_cache(model, task, names=("C",), hooks=hooks)
    assert np.array_equal(rounded, ik.run_with_hooks(model, task, hooks))
    stored = np.asarray(cache["C"])
    assert np.array_equal(stored, stored.astype(jnp.bfloat16).astype(float))
    scratch = ik.run_with_hooks(model, task, ik.probes.round_slots(model, {"Ap": "bfloat16"}))
    for prediction in (rounded, scratch):
        assert 1e-6 < relative(prediction, exact) < 0.2
    same = ik.probes.round_slots(model, {"C": "float64"})
    assert np.array_equal(ik.run_with_hooks(model, task, same), exact)
    long = task.replace(x=16 * task.x)  # the finding of C39: p.Ap is above 65504
    for slot, finite in (("pAp", False), ("gamma", True)):
        f = ik.run_with_hooks(model, long, ik.probes.round_slots(model, {slot: "float16"}))
        assert np.all(np.isfinite(f)) == finite, slot
