"""What the scan over the steps carries: slots that last, and no slot that is known to be zero."""

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import cg, dense, draw, numpy, relative

import icl_krr as ik
from icl_krr.residual import Fixed, Read
from icl_krr.transformer import Block, Norm, Unit
from icl_krr.transformer._evaluate import embed_task
from icl_krr.transformer._tying import erases, live_slots, loop_carried_slots

STATES = {"alpha", "r", "p", "prediction", "rr"}


def with_weights(model, size=-1.0):
    """The same model, whose erasures have weights instead of fixed coefficients."""

    def weight(unit):
        if not erases(unit):
            return unit
        return unit.replace(up=Read({unit.to: jnp.full((1,), size, model.dtype)}, unit.up.width))

    steps = [block.replace(mlp=tuple(map(weight, block.mlp))) for block in model.weights.steps]
    return model.replace(weights=model.weights.replace(steps=tuple(steps)))


def test_only_states_are_carried():
    task = draw(0)
    model = cg(task, 0.1, 4)
    steps = model.weights.steps
    scratch = {slot.name for slot in model.layout.slots if slot.kind == "scratch"}
    assert set(loop_carried_slots(steps, embed_task(model, task))) == STATES == live_slots(steps)
    unknown = jax.tree.map(jnp.asarray, embed_task(model, task))
    assert set(loop_carried_slots(steps, unknown)) == STATES | scratch
    assert live_slots(with_weights(model).weights.steps) == STATES | scratch


def test_an_erasure_before_or_beside_a_write_is_no_erasure():
    erase = Unit(Read({"a": Fixed(-1)}, 1), to="a")
    write = Unit(Read({"b": np.ones(())}, 1), to="a")
    assert live_slots([Block(mlp=(erase,)), Block(mlp=(write,))]) == {"a"}
    assert live_slots([Block(mlp=(write, erase))]) == {"a"}
    assert live_slots([Block(mlp=(write,)), Block(mlp=(erase,))]) == set()
    norm = {"a": Norm(np.ones(1), np.zeros(1))}  # -h of the normalised slot is not -h
    assert live_slots([Block(mlp=(erase,), mlp_norm=norm)]) == {"a"}


def test_weights_that_erase_are_weights(x64):
    """The same prediction and gradients; and a changed weight leaves something in the slot."""
    task = draw(0)
    fixed = cg(task, 0.5, 3)
    literal = with_weights(fixed)
    loss = lambda model: jnp.sum(ik.predict(model, task) ** 2)  # noqa: E731
    ours, theirs = jax.jit(jax.grad(loss))(fixed), jax.jit(jax.grad(loss))(literal)
    assert relative(ik.predict(fixed, task), ik.predict(literal, task)) < 1e-12
    same = jax.tree.leaves(with_weights(ours))
    for slot_free, whole in zip(same, jax.tree.leaves(theirs), strict=True):
        if not np.all(slot_free == -1):
            np.testing.assert_allclose(slot_free, whole, rtol=1e-8, atol=1e-10)
    slopes = [unit.up for block in theirs.weights.steps for unit in block.mlp if unit.gate is None]
    assert max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(slopes)) > 0.1
    left = numpy(ik.predict(with_weights(fixed, -0.9), task))
    assert relative(left, ik.predict(literal, task)) > 1e-3


@pytest.mark.parametrize(("slot", "step"), [("K_p", 0), ("K_p", 1), ("x", 1)])
def test_a_slot_that_does_not_hold_what_the_steps_left_counts(x64, slot, step):
    """Scratch that is not 0, and a slot that no step writes: all that is given is carried."""
    task = draw(0)
    model = cg(task, 0.5, 3)
    block = len(model.weights.prologue) + step * model.blocks_per_step
    _, cache = numpy(ik.run_with_cache(model, task, points=("resid_pre",)))
    start = cache[f"blocks.{block}.resid_pre"]
    clean = numpy(ik.resume(model, task, start, block))
    changed = numpy(ik.resume(model, task, {**start, slot: start[slot] + 1}, block))
    assert relative(clean, ik.predict(model, task)) < 1e-12
    assert relative(changed, clean) > 1e-3
    for point in (f"blocks.{block - 1}.resid_post", f"blocks.{block}.resid_pre"):
        hooks = {f"{point}.{slot}": lambda value, where: value + 1}
        assert relative(changed, ik.run_with_hooks(model, task, hooks)) < 1e-12


def test_a_fixed_coefficient_is_structure():
    """It is no leaf, so nothing trains it; state dicts and merged matrices have it."""
    task = draw(0)
    model = cg(task, 0.5, 2)
    erased = [unit for block in model.weights.steps for unit in block.mlp if erases(unit)]
    assert erased
    assert not jax.tree.leaves(erased)
    state = flax.serialization.to_state_dict(model.weights)
    restored = flax.serialization.from_state_dict(model.weights, state)
    assert jax.tree.structure(restored) == jax.tree.structure(model.weights)
    assert ik.predict(dense(model), task).dtype == ik.predict(model, task).dtype
    assert repr(erased[0].up) == f"Read(blocks={{'{erased[0].to}': -1.0}}, width=1)"
    assert (2 * Read({"p": Fixed(-1)}, 1)).blocks["p"] == -2
