"""What every construction must keep: no leaks, no order, no trace of its scratch."""

from functools import cache

import flax.serialization
import jax
import numpy as np
import pytest
from helpers import CASES, dense, draw, numpy, parametrize, relative, stacked
from test_numpy_forward import describe, run

import icl_krr as ik
from icl_krr.constructions._assembly.packing import expressions
from icl_krr.residual import ROLES
from icl_krr.residual._tokens import get_slot, role_slice
from icl_krr.transformer import _run_plan

# the others have the same pieces: their slots are compared with the oracles' all the same
each_kind = parametrize(("cg", "gd-emulated", "ric-gaussian", "ns-features", "nw-gaussian"))


def kept(model, task):
    """The predictions, and all that a run leaves, by the name of the slot or point."""
    prediction, states = numpy(
        ik.run_with_cache(model, task, names=model.layout.names, everything=True)
    )
    with jax.disable_jit():  # steps of arrays in NumPy
        return prediction, dict(states)


@cache
def everything(case):
    """A model of two steps, a task whose third support is padding, and what `kept` has of it."""
    task, mask = draw(3, r=2), np.arange(7) != 2
    x, y = (np.where(mask[:, None], part, 9.0) for part in (task.x, task.y))
    task = task.replace(x=x, y=y, mask=mask)
    model = case.build(without_padding(task), 0.1, 2)
    return model, task, *kept(model, task)


def spoilt(task):
    """Its first query is no number."""
    spoilt = jax.tree.map(np.copy, task)
    spoilt.x_query[0] = np.nan
    return spoilt


def without_padding(task):
    return task.replace(x=task.x[task.mask], y=task.y[task.mask], mask=None)


@each_kind
def test_nothing_depends_on_a_query_but_its_own_prediction(x64, case, monkeypatch):
    """A query that is no number spoils itself alone."""
    model, task, good, expected = everything(case)
    monkeypatch.setattr(_run_plan, "check_compatible", lambda *given: None)
    bad, states = kept(model, spoilt(task))
    short = without_padding(task)  # whose run forms no pattern of linear attention
    answers = good, bad, *numpy((ik.predict(model, short), ik.predict(model, spoilt(short))))
    for right, wrong in (answers[:2], answers[2:]):
        assert np.all(np.isnan(wrong[0]))
        assert relative(wrong[1:], right[1:]) < 1e-12 * case.rounding
    for block in range(model.depth):
        point = f"blocks.{block}.resid_post"
        for slot, values in states[point].items():
            ours, theirs = (np.delete(part, 8, axis=0) for part in (values, expected[point][slot]))
            assert relative(ours, theirs) < 1e-12 * case.rounding, (block, slot)


@each_kind
def test_neither_an_order_of_supports_nor_padding_counts(x64, case):
    model, task, prediction, _ = everything(case)
    order = np.random.default_rng(0).permutation(7)
    x, y, mask = task.x[order], task.y[order], task.mask[order]
    permuted, _ = kept(model, task.replace(x=x, y=y, mask=mask))
    assert relative(permuted, prediction) < 1e-12 * case.rounding
    short = ik.predict(model, without_padding(task))
    assert relative(short, prediction) < 1e-12 * case.rounding


@each_kind
def test_numpy_runs_the_exported_weights_to_the_same_stream(x64, case):
    """Linear attention also as pairs of heads of ReLU attention (Bai et al., 2023)."""
    model, task, _, states = everything(case)
    exported = numpy(flax.serialization.to_state_dict(model.weights))
    prologue, start = len(model.weights.prologue), states["blocks.0.resid_pre"]
    mask = np.concatenate([[True], task.mask, np.zeros(task.num_queries, bool)])
    for kind in {"linear": ("linear", "relu"), "softmax": ("softmax",)}[model.spec.attention]:
        path = run(exported, describe(model), start, mask, kind, prologue, model.steps)
        assert len(path) == model.depth
        for i, stream in enumerate(path):
            for slot, value in stream.items():
                gap = np.max(np.abs(states[f"blocks.{i}.resid_post"][slot] - value))
                assert gap < 1e-9 * max(1, np.max(np.abs(value))), (kind, i, slot)


@each_kind
def test_every_slot_is_zero_where_it_does_not_live(x64, case):
    """No write reaches a token or slot it should not: exact zeros after every single block."""
    model, task, _, cache = everything(case)
    roles = {role: role_slice((role,), task) for role in ROLES}
    for block in range(model.depth):
        stream = cache[f"blocks.{block}.resid_post"]
        for slot in model.layout.slots:
            for role in set(ROLES) - set(slot.at):
                assert not np.any(stream[slot.name][roles[role]]), (block, slot.name, role)
            assert (
                slot.kind == "data"
                or slot.name == "prediction"
                or not np.any(stream[slot.name][3] if slot.at == ("support",) else 0)
            ), "a masked support must stay zero"


@each_kind
def test_scratch_is_zero_and_data_untouched_after_every_step(x64, case):
    model, _, _, cache = everything(case)
    for slot in model.layout.slots:
        if slot.kind == "scratch":
            assert not np.any(cache[slot.name])
        if slot.kind == "data":
            assert np.all(cache[slot.name] == cache[slot.name][:1])


