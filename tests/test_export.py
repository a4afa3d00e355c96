"""Models as files: the native format, and a stock T5 that runs a construction."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES, draw, parametrize
from safetensors.numpy import load_file, save_file

import icl_krr as ik
from icl_krr.export import load, save

DECODER = ik.Architecture(
    num_features=4, width=8, depth=2, heads=2, causal=True, tokens="interleaved", max_tokens=32
)


def decoder(dtype):
    model = ik.init(jax.random.key(0), DECODER, dtype)
    moved = [leaf + 0.1 for leaf in jax.tree.leaves(model)]  # biases and positions start as 0
    return jax.tree.unflatten(jax.tree.structure(model), moved)


def assert_same(again, model):
    assert jax.tree.structure(again) == jax.tree.structure(model)
    for leaf, other in zip(jax.tree.leaves(again), jax.tree.leaves(model), strict=True):
        assert leaf.dtype == other.dtype
        np.testing.assert_array_equal(leaf, other)


def assert_round_trip(path, model, task):
    save(path, model)
    again = load(path)
    assert_same(again, model)
    np.testing.assert_array_equal(ik.predict(again, task), ik.predict(model, task))


@parametrize(("cg", "richardson", "newton-schulz-features"))
def test_a_construction_comes_back_to_the_bit(case, tmp_path, x64):
    """Tied leaves, a prologue, steps of many blocks, tables of ReLU units."""
    task = draw(0, r=2)
    options = {"arithmetic": ik.ReLU(8)} if case.name == "richardson" else {}
    model = case.build(task, ridge=0.1, steps=3, **options)
    assert_round_trip(tmp_path / "model.safetensors", model, task)


def test_other_forms_of_a_construction_come_back_to_the_bit(tmp_path):
    model = CASES["cg"].build(draw(0), ridge=0.1, steps=3)
    for form in (ik.untie(model), ik.dense(model), model.replace(steps=5)):
        save(tmp_path / "form.safetensors", form)
        assert_same(load(tmp_path / "form.safetensors"), form)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_trained_decoder_comes_back_to_the_bit(dtype, tmp_path, x64):
    """Positions, LayerNorms, interleaved tokens; an Architecture, which is more than a Spec."""
    task = jax.tree.map(lambda a: a.astype(dtype), draw(1))
    model = decoder(dtype)
    assert_round_trip(tmp_path / "model.safetensors", model, task)
    assert load(tmp_path / "model.safetensors").spec == DECODER


def test_weights_have_names_that_say_what_they_are(tmp_path):
    model = CASES["cg"].build(draw(0), ridge=0.1, steps=3)
    save(tmp_path / "model.safetensors", model)
    tensors = load_file(tmp_path / "model.safetensors")
    assert len(tensors) == len(jax.tree.leaves(model))
    query = model.weights.steps[0].attention[0].query.blocks["x"]
    np.testing.assert_array_equal(tensors["steps.0.attention.0.query.blocks.x"], query)


def test_arrays_that_lie_in_memory_the_other_way_round(tmp_path):
    """safetensors writes memory as it lies: columns first, it would read them as rows."""
    model = ik.dense(CASES["cg"].build(draw(0), ridge=0.1, steps=3))
    model = jax.tree.map(lambda leaf: np.asfortranarray(np.asarray(leaf)), model)
    save(tmp_path / "model.safetensors", model)
    assert_same(load(tmp_path / "model.safetensors"), model)


def test_float64_weights_are_not_cast_silently(tmp_path):
    with jax.enable_x64(True):
        save(tmp_path / "model.safetensors", decoder(jnp.float64))
    with pytest.raises(ValueError, match=r"float64 weights .* need .*jax_enable_x64"):
        load(tmp_path / "model.safetensors")


def test_other_files_are_refused_in_a_sentence(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        load(path)
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
    save(path, decoder(jnp.float32))
    whole = path.read_bytes()
    for other in (b"", b"alpha,r,p\n0.0,1.0,1.0\n", whole[:-4], whole[:100]):
        path.write_bytes(other)
        with pytest.raises(ValueError, match=r"icl_krr\.export\.save wrote, whole"):
            load(path)
    save_file({"alpha": np.ones(3)}, path)
    with pytest.raises(ValueError, match=r"icl_krr\.export\.save wrote, whole"):
        load(path)
    path.write_bytes(whole.replace(rb"{\"format\": 1,", rb"{\"format\": 9,"))
    with pytest.raises(ValueError, match="must have format 1, got 9, written by icl_krr"):
        load(path)


def test_what_is_no_model_is_refused(tmp_path):
    model, path = decoder(jnp.float32), tmp_path / "model.safetensors"
    with pytest.raises(TypeError, match=r"model must be an icl_krr\.Transformer, got Weights"):
        save(path, model.weights)
    with pytest.raises(TypeError, match="must be float32 or float64, got bfloat16"):
        save(path, jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), model))
    with pytest.raises(TypeError, match=r"embedding\.one\.blocks\.one must be an array or one of"):
        save(path, jax.tree.map(lambda leaf: leaf.tolist(), model))
    assert not path.exists()
