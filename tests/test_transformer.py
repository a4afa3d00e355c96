"""Layers, masks, trained specs, caches and hooks of the one forward."""

import traceback
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES, SPECS, cg, dense, draw, numpy, of_random_weights, relative, stacked
from jaxtyping import TypeCheckError
from test_numpy_forward import PATTERNS

import icl_krr as ik
from icl_krr._core.xla_workarounds import sum_of_rows
from icl_krr.catalogue import ATTENTIONS
from icl_krr.residual import Read
from icl_krr.transformer import Where, _attention, _block
from icl_krr.transformer._block import ACTIVATIONS

T = 9


def qkv(seed=0, d_k=3, d_v=2):
    random, dtype = np.random.default_rng(seed), jnp.result_type(float)
    return [jnp.asarray(random.normal(size=(T, width)), dtype) for width in (d_k, d_k, d_v)]


@pytest.mark.parametrize("kind", ["linear", "softmax"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_equals_numpy(x64, kind, causal):
    q, k, v = qkv()
    key_mask = np.array([True, True, False, True, True, True, False, True, False])
    mask = [[key_mask[j] and (j < i or j == 0 or not causal) for j in range(T)] for i in range(T)]
    logits = np.asarray(q) @ np.asarray(k).T
    weights = PATTERNS[kind](logits, np.array(mask))
    spec = ik.Spec(1, attention=kind, causal=causal)
    ours = jax.jit(partial(_attention.attend, spec=spec))(q, k, v, key_mask)
    assert relative(ours, weights @ np.asarray(v)) < 1e-12
    pattern = jax.jit(partial(_attention.pattern, spec=spec))(q, k, key_mask)
    assert relative(pattern, weights) < 1e-12


@pytest.mark.parametrize("rows", [1, 4096, 4097])
def test_short_and_long_columns_are_summed(rows):
    column = np.linspace(0, 1, rows, dtype=np.float32)[:, None]
    np.testing.assert_allclose(sum_of_rows(column), [[np.sum(column)]], rtol=1e-4)


def test_the_shapes_that_annotations_state_are_checked():
    q, k, v = qkv()
    with pytest.raises(TypeCheckError):
        _attention.attend(q, k[:, :2], v, jnp.ones(T, bool), ik.Spec(1, attention="linear"))


def test_linear_attention_never_forms_the_pattern():
    """No array of the whole computation holds T^2 entries; nor has softmax of many tokens one."""
    big = 4096
    shapes = [jax.ShapeDtypeStruct((big, 2), np.float32)] * 3
    linear, whole = ik.Spec(1, attention="linear"), ik.Spec(1, streaming=False)
    for spec, formed in ((linear, False), (ik.Spec(1), False), (whole, True)):
        attend = partial(_attention.attend, key_mask=jnp.ones(big, bool), spec=spec)
        assert (f"{big}x{big}" in jax.jit(attend).lower(*shapes).as_text()) == formed


@pytest.mark.parametrize("build", ["richardson", "conjugate_gradient", None])
def test_a_task_takes_six_frames_from_predict_to_a_head(build, monkeypatch):
    """Frames of the package on the stack of Python while JAX traces a head of a step."""
    package, run_heads, ways = Path(ik.__file__).parent, _block.run_heads, []

    def head(*arguments):
        stack = [f for f in traceback.extract_stack() if package in Path(f.filename).parents]
        ways.append([frame.name for frame in stack] + ["run_heads"])
        return run_heads(*arguments)

    monkeypatch.setattr(_block, "run_heads", head)
    if build is None:
        model = random_model(width=8, depth=2, heads=2)
    else:
        construct = getattr(ik.constructions, build)
        model = construct(ik.Gaussian(1.25), num_features=4, ridge=0.3, steps=2)
    jax.eval_shape(ik.predict, model, draw(0, n=11))  # that no other test has traced
    print(longest := max(ways, key=len))
    assert longest == ["predict", "evaluate", "forward", "step", "run_block", "run_heads"]


def test_reciprocal_is_guarded():
    reciprocal, x = ACTIVATIONS["reciprocal"], np.array([4.0, -0.5, 0.0, 1e-38])
    value, slope = jax.jit(jax.vmap(jax.value_and_grad(reciprocal)))(x)
    assert np.isnan(reciprocal(np.inf))  # overflow must not pass for 1 / inf = 0
    assert value.tolist() == [0.25, -2.0, 0.0, 0.0]
    assert slope.tolist() == [-0.0625, -4.0, 0.0, 0.0]


SIZES = {"num_features": 4, "width": 16, "depth": 3, "heads": 4}
architecture, random_model = partial(ik.Architecture, **SIZES), partial(of_random_weights, **SIZES)


def test_random_models_run_through_the_same_forward(x64):
    spec = architecture(**SPECS["gpt2"])
    model, task = ik.init(jax.random.key(0), spec), draw(0)
    _, cache = jax.eval_shape(ik.run_with_cache, model, task)
    assert (model.depth, model.blocks_per_step) == (3, 1)
    assert cache["stream"].shape == (4, 1 + 14 + 3, 16)
    gradient = numpy(jax.jit(jax.grad(lambda m: jnp.sum(ik.predict(m, task) ** 2)))(model))
    leaves = jax.tree_util.tree_leaves_with_path(gradient)
    silent = [jax.tree_util.keystr(path) for path, leaf in leaves if not np.any(leaf)]
    # biases start at 0, and the softmax does not feel a shift that all keys share
    assert all("'one'" in name for name in silent), silent


def test_a_causal_model_of_interleaved_tokens_answers_at_every_support(x64):
    """What it says there is what it says of a query after the supports before; masks are felt."""
    model = random_model(causal=True, tokens="interleaved", max_tokens=16)
    task = draw(3).replace(y_query=None)
    along = numpy(ik.predict_along(model, task))
    for k in range(1, 7):  # asked for three times: one program answers every prefix
        x_query = np.repeat(task.x[k : k + 1], 3, axis=0)
        masked = task.replace(x_query=x_query, mask=np.arange(7) < k)
        assert relative(ik.predict(model, masked), np.repeat(along[k], 3)) < 1e-12
    full = task.replace(mask=np.ones(7, bool))
    assert relative(along[7:], ik.predict(model, full)) < 1e-12
    spread = task.replace(mask=np.array([True, False, True, True, False, False, True]))
    unmasked = ik.Task(x=task.x[spread.mask], y=task.y[spread.mask], x_query=task.x_query)
    assert relative(ik.predict(model, spread), ik.predict(model, unmasked)) < 1e-12


def test_a_looped_model_runs_at_any_depth(x64):
    looped = random_model(tied=True)
    task, untied = draw(4), ik.untie(looped)
    assert relative(ik.predict(looped, task), ik.predict(untied, task)) < 1e-12
    deeper = looped.replace(steps=5)
    assert jax.eval_shape(ik.run_with_cache, deeper, task)[1]["stream"].shape[0] == 6


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("other", [{}, {"tied": True, "hidden": 0}])
def test_initial_predictions_have_the_size_of_y(attention, other):
    """Without LayerNorm, too, and for more than a hundred supports."""
    sizes = {"num_features": 4, "width": 32, "depth": 16, "heads": 1, "layer_norm": False, **other}
    model = ik.init(jax.random.key(0), ik.Architecture(attention=attention, **sizes))
    task = draw(0, n=128)
    assert np.max(np.abs(ik.predict(model, task))) < 30 * np.max(np.abs(task.y))


@pytest.mark.parametrize("steps", [-3, 2.5, "a", True, 10**12])
def test_steps_that_are_no_count_are_refused(steps):
    model = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=1)
    with pytest.raises((TypeError, ValueError), match=f"steps must be .*, got {steps!r}"):
        model.replace(steps=steps)


def test_initial_parameters_do_not_depend_on_the_others():
    """Keys derive from names: a deeper model starts with the same first blocks."""
    short = ik.init(jax.random.key(0), architecture(depth=2, activation="relu"))
    deep = ik.init(jax.random.key(0), architecture(depth=4, activation="gelu", max_tokens=9))
    ours = short.weights.steps[0].attention[0].query.blocks["stream"]
    theirs = deep.weights.steps[0].attention[0].query.blocks["stream"]
    assert np.array_equal(ours, theirs[:2])


def test_architecture_refuses():
    for options, message in (
        ({"attention": "x"}, "attention must be one of 'linear', 'softmax', got 'x'"),
        ({"activation": "tanh"}, "activation must be one of"),
        ({"depth": 0}, "depth must be >= 1, got 0"),
        ({"tokens": "x"}, "tokens must be one of 'pairs', 'interleaved', got 'x'"),
    ):
        with pytest.raises(ValueError, match=message):
            architecture(**options)
    with pytest.raises(ValueError, match="must have no LayerNorm to be merged"):
        ik.dense(random_model())
    model = random_model(max_tokens=8)
    with pytest.raises(ValueError, match="at most 8 positions to fit the model, got 9"):
        ik.predict(model, draw(0))


def test_a_random_model_without_norm_can_be_merged(x64):
    model = random_model(layer_norm=False, max_tokens=12)
    task = draw(3)
    ours, theirs = (numpy(ik.run_with_cache(m, task))[1]["stream"] for m in (dense(model), model))
    assert relative(ours, theirs) < 1e-12


# caches and hooks


@pytest.fixture
def task():
    return draw(4)


@pytest.fixture
def model(task):
    return cg(task, 0.1, 3)


def test_everything_is_kept_under_its_name(task, model):
    prediction, cache = numpy(ik.run_with_cache(model, task, everything=True))
    # linear attention forms its pattern to show it, which rounds in another order
    assert relative(prediction, ik.predict(model, task)) < 1e-4
    assert len({*cache}) == len(cache)
    assert all(cache[name] is not None for name in cache)
    # h after block b is h before it and what its sublayers wrote
    for b in range(model.depth):
        before, after = cache[f"blocks.{b}.resid_pre"], cache[f"blocks.{b}.resid_post"]
        for slot, value in before.items():
            written = cache[f"blocks.{b}.attn"].get(slot, 0) + cache[f"blocks.{b}.mlp"].get(slot, 0)
            assert np.allclose(after[slot], value + written, atol=1e-5)
        if b:
            last = cache[f"blocks.{b - 1}.resid_post"]
            assert all(np.array_equal(before[slot], last[slot]) for slot in before)
    pattern = cache["blocks.1.heads.0.pattern"]
    assert relative(pattern[0, 1:8, 1:8], task.x @ task.x.T) < 1e-6
    assert not np.any(pattern[:, :, 8:])
    wrong = ("nothing", "blocks.99.attn", "blocks.0.nothing", "blocks.x.attn", "foo.0.attn")
    for name in (*wrong, "blocks.1.heads.0.pattern.x"):
        assert name not in cache
        with pytest.raises(KeyError):
            cache[name]


def test_only_named_slots_are_stored(task, model):
    _, cache = numpy(ik.run_with_cache(model, task, names=("r", "x", "rr")))
    assert sorted(cache) == ["r", "rr", "x"]
    assert cache["x"].shape == (4, 1 + 7 + 3, 4)
    assert cache["rr"].shape == (4, 1)
    assert np.allclose(cache["rr"][:, 0], np.sum(cache["r"] ** 2, axis=1), rtol=1e-5)
    with pytest.raises(ValueError, match=r"slot must be one of .*, got 'q'"):
        ik.run_with_cache(model, task, names=("q",))


def test_caches_batch_by_vmap(model):
    tasks = stacked(draw(0), draw(1))
    _, cache = jax.eval_shape(jax.vmap(ik.run_with_cache, in_axes=(None, 0)), model, tasks)
    assert cache["alpha"].shape == (2, 4, 7)


def test_a_name_that_a_cache_does_not_have_is_told_the_names_it_has(task, model):
    _, cache = numpy(ik.run_with_cache(model, task, points=("attn",)))
    for name, sentence in {
        "alhpa": r"has alpha, .* and points of blocks\.0, 1, \.\.\., 15; .* you mean 'alpha'\?",
        "blocks.3.atn": r"has attn in blocks\.3; .*; did you mean 'blocks\.3\.attn'\?",
        "blocks.3.attn.alph": r"did you mean 'blocks\.3\.attn\.alpha'\?",
        "attn": r"did you mean 'blocks\.0\.attn' or",
        "blocks.16.attn": r"and points of blocks\.0, 1",
        "blocks.3": r"has attn in blocks\.3; choose",
        "nothing": r"points= or everything=True",
    }.items():
        with pytest.raises(KeyError, match=f"'{name}' is not in the cache, which .*{sentence}"):
            cache[name]
        assert name not in cache
    with pytest.raises(KeyError, match=r"3 is not in the cache, which has alpha, p, pred"):
        ik.run_with_cache(model, task)[1][3]


def test_hooks_see_and_replace(task, model):
    """All hooks in one program, which multiply by 1, or one of them by 0."""
    points = "attn", "mlp", "resid_pre", "resid_post", "heads.1", "units.0", "attn.r", "attn.alpha"

    def scaled(factor, value, where):
        return jax.tree.map(lambda part: factor * part, value)

    @jax.jit
    def run(factors):
        pairs = zip(points, factors, strict=True)
        hooks = {f"blocks.3.{point}": partial(scaled, factor) for point, factor in pairs}
        return ik.run_with_hooks(model, task, hooks)

    plain, *changed = map(run, np.concatenate([np.ones((1, 8)), 1 - np.eye(8)]).astype("f"))
    assert relative(plain, ik.predict(model, task)) < 1e-6
    same = ik.run_with_hooks(model, task, {"blocks.3.attn": lambda value, where: value})
    assert np.array_equal(same, ik.predict(model, task))
    # the prediction accumulates on its own: nothing that follows reads alpha
    felt = [not np.array_equal(prediction, plain) for prediction in changed]
    assert felt == [point != "attn.alpha" for point in points]


def test_a_hook_acts_in_its_own_block_only(task, model):
    """Halving gamma p in block 3 (step 0) halves the first step's share of alpha, no other."""
    _, cache = numpy(ik.run_with_cache(model, task))
    calls = []

    def halve(value, where):
        calls.append(where)
        return value / 2

    ours = numpy(ik.run_with_hooks(model, task, {"blocks.3.attn.prediction": halve}))
    steps = np.diff(cache["prediction"], axis=0)
    assert relative(ours, np.sum(steps, 0) - steps[0] / 2) < 1e-6
    ours = numpy(ik.run_with_hooks(model, task, {"blocks.8.attn.prediction": halve}))
    assert relative(ours, np.sum(steps, 0) - steps[1] / 2) < 1e-6
    assert set(calls) == {
        Where(3, 0, 3, "attn.prediction", "blocks.3.attn.prediction"),
        Where(3, 1, 8, "attn.prediction", "blocks.8.attn.prediction"),
    }


def test_a_hook_is_told_where_it_is(x64, task, model):
    """At every block and at one block alike: the hook finds the value of the run in the cache."""
    plain, cache = numpy(ik.run_with_cache(model, task, points=("resid_post.r", "attn.rr")))
    stored, places = cache.stack("resid_post.r"), []

    def check(value, where):
        places.append((where.name, where.point, where.position))
        return value + jnp.where(jnp.allclose(value, stored[where.block], 1e-9), 0.0, jnp.nan)

    hooks = {f"blocks.{block}.resid_post.r": check for block in ("*", 0, 9)}
    assert relative(ik.run_with_hooks(model, task, hooks), plain) < 1e-12
    assert {position for name, _, position in places if "*" in name} == {*range(6)}
    assert ("blocks.9.resid_post.r", "resid_post.r", 4) in places
    assert {point for _, point, _ in places} == {"resid_post.r"}


def test_a_pattern_can_be_replaced_and_gradients_go_through_hooks(x64, task, model):

    @jax.jit
    @jax.value_and_grad
    def scaled(scale):
        hooks = {"blocks.1.heads.0.pattern": lambda value, name: scale * value}
        return jnp.sum(ik.run_with_hooks(model, task, hooks))

    (less, _), (value, slope), (more, _) = map(scaled, (1 - 1e-6, 1.0, 1 + 1e-6))
    assert np.isclose(slope, (more - less) / 2e-6, rtol=1e-6)
    assert np.isclose(value, np.sum(numpy(ik.predict(model, task))), rtol=1e-12)


def test_hooks_refuse(task, model):
    same = lambda value, name: value  # noqa: E731
    for name in ("blocks.16.attn", "attn", "blocks.-1.attn"):
        with pytest.raises(ValueError, match=r"blocks\.I\.POINT with I < depth = 16"):
            ik.run_with_hooks(model, task, {name: same})
    for name in ("blocks.3.atn", "blocks.0.atn"):
        message = r"at a point of its block.*the points are attn.*did you mean 'attn'\?"
        with pytest.raises(ValueError, match=message):
            ik.run_with_hooks(model, task, {name: same})
    with pytest.raises(ValueError, match=r"must return float32\[11, 1\], got float32\[11\]"):
        ik.run_with_hooks(model, task, {"blocks.3.attn.alpha": lambda value, name: value[:, 0]})


def test_runs_refuse_what_they_cannot_use(task, model):
    for hooks in (None, {"blocks.1.attn": 3}):
        with pytest.raises(TypeError, match=r"hooks must be \{name: function"):
            ik.run_with_hooks(model, task, hooks)
    with pytest.raises(TypeError, match=r"hook at blocks.1.attn must take \(value, where\), got"):
        ik.run_with_hooks(model, task, {"blocks.1.attn": lambda value: value})
    with pytest.raises(ValueError, match="num_outputs = 2 to fit the model, got 3"):
        ik.predict(cg(draw(0, r=2), 0.1, 3), draw(0, r=3))


def test_a_model_is_a_pytree_of_its_parts():
    """Trees of labels, masks and axes reach every weight, and a change of one is seen."""
    task, model = draw(0), CASES["cg-exponential"].build(draw(0), 0.5, 2)
    reads = jax.tree.leaves(model, is_leaf=lambda part: isinstance(part, Read))
    assert len([part for part in reads if isinstance(part, Read)]) > 20
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(model)]
    named = [jax.tree_util.keystr(path, simple=True, separator=".") for path in paths]
    assert "weights.patterns.pattern_0.query.blocks.x" in named
    nothing = jax.tree.map(lambda leaf: None, model)
    assert len(jax.tree.leaves(nothing, is_leaf=lambda leaf: leaf is None)) >= len(paths)
    # placeholders and batches: the check of its steps does not look at its leaves
    empty = jax.tree.map(lambda leaf: object(), model)
    assert jax.tree.structure(empty) == jax.tree.structure(model)
    batched = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), model)
    assert jax.eval_shape(jax.vmap(lambda one: one), batched).steps == 2
    before = ik.predict(model, task)
    model.weights.readout.blocks["prediction"] *= 2
    assert relative(ik.predict(model, task), 2 * before) < 1e-6
