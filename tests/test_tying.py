"""Weights that steps share, and what is computed once because of it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES, cg, dense, draw, equations, numpy, of_random_weights, relative

import icl_krr as ik
from icl_krr.residual import Read, key_mask
from icl_krr.transformer import Block, Unit
from icl_krr.transformer._evaluate import evaluate_task
from icl_krr.transformer._hook_points import Request
from icl_krr.transformer._tying import token_invariant_slots


def test_steps_share_what_is_the_same_and_keep_what_is_their_own():
    task = draw(0)
    shared = cg(task, 0.1, 5)
    assert {leaf.shape[0] for leaf in jax.tree.leaves(shared.weights.steps)} == {1}
    mixed = CASES["che"].build(task, 0.1, 5)
    assert {leaf.shape[0] for leaf in jax.tree.leaves(mixed.weights.steps)} == {1, 5}
    every = ik.untie(mixed)
    assert {leaf.shape[0] for leaf in jax.tree.leaves(every.weights.steps)} == {5}
    assert relative(ik.predict(every, task), ik.predict(mixed, task)) < 1e-6


@pytest.mark.parametrize("name", ["cg-exponential", "che"])
def test_the_gradient_of_a_shared_weight_is_the_sum_over_its_uses(x64, name):
    """Over the steps; of a pattern, over the heads of the prologue and of the steps that use it."""
    task = draw(0)
    model = CASES[name].build(task, 0.5, 4)
    loss = lambda model: jnp.sum(ik.predict(model, task))  # noqa: E731
    runs = (loss, lambda model: loss(ik.untie(model)))
    together, sums = (jax.tree.leaves(jax.jit(jax.grad(run))(model)) for run in runs)
    for total, whole in zip(together, sums, strict=True):
        assert np.allclose(total, whole, rtol=1e-7, atol=1e-9)
    assert bool(model.weights.patterns) == (name == "cg-exponential")


def test_shared_steps_can_be_repeated_as_often_as_wanted(x64):
    task = draw(0)
    deeper = cg(task, 0.1, 2).replace(steps=6)
    assert deeper.depth == cg(task, 0.1, 6).depth
    assert relative(ik.predict(deeper, task), ik.predict(cg(task, 0.1, 6), task)) < 1e-12
    model = CASES["che"].build(task, 0.1, 5).replace(steps=6)
    with pytest.raises(ValueError, match="must be 5, the number of steps in the weights, got 6"):
        ik.predict(model, task)


scans = partial(equations, name="scan")


def exponentials_in_a_step(model, task):
    """Exponentials within the scan over steps."""
    (steps,) = scans(jax.make_jaxpr(lambda model: ik.predict(model, task))(model).jaxpr)
    return len(list(equations(steps.params["jaxpr"].jaxpr, "exp")))


def test_before_the_first_step_a_shared_pattern_is_made_once():
    """The head that asks for the weight of the sink has the queries and keys of the steps."""
    task, steps = draw(0), CASES["cg-exponential"].build(draw(0), 0.5, 4)
    separate = jax.make_jaxpr(lambda model: ik.predict(model, task))
    programs = [separate(model).jaxpr for model in (steps, ik.untie(steps))]
    counts = [len(list(equations(program, "exp"))) for program in programs]
    assert counts == [1, 2]


@pytest.mark.parametrize("name", ["cg-exponential", "che-exponential", "ric-gaussian"])
def test_patterns_that_no_step_changes_are_made_once(name):
    task = draw(0)
    model = CASES[name].build(task, 0.5, 4)
    assert exponentials_in_a_step(model, task) == 0
    assert exponentials_in_a_step(ik.untie(model), task) > 0


def test_heads_of_one_pattern_are_one_head():
    """Pipelined: K p, K s and K r are values of one head, the four sums of one mean head."""
    task = draw(0)
    model = CASES["cg-exponential"].build(task, 0.5, 4, form="pipelined")
    groups = [heads for block in model.weights.steps for heads in block.attention]
    assert sorted(len(heads.writes) for heads in groups) == [3, 4]


def test_a_gradient_keeps_one_stream_a_step():
    """What happens inside of a step is made again, not kept: that is 40 times as much."""
    task, model = draw(0, n=64), of_random_weights(num_features=4, width=16, depth=6, heads=2)
    loss = jax.grad(lambda model: jnp.sum(ik.predict(model, task) ** 2))
    program = jax.make_jaxpr(loss)(model)
    forward = next(loop for loop in scans(program.jaxpr) if loop.params["length"] == 6)
    stream = (1 + 64 + 3) * 16
    assert sum(var.aval.size for var in forward.outvars) / 6 < 3 * stream


def batch_of(task, size):
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape), leaf.dtype), task)


def test_a_gradient_computes_chunks_again_only_of_a_large_batch():
    """The loop over chunks that goes backwards then holds two loops over the steps, else one."""
    task = draw(0, n=64)
    model = of_random_weights(num_features=4, width=8, depth=3, heads=2)
    loss = jax.grad(lambda model, tasks: jnp.sum(ik.predict_batch(model, tasks) ** 2))

    def inner_loops(size):
        program = jax.make_jaxpr(loss)(model, batch_of(task, size))
        *_, backwards = (loop for loop in scans(program.jaxpr) if loop.params["length"] > 3)
        return len(list(scans(backwards.params["jaxpr"].jaxpr)))

    assert (inner_loops(256), inner_loops(3200)) == (1, 2)


def test_a_slot_that_is_the_same_at_all_tokens_is_read_as_one_row(x64):
    """Points that are kept show the whole slot, so a run that keeps some is the reference."""
    task = draw(0)
    model = of_random_weights(num_features=4, width=8, depth=2, heads=2)
    assert token_invariant_slots(model) == {"one"}
    loss = lambda model, keep: jnp.sum(evaluate_task(model, task, Request(keep=keep))[0] ** 2)  # noqa: E731
    slopes = jax.jit(jax.grad(loss), static_argnums=1)
    rows, whole = (slopes(model, keep) for keep in ((), ("resid_pre",)))
    bias = lambda model: model.weights.steps[0].mlp[0].gate.blocks["one"]  # noqa: E731
    assert np.any(bias(rows) != 0)
    for ours, theirs in zip(jax.tree.leaves(rows), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    for read, same in (("one", True), ("stream", False)):
        unit = Unit(Read({read: np.ones((model.layout[read].width, 1))}, 1), to="one")
        written = model.weights.replace(prologue=(Block(mlp=(unit,)),))
        assert ("one" in token_invariant_slots(model.replace(weights=written))) == same
    assert "one" not in token_invariant_slots(dense(cg(task, 0.1, 2)))
    _, cache = numpy(ik.run_with_cache(model, task, names=("one",)))
    assert cache["one"].shape[:2] == (3, len(key_mask(task)))
    solver = CASES["cg-exponential"].build(task, 0.5, 4)
    assert token_invariant_slots(solver) == {"one", "rr", "pAp", "gamma", "rr_next", "beta"}
    _, cache = numpy(ik.run_with_cache(solver, task, names=("rr",)))
    _, kept = numpy(ik.run_with_cache(solver, task, everything=True))
    assert relative(cache["rr"], kept["rr"]) < 1e-12
