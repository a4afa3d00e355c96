"""Softmax attention in tiles: the same numbers in memory linear in context."""

from dataclasses import replace
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES, draw, numpy, often, relative

import icl_krr as ik
from icl_krr.transformer import attention, tiled_attention
from icl_krr.transformer.visible import Order


@partial(jax.jit, static_argnums=4)
def whole(q, k, v, visible, order):
    """The reference: softmax over the whole pattern, and the logarithm of its denominators."""
    earlier = jnp.tri(len(q), k=0 if order == "inclusive" else -1, dtype=bool).at[0, 0].set(True)
    seen = visible[None, :] & (earlier if order else True)
    logits = jnp.where(seen, q @ k.T, -jnp.inf)
    return jax.nn.softmax(logits, axis=-1) @ v, jax.nn.logsumexp(logits, axis=-1)


def heads(tokens, size=5.0, values=2):
    random, dtype = np.random.default_rng(tokens), jnp.result_type(float)
    visible = (random.random(tokens) < 0.7) | (np.arange(tokens) == 0)
    q, k, v = (random.normal(size=(tokens, width)).astype(dtype) for width in (3, 3, values))
    return size * q, np.where(visible[:, None], k, 0), np.where(visible[:, None], v, 0), visible


def as_tiles(q, k, v, visible, order):
    return tiled_attention.tiled_softmax(q, k, v, visible, Order(order))


def tiled(q, k, v, visible, order=""):
    """As one program, made anew: the side of a tile may be another than before."""
    return jax.jit(lambda *at: as_tiles(*at, order))(q, k, v, visible)


@pytest.fixture
def tile(monkeypatch):
    monkeypatch.setitem(tiled_attention.TILE_SIDES, "cpu", 16)


@often(
    ("tokens", "order"),
    ((1, "exclusive"), (37, ""), (37, "inclusive")),
    [*product((1, 37), ("", "exclusive", "inclusive"))],
)
def test_tiles_equal_the_whole_pattern_with_their_gradients(x64, tile, tokens, order):
    q, k, v, visible = heads(tokens)

    def loss(attend):
        def of(q, k, v):
            out, log_total = attend(q, k, v, visible, order)
            return jnp.sum(jnp.sin(out)) + jnp.sum(jnp.cos(log_total))

        return numpy(jax.jit(jax.value_and_grad(of, argnums=(0, 1, 2)))(q, k, v))

    ours, theirs = (numpy(attend(q, k, v, visible, order)) for attend in (tiled, whole))
    assert relative(ours[0], theirs[0]) < 1e-13
    assert relative(ours[1], theirs[1]) < 1e-13
    (a, slopes), (b, expected) = loss(as_tiles), loss(whole)
    assert abs(a - b) < 1e-12
    hidden = ~visible
    for ours, theirs in zip(slopes[1:], expected[1:], strict=True):
        # keys and values that nobody sees have no gradient but their own, which `hide` drops
        assert relative(ours[visible], theirs[visible]) < 1e-11
        assert not np.any(np.isnan(ours[hidden]))
    assert relative(slopes[0], expected[0]) < 1e-11


@pytest.mark.parametrize("size", [1e-3, 1e3])
def test_no_logit_overflows_and_no_tile_matters(size, monkeypatch):
    """Logits beyond the range of exp are shifted by the largest of each query."""
    q, k, v, visible = heads(50, size)
    results = []
    for side in (8, 16, 64):
        monkeypatch.setitem(tiled_attention.TILE_SIDES, "cpu", side)
        results.append(tiled(q, k, v, visible)[0])
    expected = whole(q, k, v, visible, "")[0]
    parts = map(jnp.asarray, (q, k, v, visible))
    results.append(attention.attend(*parts, ik.Spec(1, streaming=False)))
    for result in results:
        assert relative(result, results[0]) < 1e-6 * max(1, size)
        assert relative(result, expected) < 1e-6 * max(1, size)


@jax.jit
def slopes_of_tiles(q, k, v, visible, value):
    def loss(q, k, v):
        found = tiled_attention.tiled_softmax(q, k, v, visible, Order())
        return jnp.sum(found[0]) / value, found

    return jax.grad(loss, argnums=(0, 1, 2), has_aux=True)(q, k, v)