@each_kind
def test_every_declared_slot_is_used(x64, case):
    model, _, _, cache = everything(case)
    blocks = model.blocks
    slots = [
        slot
        for block in blocks
        for layer in (*block.attention, *block.mlp)
        for read in expressions(layer)
        for slot in read.slots
    ]
    for slot in model.layout.slots:
        assert slot.name in slots or slot.name in ("x", "y", "alpha", "prediction"), slot.name
        values = [cache[f"blocks.{b}.resid_pre"][slot.name] for b in range(model.depth)]
        points = [cache[f"blocks.{b}.attn"] for b in range(model.depth)]
        values += [point[slot.name] for point in points if slot.name in point]
        assert any(map(np.any, values)), slot.name


@parametrize(("cg", "ns-features", "nw-gaussian"))
def test_dense_matrices_give_the_same_stream(x64, case):
    """Of sums and linear attention; of features; of softmax attention and a prologue."""
    model, task, theirs, expected = everything(case)
    merged = dense(model)
    d_model, last = model.layout.width, f"blocks.{model.depth - 1}.resid_post"
    ours, cache = numpy(ik.run_with_cache(merged, task, points=("resid_post",)))
    assert set(cache[last]) == {"stream"}
    assert cache[last]["stream"].shape[1] == d_model
    for slot in model.layout.names:
        assert np.allclose(
            get_slot(cache[last], model.layout, slot),
            get_slot(expected[last], model.layout, slot),
            atol=1e-11 * case.rounding,
        )
    assert relative(ours, theirs) < 1e-11 * case.rounding
    for name in case.states:
        assert relative(cache[name], expected[name]) < 1e-11 * case.rounding
    for block in (*merged.weights.prologue, *merged.weights.steps):
        for heads in block.attention:
            assert heads.query.blocks["stream"].shape[-2] == d_model
            assert heads.writes[0].out.shape[-1] == d_model
        for unit in block.mlp:
            assert unit.out.shape[-1] == d_model
    assert ik.dense(merged) is merged


few = parametrize(("cg", "nw-gaussian"))
"""With steps and without."""


@few
def test_a_model_of_one_output_takes_each_output_on_its_own(x64, case):
    task = draw(11, r=3)
    single = case.build(task.replace(y=task.y[:, 0], y_query=None), 0.1, 4)
    wide = case.build(task, 0.1, 4)
    assert (single.spec.num_outputs, wide.spec.num_outputs) == (1, 3)
    (ours, cache), (theirs, expected) = (ik.run_with_cache(m, task) for m in (single, wide))
    tolerance = 1e-11 * case.rounding
    assert relative(ours, theirs) < tolerance
    for state in case.states:
        assert relative(cache[state], expected[state]) < tolerance
    assert relative(ik.predict_batch(single, stacked(task, task))[1], theirs) < tolerance


@few
@pytest.mark.parametrize("r", [None, 1, 3])
def test_predictions_are_shaped_as_y(x64, case, r):
    task = draw(8, r=r)
    model = case.build(task, 0.1, 4)
    prediction, cache = ik.run_with_cache(model, task)
    outputs = () if r is None else (r,)
    assert prediction.shape == (3, *outputs)
    assert cache["prediction"].shape == (model.steps + 1, 3, *outputs)
    assert np.array_equal(cache["prediction"][-1], prediction)
    for state in set(case.states) - {"prediction"}:
        assert cache[state].shape == (model.steps + 1, 7, *outputs)


@few
def test_dtype_of_the_task_comes_back(x64, case, programs):
    """And what is built again needs no new program."""
    task = draw(10)
    single = jax.tree.map(lambda a: a.astype(np.float32), task)
    model = case.build(task, 0.1, 4)
    assert ik.predict(model, task).dtype == np.float64
    programs.clear()
    ik.predict(case.build(task, 0.2, 4), task)
    assert programs == []
    assert ik.predict(model, single).dtype == np.float32
    narrow = case.build(task, 0.1, 4, dtype=np.float32)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(narrow))
    with pytest.raises(TypeError, match="must not be wider than the model's float32 weights"):
        ik.predict(narrow, task)


LAST_OF = {case.solver: name for name, case in CASES.items() if not case.tables}


@parametrize(LAST_OF.values())
def test_what_is_built_again_is_the_same_to_a_compiler(case):
    """Programs stay in memory: a loop whose every turn compiles ends without memory."""
    one, other = (case.build(draw(0), 0.1, 4) for _ in range(2))
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert hash(jax.tree.structure(one)) == hash(jax.tree.structure(other))
    assert [*map(jax.typeof, jax.tree.leaves(one))] == [*map(jax.typeof, jax.tree.leaves(other))]


@parametrize(CASES)
def test_known_numbers_become_weights_without_compiling(case, programs):
    """Also arrays of JAX; nothing before has compiled operations on float16."""
    task, ridge = draw(0), jax.device_put(np.float32(0.1))
    kernel = jax.tree.map(jax.numpy.asarray, case.kernel(task))
    options = case.options(task, ridge, 8)
    programs.clear()
    model = ik.constructions.lookup(case.row)(kernel, **options, dtype="float16")
    assert programs == []
    assert {type(leaf) for leaf in jax.tree.leaves(model)} == {type(ridge)}
