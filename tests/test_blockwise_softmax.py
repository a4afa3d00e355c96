"""Softmax attention, of whole patterns and in tiles: the same numbers, with a shift and without."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES, draw, equations, in_tiles, numpy, of_random_weights, relative

import icl_krr as ik
from icl_krr.transformer import _attention, _blockwise_softmax
from icl_krr.transformer._full_softmax import full_softmax
from icl_krr.transformer._masks import Order

SIZES = (1e-3, 1.0, 1e3)
"""Of logits: those of the last need a shift in float32 and in float64."""


@partial(jax.jit, static_argnums=4)
def reference(q, k, v, key_mask, order):
    """Softmax over the whole pattern, and the logarithm of its denominators.

    With the order "own", hidden tokens read themselves too.
    """
    earlier = jnp.tri(len(q), k=-1 if order == "exclusive" else 0, dtype=bool).at[0, 0].set(True)
    mask = key_mask[None, :] & (earlier if order else True)
    mask |= jnp.eye(len(q), dtype=bool) & (order == "own")
    logits = jnp.where(mask, q @ k.T, -jnp.inf)
    return jax.nn.softmax(logits, axis=-1) @ v, jax.nn.logsumexp(logits, axis=-1)


def parts(tokens=23, size=5.0, channels=3):
    random, dtype = np.random.default_rng(tokens), jnp.result_type(float)
    key_mask = (random.random(tokens) < 0.7) | (np.arange(tokens) == 0)
    widths = (channels, channels, 2)
    q, k, v = (random.normal(size=(tokens, width)).astype(dtype) for width in widths)
    return size * q, k, v, key_mask


def heads(tokens, size=5.0):
    q, k, v, key_mask = parts(tokens, size)
    return q, np.where(key_mask[:, None], k, 0), np.where(key_mask[:, None], v, 0), key_mask


def whole(q, k, v, key_mask, order=""):
    return full_softmax(q, k, key_mask, Order(order))(v, key_mask)


def as_tiles(q, k, v, key_mask, order=""):
    return _blockwise_softmax.blockwise_softmax(q, k, v, key_mask, Order(order))


def tiled(*at, order=""):
    """As one program, made anew: the side of a tile may be another than before."""
    return jax.jit(lambda *at: as_tiles(*at, order))(*at)


@pytest.fixture
def tile(monkeypatch):
    monkeypatch.setitem(_blockwise_softmax.TILE_SIDES, "cpu", 16)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("order", ["", "own", "inclusive", "exclusive"])
@pytest.mark.parametrize("channels", [3, 9])
def test_whole_patterns_equal_the_plain_formula(x64, size, order, channels):
    at = parts(size=size, channels=channels)
    mixed = jax.jit(partial(whole, order=order))(*at)
    assert relative(mixed, reference(*at, order)[0]) < 1e-11


def test_the_own_logit_of_a_hidden_token_may_be_the_largest():
    q, k, v = map(np.float32, ([[1], [200]], [[0], [1]], [[1], [2]]))
    mixed = whole(*map(jnp.asarray, (q, k, v, np.array([True, False]))), order="own")
    np.testing.assert_allclose(mixed, [[1], [2]])


@pytest.mark.parametrize("tokens", [1, 37])
@pytest.mark.parametrize("order", ["", "exclusive", "inclusive"])
def test_tiles_equal_the_whole_pattern(x64, tile, tokens, order):
    at = heads(tokens)
    for ours, theirs in zip(tiled(*at, order=order), reference(*at, order), strict=True):
        assert relative(ours, theirs) < 1e-13


@pytest.mark.parametrize("size", [1e-3, 1e3])
def test_no_logit_overflows_and_no_tile_matters(size, monkeypatch):
    """Logits beyond the range of exp are shifted by the largest of each query."""
    q, k, v, key_mask = heads(50, size)
    results = []
    for side in (8, 16, 64):
        monkeypatch.setitem(_blockwise_softmax.TILE_SIDES, "cpu", side)
        results.append(tiled(q, k, v, key_mask)[0])
    expected = reference(q, k, v, key_mask, "")[0]
    arrays = map(jnp.asarray, (q, k, v, key_mask))
    results.append(_attention.attend(*arrays, ik.Spec(1, streaming=False)))
    for result in results:
        assert relative(result, results[0]) < 1e-6 * max(1, size)
        assert relative(result, expected) < 1e-6 * max(1, size)


@jax.jit
def slopes_of_tiles(q, k, v, key_mask, value):
    def loss(q, k, v):
        results = as_tiles(q, k, v, key_mask)
        return jnp.sum(results[0]) / value, results

    return jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(q, k, v)


@pytest.mark.parametrize("bound", [1.0, 60.0, 80.0, 1e3])
@pytest.mark.parametrize("value", [1e-30, 1.0, 1e30])
def test_logits_that_are_not_shifted_lose_nothing(tile, bound, value):
    """Even if all logits are as far below zero as the bound, and hidden tokens have logits of 0."""
    k = (np.arange(40.0)[:, None] < 20).astype(float)
    q = np.linspace(-bound, bound, 40)[:, None]
    v = np.where(k > 0, value * np.arange(40.0)[:, None], 0)
    key_mask = k[:, 0] > 0

    slopes, (out, log_total) = slopes_of_tiles(q, k, v, key_mask, value)
    assert relative(out, np.full((40, 1), 9.5 * value)) < 1e-6
    assert relative(log_total, q[:, 0] + np.log(20.0)) < 1e-6
    assert relative(slopes[2] * value, np.where(k > 0, 2.0, 0)) < 1e-5
    assert np.max(np.abs(slopes[0])) < 1e-4


@pytest.mark.parametrize("attend", [whole, lambda *at: as_tiles(*at)[0]], ids=["whole", "tiles"])
def test_a_batch_in_which_some_logits_need_a_shift_equals_its_heads_alone(x64, tile, attend):
    """One branch is run for a whole batch."""
    q, k, v, key_mask = heads(37)
    sizes = np.array([[1e-2], [1.0], [1e3]])
    of = lambda size: attend(size * q, k, v, key_mask)  # noqa: E731

    def slopes(size):
        return jax.grad(lambda size: jnp.sum(of(size) ** 2))(size)

    for run in map(jax.jit, (of, slopes)):
        alone = np.stack([run(size[0])[None] for size in sizes])
        assert relative(jax.vmap(jax.vmap(run))(sizes), alone) < 1e-13


@pytest.mark.parametrize(
    ("dtype", "error", "streaming"),
    [(jnp.bfloat16, 2**-7, True), (np.float32, 1e-6, True), (np.float32, 1e-6, False)],
)
def test_weights_of_the_values_sum_to_one_in_the_gradient_too(tile, dtype, error, streaming):
    """The backward pass computes the patterns again, and must round them as the forward did."""
    q, k, v, key_mask = heads(60)
    spec, largest = ik.Spec(1, streaming=streaming), np.max(q @ k.T)

    def row_sums(size):
        at = [jnp.asarray(part).astype(dtype) for part in (q * size / largest, k, v)]
        row = lambda i, v: _attention.attend(*at[:2], v, jnp.asarray(key_mask), spec)[i, 0]  # noqa: E731
        slopes = jax.vmap(jax.grad(row, argnums=1), in_axes=(0, None))(jnp.arange(20), at[2])
        return jnp.sum(slopes.astype(jnp.float32), axis=(1, 2))

    sums = jax.jit(jax.vmap(row_sums))(np.array([10.0, 40.0, 80.0, 300.0, 1e4]))
    assert np.max(np.abs(sums - 1)) < error


def test_causal_sums_of_bfloat16_are_accumulated_in_float32():
    ones = np.ones((8192, 1), jnp.bfloat16)
    v = np.random.default_rng(0).random((8192, 1)).astype(jnp.bfloat16)
    spec = ik.Spec(1, attention="linear", causal=True)
    attend = jax.jit(partial(_attention.attend, spec=spec))
    sums = attend(ones, ones, v, np.ones(8192, bool))[1:]
    assert np.allclose(sums, np.cumsum(v[:-1], axis=0, dtype=float), rtol=2**-8)


@pytest.mark.parametrize("widths", [(1, 1), (1, 3), (3, 1)])
def test_linear_attention_of_every_width_is_blind_to_hidden_tokens(x64, widths):
    """Neither the values nor the gradients are touched by NaN at a token that nobody reads."""
    random = np.random.default_rng(1)
    q, k, v = (random.normal(size=(9, width)) for width in (widths[0], *widths))
    key_mask, spec = np.arange(9) < 6, ik.Spec(1, attention="linear")
    k, v = (np.where(key_mask[:, None], part, np.nan) for part in (k, v))
    attend = jax.jit(lambda *parts: _attention.attend(*parts, key_mask, spec))
    assert relative(attend(q, k, v), q @ (k[:6].T @ v[:6])) < 1e-13
    slopes = jax.jit(jax.grad(lambda *at: jnp.sum(attend(*at)), argnums=(0, 1, 2)))(q, k, v)
    assert not any(np.any(np.isnan(slope)) for slope in slopes)
    assert relative(slopes[1][:6], v[:6] @ np.sum(q, 0)[:, None].repeat(v.shape[1], 1).T) < 1e-13


def test_a_construction_in_tiles_is_the_same_model(x64, tile):
    task = draw(0, n=30)
    model = CASES["cg-exponential"].build(task, 0.5, 4)
    prediction, cache = numpy(ik.run_with_cache(model, task))
    ours, path = numpy(ik.run_with_cache(in_tiles(model), task))
    assert relative(ours, prediction) < 1e-10
    assert relative(path["alpha"], cache["alpha"]) < 1e-9


def test_long_contexts_are_cut_into_tiles_and_short_ones_are_not():
    assert not _blockwise_softmax.is_blockwise(2048, None)
    assert _blockwise_softmax.is_blockwise(2049, None)
    assert _blockwise_softmax.is_blockwise(2, True)
    assert not _blockwise_softmax.is_blockwise(10**6, False)


def test_memory_is_linear_in_context(compiled_as_users_do):
    """Forward and gradient of 16384 tokens hold less than 2 % of the pattern."""
    big = 16384
    shapes = [jax.ShapeDtypeStruct((big, width), np.float32) for width in (4, 4, 1)]

    def attend(q, k, v):
        return _blockwise_softmax.blockwise_softmax(q, k, v, jnp.ones(big, bool), Order())[0]

    slope = jax.grad(lambda q, k, v: jnp.sum(attend(q, k, v)), argnums=(0, 1, 2))
    for run in (attend, slope):
        program = jax.jit(run).lower(*shapes)
        assert f"{big}x{big}" not in program.as_text()
        assert program.compile().memory_analysis().temp_size_in_bytes < 0.02 * 4 * big**2


@pytest.mark.parametrize("name", ["cg", "decoder"])
def test_the_gradient_of_many_steps_stores_no_pattern_that_is_the_same_in_all(name, tile):
    """The pattern of a construction, or the mask of a decoder: no array has half their entries."""
    config = ik.tasks.LinearRegression(num_features=2, num_supports=400)
    task = jax.eval_shape(lambda: ik.tasks.sample(jax.random.key(0), config))
    if name == "cg":
        kernel, options = ik.Exponential(4.0), {"num_features": 2, "ridge": 0.1, "steps": 3}
        model = ik.constructions.conjugate_gradient(kernel, **options)
    else:
        model = of_random_weights(num_features=2, width=8, depth=3, causal=True)
    loss = jax.grad(lambda model, task: jnp.sum(ik.predict(model, task)))
    program = jax.make_jaxpr(loss)(in_tiles(model), task).jaxpr
    sizes = [var.aval.size for equation in equations(program) for var in equation.outvars]
    assert 400 < max(sizes) < 0.5 * 400**2