@pytest.mark.parametrize("bound", [1.0, 60.0, 80.0, 1e3])
@pytest.mark.parametrize("value", [1e-30, 1.0, 1e30])
def test_logits_that_are_not_shifted_lose_nothing(tile, bound, value):
    """Even if all logits are as far below zero as the bound, and hidden tokens have logits of 0."""
    k = (np.arange(40.0)[:, None] < 20).astype(float)
    q = np.linspace(-bound, bound, 40)[:, None]
    v = np.where(k > 0, value * np.arange(40.0)[:, None], 0)
    visible = k[:, 0] > 0

    slopes, (out, log_total) = slopes_of_tiles(q, k, v, visible, value)
    assert relative(out, np.full((40, 1), 9.5 * value)) < 1e-6
    assert relative(log_total, q[:, 0] + np.log(20.0)) < 1e-6
    assert relative(slopes[2] * value, np.where(k > 0, 2.0, 0)) < 1e-5
    assert np.max(np.abs(slopes[0])) < 1e-4


def test_a_batch_in_which_some_logits_need_a_shift_equals_its_heads_alone(x64, tile):
    q, k, v, visible = heads(37)
    sizes = np.array([[1e-2], [1.0], [1e3]])

    def of(size):
        return tiled_attention.tiled_softmax(size * q, k, v, visible, Order())[0]

    def slopes(size):
        return jax.grad(lambda size: jnp.sum(of(size) ** 2))(size)

    for run in map(jax.jit, (of, slopes)):
        alone = np.stack([run(size[0])[None] for size in sizes])
        assert relative(jax.vmap(jax.vmap(run))(sizes), alone) < 1e-13


def test_curvature_in_tiles_is_that_of_the_whole_pattern(x64, tile):
    q, k, v, visible = heads(18, size=1.0)

    def loss(q, attend):
        out, log_total = attend(q, k, v, visible, "")
        return jnp.sum(out**2) + jnp.sum(log_total)

    ours, theirs = (
        jax.jit(jax.jacrev(jax.grad(lambda q, attend=attend: loss(q, attend))))(q)
        for attend in (as_tiles, whole)
    )
    assert relative(ours, theirs) < 1e-11


@often(
    ("dtype", "error", "streaming"),
    ((jnp.bfloat16, 2**-7, True), (np.float32, 1e-6, False)),
    [
        (*each, streaming)
        for each in ((jnp.bfloat16, 2**-7), (np.float32, 1e-6))
        for streaming in (False, True)
    ],
)
def test_weights_of_the_values_sum_to_one_in_the_gradient_too(tile, dtype, error, streaming):
    """The backward pass computes the patterns again, and must round them as the forward did."""
    q, k, v, visible = heads(60)
    spec, largest = ik.Spec(1, streaming=streaming), np.max(q @ k.T)

    def row_sums(size):
        at = [jnp.asarray(part).astype(dtype) for part in (q * size / largest, k, v)]
        row = lambda i, v: attention.attend(*at[:2], v, jnp.asarray(visible), spec)[i, 0]  # noqa: E731
        slopes = jax.vmap(jax.grad(row, argnums=1), in_axes=(0, None))(jnp.arange(20), at[2])
        return jnp.sum(slopes.astype(jnp.float32), axis=(1, 2))

    sums = jax.jit(jax.vmap(row_sums))(np.array([10.0, 40.0, 80.0, 300.0, 1e4]))
    assert np.max(np.abs(sums - 1)) < error


def test_causal_sums_of_bfloat16_are_accumulated_in_float32():
    ones = np.ones((8192, 1), jnp.bfloat16)
    v = np.random.default_rng(0).random((8192, 1)).astype(jnp.bfloat16)
    spec = ik.Spec(1, attention="linear", causal=True)
    attend = jax.jit(partial(attention.attend, spec=spec))
    found = attend(ones, ones, v, np.ones(8192, bool))[1:]
    assert np.allclose(found, np.cumsum(v[:-1], axis=0, dtype=float), rtol=2**-8)


@pytest.mark.parametrize("widths", [(1, 1), (1, 3), (3, 1)])
def test_linear_attention_of_every_width_is_blind_to_hidden_tokens(x64, widths):
    """Neither the values nor the gradients are touched by NaN at a token that nobody reads."""
    random = np.random.default_rng(1)
    q, k, v = (random.normal(size=(9, width)) for width in (widths[0], *widths))
    visible, spec = np.arange(9) < 6, ik.Spec(1, attention="linear")
    k, v = (np.where(visible[:, None], part, np.nan) for part in (k, v))
    attend = jax.jit(lambda *parts: attention.attend(*parts, visible, spec))
    assert relative(attend(q, k, v), q @ (k[:6].T @ v[:6])) < 1e-13
    slopes = jax.jit(jax.grad(lambda *at: jnp.sum(attend(*at)), argnums=(0, 1, 2)))(q, k, v)
    assert not any(np.any(np.isnan(slope)) for slope in slopes)
    assert relative(slopes[1][:6], v[:6] @ np.sum(q, 0)[:, None].repeat(v.shape[1], 1).T) < 1e-13


