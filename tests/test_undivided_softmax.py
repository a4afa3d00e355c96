"""Softmax over whole patterns: shifted or not, the same numbers and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import draw, equations, numpy, relative

import icl_krr as ik
from icl_krr.transformer.undivided_softmax import in_range, undivided_softmax
from icl_krr.transformer.visible import Order

SIZES = (1e-3, 1.0, 1e3)
"""Of logits: those of the last need a shift in float32 and in float64."""


def parts(channels, size, tokens=23):
    random = np.random.default_rng(channels)
    q, k, v = (random.normal(size=(tokens, width)) for width in (channels, channels, 2))
    visible = (random.random(tokens) < 0.7) | (np.arange(tokens) == 0)
    return size * q, k, v, visible


def reference(q, k, v, visible, order):
    """In NumPy, with a shift; with the order "own", hidden tokens read themselves too."""
    earlier = np.tri(len(q), k=-1 if order == "exclusive" else 0, dtype=bool)
    earlier[0, 0] = True
    seen = visible[None] & (earlier if order else True)
    logits = np.where(seen | (np.eye(len(q)) > 0) & (order == "own"), q @ k.T, -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights @ v / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("order", ["", "own", "inclusive", "exclusive"])
@pytest.mark.parametrize("channels", [3, 9])
def test_few_and_many_channels_equal_numpy(x64, size, order, channels):
    q, k, v, visible = parts(channels, size)
    run = jax.jit(lambda q, k, v, seen: undivided_softmax(q, k, seen, Order(order))(v, seen))
    assert relative(numpy(run(q, k, v, visible)), reference(q, k, v, visible, order)) < 1e-11


@pytest.mark.parametrize("size", SIZES)
def test_derivatives_are_those_of_the_plain_formula(x64, size):
    """Forwards, backwards, and of derivatives."""
    q, k, v, _ = parts(3, size)
    visible = np.ones(len(q), bool)

    def ours(q, k):
        return jnp.sum(jnp.sin(undivided_softmax(q, k, visible, Order())(v, visible)))

    def plain(q, k):
        return jnp.sum(jnp.sin(jax.nn.softmax(q @ k.T, axis=-1) @ v))

    def derivatives(of):
        slopes = jax.grad(of, argnums=(0, 1))
        along = (q / size, k)
        return jax.jvp(of, (q, k), along)[1], slopes(q, k), jax.jvp(slopes, (q, k), along)[1]

    found, expected = (jax.jit(lambda of=of: derivatives(of))() for of in (ours, plain))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10 + 1e-14 * size**2)


@pytest.mark.parametrize("own", [None, 30.0])
@pytest.mark.parametrize(("logit", "small"), [(1.0, True), (21.0, True), (23.0, False)])
def test_without_a_shift_large_values_have_finite_sums(own, logit, small):
    """Also for a hidden token, whose own logit no key bounds."""
    q, k = np.full((40, 1), logit, np.float32), np.ones((40, 1), np.float32)
    own = None if own is None else np.full((40, 1), own, np.float32)
    assert bool(in_range(q, k, own)) == (small and own is None)
    v = np.full((40, 1), 1e25, np.float32)
    seen = np.ones(40, bool)
    mean = undivided_softmax(jnp.asarray(q), jnp.asarray(k), seen, Order())(v, seen)
    np.testing.assert_allclose(mean, v, rtol=1e-5)


def test_tasks_that_need_a_shift_do_not_change_others(x64):
    """One branch is run for a whole batch."""
    q, k, v, visible = parts(3, 1.0)
    run = lambda size: undivided_softmax(size * q, k, visible, Order())(v, visible)  # noqa: E731
    alone = np.stack([jax.jit(run)(size) for size in SIZES])
    assert relative(np.asarray(jax.jit(jax.vmap(run))(np.array(SIZES))), alone) < 1e-13


def test_a_kernel_in_range_is_not_shifted():
    """The maximum is computed in one branch only: no program for a CPU must need it."""
    model = ik.constructions.chebyshev(
        ik.Gaussian(0.7), num_features=3, ridge=0.1, steps=4, spectrum=(0.1, 9.0)
    )
    program = jax.make_jaxpr(lambda task: ik.predict(model, task))(draw(0, p=3)).jaxpr
    branches = [[b.jaxpr for b in one.params["branches"]] for one in equations(program, "cond")]
    count = lambda branch, name: len(list(equations(branch, name)))  # noqa: E731
    (counts,) = (
        [count(branch, "reduce_max") for branch in own]
        for own in branches
        if [count(branch, "exp") for branch in own] == [1, 1]
    )
    assert sorted(counts) == [0, 1]