def in_tiles(model, wanted=True):
    return model.replace(spec=replace(model.spec, streaming=wanted))


@often("name", ("cg-exponential",), ["cg-exponential", "ric-gaussian"])
def test_a_construction_in_tiles_is_the_same_model(x64, tile, name):
    task = draw(0, n=30)
    model = CASES[name].build(task, 0.5, 4)
    prediction, cache = numpy(ik.run_with_cache(model, task))
    ours, path = numpy(ik.run_with_cache(in_tiles(model), task))
    assert relative(ours, prediction) < 1e-10
    assert relative(path["alpha"], cache["alpha"]) < 1e-9


@pytest.mark.slow
def test_a_model_in_tiles_has_the_same_gradient(x64, tile):
    task = draw(0, n=30)
    spec = ik.Architecture(num_features=4, width=8, depth=2, heads=2, causal=True, max_tokens=64)
    model = ik.init(jax.random.key(0), spec)
    loss = lambda model: jnp.sum(ik.predict(model, task) ** 2)  # noqa: E731
    plain, tiled = jax.grad(loss)(model), jax.grad(loss)(in_tiles(model))
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(tiled), strict=True):
        assert np.allclose(a, b, rtol=1e-9, atol=1e-12)


def test_long_contexts_are_cut_into_tiles_and_short_ones_are_not():
    assert not tiled_attention.uses_tiles(2048, None)
    assert tiled_attention.uses_tiles(2049, None)
    assert tiled_attention.uses_tiles(2, True)
    assert not tiled_attention.uses_tiles(10**6, False)


def test_memory_is_linear_in_context(compiled_as_users_do):
    """Forward and gradient of 16384 tokens hold less than 2 % of the pattern."""
    big = 16384
    shapes = [jax.ShapeDtypeStruct((big, width), np.float32) for width in (4, 4, 1)]
    attend = lambda q, k, v: tiled_attention.tiled_softmax(q, k, v, jnp.ones(big, bool), Order())[0]  # noqa: E731
    slope = jax.grad(lambda q, k, v: jnp.sum(attend(q, k, v)), argnums=(0, 1, 2))
    for run in (attend, slope):
        program = jax.jit(run).lower(*shapes)
        assert f"{big}x{big}" not in program.as_text()
        assert program.compile().memory_analysis().temp_size_in_bytes < 0.02 * 4 * big**2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cg", "decoder"])
def test_the_gradient_of_many_steps_stores_no_pattern_that_is_the_same_in_all(name, tile):
    """The pattern of a construction, or the mask of a decoder: each has 16e6 entries here."""
    config = ik.tasks.LinearRegression(num_features=2, num_supports=4000)
    task = jax.eval_shape(lambda: ik.tasks.sample(jax.random.key(0), config))
    model = (
        ik.constructions.conjugate_gradient(ik.Exponential(4.0), num_features=2, ridge=0.1, steps=3)
        if name == "cg"
        else ik.init(
            jax.random.key(0), ik.Architecture(num_features=2, width=8, depth=3, causal=True)
        )
    )
    assert ik.memory(in_tiles(model), task, gradient=True).scratch < 0.5 * 4000**2


@pytest.mark.slow
def test_a_long_task_through_a_construction(compiled_as_users_do):
    """3000 supports of Route A: the pattern is never formed, and the answer is exact KRR's."""
    task = numpy(
        ik.tasks.sample(
            jax.random.key(0), ik.tasks.LinearRegression(num_features=2, num_supports=3000)
        )
    )
    kernel = ik.Exponential(4.0)
    model = ik.constructions.conjugate_gradient(
        kernel,
        num_features=2,
        ridge=300.0,
        steps=8,
        attention=ik.Softmax(log_sink=ik.theory.log_sink(kernel, task)),
    )
    exact = numpy(ik.solvers.conjugate_gradient(kernel, task, ridge=300.0, steps=8).prediction)[-1]
    assert relative(ik.predict(model, task), exact) < 1e-3
    assert ik.memory(model, task).scratch < 0.6 * 4 * 3002**2
