"""Models as files: the native format, and a stock T5 that runs a construction."""

import inspect
import json
import re
import runpy
import sys
import textwrap
from functools import cache
from typing import NamedTuple

import chex
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import draw, numpy, of_random_weights, one, operand_bounds, parametrize, relative
from safetensors.numpy import load_file, save_file

import icl_krr as ik
from icl_krr._core.files import NO_CHECKSUM
from icl_krr.export import T5, load, open_t5, save, to_t5
from icl_krr.export._native import read, write

DECODER = ik.Architecture(
    num_features=4, width=8, depth=2, heads=2, causal=True, tokens="interleaved", max_tokens=32
)


@jax.jit
def cg():
    return ik.constructions.conjugate_gradient(ik.Linear(), num_features=4, ridge=0.1, steps=3)


@cache
def drawn():
    return ik.init(jax.random.key(0), DECODER, jnp.float32)


def decoder(dtype):
    """Its biases and positions, which start as 0, moved."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype) + dtype(0.1), drawn())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture
def saved(path):
    save(path, decoder(np.float32))
    return path


def refuse(path, error, message):
    with pytest.raises(error, match=message) as refusal:
        load(path)
    assert len(str(refusal.value)) < 500


def assert_round_trip(path, model, task):
    save(path, model)
    again = load(path)
    chex.assert_trees_all_equal(again, model, strict=True)
    np.testing.assert_array_equal(ik.predict(again, task), ik.predict(model, task))


@parametrize(("cg", "ric-gaussian", "ns-features"))
def test_a_construction_comes_back_to_the_bit(case, path, x64):
    """Tied leaves, a prologue, steps of many blocks, tables of ReLU units."""
    task = draw(0, r=2)
    options = {"arithmetic": ik.ReLU(8)} if case.name == "ric-gaussian" else {}
    model = jax.jit(lambda: case.build(task, ridge=0.1, steps=3, **options))()
    assert_round_trip(path, model, task)


def test_other_forms_of_a_construction_come_back_to_the_bit(path):
    """Also arrays that lie in memory by columns: safetensors writes memory as it lies."""
    model, matrices = cg(), jax.jit(ik.dense)(cg())
    columns = jax.tree.map(lambda leaf: np.asfortranarray(np.asarray(leaf)), matrices)
    for form in (ik.untie(model), matrices, model.replace(steps=5), columns):
        save(path, form)
        chex.assert_trees_all_equal(load(path), form, strict=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_trained_decoder_comes_back_to_the_bit(dtype, path, x64):
    """Positions, LayerNorms, interleaved tokens; an Architecture, which is more than a Spec."""
    task = jax.tree.map(lambda a: a.astype(dtype), draw(1))
    model = decoder(dtype)
    assert_round_trip(path, model, task)
    assert load(path).spec == DECODER


def test_weights_have_names_that_say_what_they_are(path):
    model = cg()
    save(path, model)
    tensors = load_file(path)
    assert len(tensors) == len(jax.tree.leaves(model))
    query = model.weights.steps[0].attention[0].query.blocks["x"]
    np.testing.assert_array_equal(tensors["steps.0.attention.0.query.blocks.x"], query)


def test_float64_weights_are_not_cast_silently(path):
    with jax.enable_x64(True):
        save(path, decoder(np.float64))
    refuse(path, ValueError, r"float64 weights .* need .*jax_enable_x64")


COMPLETE = r"complete file written by icl_krr\.export\.save"


def test_other_files_are_refused_in_a_sentence(path, tmp_path):
    refuse(path, FileNotFoundError, r"model\.safetensors")
    refuse(tmp_path, IsADirectoryError, "directory")
    save(path, decoder(np.float32))
    whole = path.read_bytes()
    unsealed = whole.replace(b"sha256:", b"sha255:")
    for other in (b"", b"alpha,r,p\n0.0,1.0,1.0\n", whole[:-4], whole[:100], unsealed):
        path.write_bytes(other)
        refuse(path, ValueError, COMPLETE)
    save_file({"alpha": np.ones(3)}, path)
    refuse(path, ValueError, COMPLETE)
    path.write_bytes(whole)
    rewrite(path, lambda record, tensors: record.update(format=9))
    refuse(path, ValueError, "must have format 2, got 9, written by icl_krr")


@pytest.mark.parametrize(("part", "flips"), [("header", 200), ("data", 120)])
def test_a_file_with_one_bit_flipped_is_refused(part, flips, saved):
    header = 8 + int.from_bytes(saved.read_bytes()[:8], "little")
    start, end = (0, header) if part == "header" else (header, None)
    for _ in helpers.with_one_bit_flipped(saved, flips, start, end):
        refuse(saved, ValueError, COMPLETE)


def rewrite(path, change):
    """Change the record and the tensors of a file, and give it a checksum that fits."""
    record, tensors = read(path)
    change(record, tensors)
    record["checksum"] = NO_CHECKSUM
    write(path, tensors, {"icl_krr": json.dumps(record)})


DAMAGES = {
    "a tensor is missing": lambda model, tensors: tensors.popitem(),
    "a tensor more": lambda model, tensors: tensors.update(more=np.ones(1, np.float32)),
    "an integer tensor": lambda model, tensors: tensors.update(cast(tensors, np.int32)),
    "a part of another kind": lambda model, tensors: model.update({"$type": "Task"}),
    "another part alone": lambda model, tensors: model.update(model["layout"]),
    "a field is missing": lambda model, tensors: model.pop("steps"),
    "a field more": lambda model, tensors: model.update(zzz=1),
    "no layout": lambda model, tensors: model.update(layout=None),
    "no slots": lambda model, tensors: model["layout"].update(slots=[]),
    "a slot less": lambda model, tensors: model["layout"]["slots"].pop(),
    "no blocks": lambda model, tensors: model["weights"].update(steps=None),
    "more steps than weights": lambda model, tensors: model.update(steps=5),
    "too many steps": lambda model, tensors: model.update(steps=10**12),
    "nothing": lambda model, tensors: model.clear(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_records_are_refused_in_a_sentence(damage, saved):
    rewrite(saved, lambda record, tensors: damage(record["model"], tensors))
    refuse(saved, ValueError, "must hold all parts of a model and no other parts")


def entries(value):
    """All containers of a record with the names of what they hold, but for tensors' names."""
    names = value if isinstance(value, dict) else range(len(value))
    for name in [name for name in names if name != "$tensor"]:
        yield value, name
        if isinstance(value[name], (dict, list)):
            yield from entries(value[name])


LONG = "x" * 10**5
WRONG = {int: (-5, 0, 2.5, "a"), bool: ("yes", 1), str: (LONG, 5), list: (5, "a"), dict: (5, [])}
TAKEN = {"depth", "hidden", "max_tokens", "streaming", "about"}  # other values are models too


def test_a_wrong_value_in_any_field_is_refused_in_a_short_sentence(saved):
    record, tensors = read(saved)
    places = [
        (place, name, wrong)
        for place, name in entries(record["model"])
        for wrong in ([] if name in TAKEN else WRONG.get(type(place[name]), []))
    ]
    assert len(places) > 150
    for place, name, wrong in places:
        right, place[name] = place[name], wrong
        write(saved, tensors, {"icl_krr": json.dumps(record | {"checksum": NO_CHECKSUM})})
        refuse(saved, ValueError, "must hold all parts of a model")
        place[name] = right


def test_what_is_no_model_is_refused(path):
    model = decoder(np.float32)
    for message, wrong in {
        r"model must be an icl_krr\.Transformer, got Weights": model.weights,
        "must be float32 or float64, got bfloat16": cast(model, jnp.bfloat16),
        "must be float32 or float64, got int32": cast(model, np.int32),
        r"embedding\.one\.blocks\.one must be an array or one of": jax.tree.map(
            lambda leaf: leaf.tolist(), model
        ),
    }.items():
        with pytest.raises(TypeError, match=message):
            save(path, wrong)
    with pytest.raises(IsADirectoryError):
        save(".", model)
    assert not path.exists()


def rms_norm(h, weight):
    """As T5 has it: the mean of squares in float32 whatever h is."""
    variance = np.mean(h.astype(np.float32) ** 2, axis=-1, keepdims=True, dtype=np.float32)
    return weight * (h * (1 / np.sqrt(variance + np.float32(1e-6))))


def run_numpy(folder, embeds):
    """A T5 encoder written once more: hidden states [layers + 1, b, T, d_model]."""
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    h, path = embeds, [embeds]
    split = lambda a: a.reshape(*a.shape[:2], config["num_heads"], config["d_kv"]).swapaxes(1, 2)  # noqa: E731
    for i in range(config["num_layers"]):
        layer = lambda name, i=i: tensors[f"encoder.block.{i}.layer.{name}.weight"]  # noqa: E731
        normed = rms_norm(h, layer("0.layer_norm"))
        q, k, v = (split(normed @ layer(f"0.SelfAttention.{name}").T) for name in "qkv")
        logits = q @ k.swapaxes(-1, -2)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        mixed = weights / weights.sum(-1, keepdims=True) @ v
        mixed = mixed.swapaxes(1, 2).reshape(*h.shape[:2], -1)
        h = h + mixed @ layer("0.SelfAttention.o").T
        normed = rms_norm(h, layer("1.layer_norm"))
        units = np.maximum(normed @ layer("1.DenseReluDense.wi").T, 0)
        h = h + units @ layer("1.DenseReluDense.wo").T
        path.append(h)
    return np.stack([*path[:-1], rms_norm(h, tensors["encoder.final_layer_norm.weight"])])


def run_transformers(folder, embeds):
    """Hugging Face's own, as it comes; nothing of its weights is missing or left over."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.disable_progress_bar()
    network, info = transformers.T5EncoderModel.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    with torch.no_grad():
        outputs = network(inputs_embeds=torch.tensor(embeds), output_hidden_states=True)
    assert torch.equal(outputs.hidden_states[-1], outputs.last_hidden_state)
    return torch.stack(outputs.hidden_states).numpy()


def foreign(test):
    """Marks of what may run PyTorch."""
    ignored = ("ignore:::transformers", "ignore:::torch", "ignore:::nnsight")
    return pytest.mark.extras(pytest.mark.filterwarnings(*ignored)(test))


def each_engine(test):
    return foreign(pytest.mark.parametrize("run", [run_numpy, run_transformers])(test))


PROCESS = ik.tasks.GaussianProcess(ik.Exponential(0.5), num_queries=8, inputs="sphere")
RIDGES = {"richardson": 0.1, "chebyshev": 0.1 * np.exp(2)}


class Solved(NamedTuple):
    """A construction in tables, a task, and what the one forward makes of them."""

    model: ik.Transformer
    task: ik.Task
    prediction: jax.Array
    path: list  # {slot: [T, width]} before every block, and after the last


@cache
def solved(solver, steps):
    """In float64, with tables that cover what the twin of exact arithmetic works on."""
    with jax.enable_x64(True):
        task = numpy(jax.jit(lambda: ik.tasks.sample(jax.random.key(0), PROCESS))())
        kernel = ik.Gaussian(0.7) if solver == "richardson" else ik.Exponential(0.5)
        options = {"ridge": RIDGES[solver], "steps": steps, "num_features": 2}
        if solver == "chebyshev":
            options["attention"] = ik.Softmax(log_sink=ik.theory.log_sink(kernel, task))
            options["spectrum"] = ik.spectral_bounds(kernel, task, ridge=options["ridge"])
        construct = getattr(ik.constructions, solver)
        build = lambda arithmetic: jax.jit(  # noqa: E731
            lambda: construct(kernel, **options, arithmetic=arithmetic)
        )()
        model = build(ik.ReLU(64, operand_bounds(build("exact"), task)))
        prediction, cache = numpy(ik.run_with_cache(model, task, names=(), everything=True))
        last = model.depth - 1
        path = [cache[f"blocks.{i}.resid_pre"] for i in range(model.depth)]
        return Solved(model, task, prediction, [*path, cache[f"blocks.{last}.resid_post"]])


def cast(tree, dtype):
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), tree)


@each_engine
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-3)])
def test_every_layer_of_the_t5_is_the_forward(run, dtype, tolerance, tmp_path, x64):
    """Slot by slot, and the readout; in float32 beside the forward in float64."""
    model, task, prediction, path = solved("chebyshev", 40)
    t5 = to_t5(tmp_path, cast(model, dtype))
    hidden = run(tmp_path, t5.embed(cast(task, dtype)))
    assert hidden.dtype == dtype
    for i, (state, stream) in enumerate(zip(hidden, path, strict=True)):
        for slot, ours in stream.items():
            assert relative(t5.slot(state, slot)[0], ours) < tolerance, (i, slot)
    assert relative(t5.read_out(hidden[-1], task), prediction) < tolerance
    # regression to the error of the tables
    exact = ik.solvers.exact(ik.Exponential(0.5), task, ridge=RIDGES["chebyshev"]).prediction
    assert relative(prediction, exact) < 5e-2


def hugging_face_norm(h, weight):
    torch = pytest.importorskip("torch")
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    layer = t5.T5LayerNorm(len(weight))
    layer.weight.data = torch.tensor(weight)
    return layer(torch.tensor(h)).detach().numpy()


@foreign
@pytest.mark.parametrize("norm", [rms_norm, hugging_face_norm])
def test_the_norm_is_the_identity_to_the_bit_as_far_as_is_said(norm):
    """And no longer where a token is larger: the bound is sharp to a factor of 4."""
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        for d in (16, 64, 256):
            h = rng.normal(size=(200, d)) * 2.0 ** rng.integers(-60, 20, size=(200, d))
            h *= 2.0 ** rng.integers(-20, 28, size=(200, 1)) / np.linalg.norm(h, axis=1)[:, None]
            h = np.where(np.abs(h) < 2.0**-86, 0, h)
            h[:, -1] = 2.0**40
            weight = np.full(d, 2.0**40 / d**0.5, dtype)
            np.testing.assert_array_equal(norm(h.astype(dtype), weight), h.astype(dtype))
    h[:, 0] = 2.0**29
    assert not np.array_equal(norm(h, weight), h)


@each_engine
def test_nothing_reads_a_query_or_padding(run, tmp_path, x64):
    model, task, *_ = solved("richardson", 8)
    t5 = to_t5(tmp_path, model)
    task = task.replace(mask=np.arange(64) < 60, y_query=None)
    embeds = t5.embed(task)
    x_query = np.array(task.x_query)
    x_query[1] *= -1
    other = t5.embed(task.replace(x_query=x_query))
    query = 1 + 64 + 1
    moved = np.flatnonzero(np.any(embeds != other, axis=-1)[0])
    assert moved.tolist() == [query]
    # one after the other: torch rounds the members of a batch in different ways
    hidden, changed = run(tmp_path, embeds), run(tmp_path, other)
    np.testing.assert_array_equal(*(np.delete(h, query, axis=2) for h in (hidden, changed)))
    assert not np.array_equal(hidden[-1, 0, query], changed[-1, 0, query])
    assert relative(t5.read_out(hidden[-1], task), ik.predict(model, task)) < 1e-9


@each_engine
def test_batches_of_ragged_tasks_with_two_outputs(run, tmp_path, x64):
    tasks = helpers.stacked(draw(0, r=2), draw(1, r=2))
    tasks = tasks.replace(mask=np.arange(7)[None] < np.array([[7], [5]]))
    tables = ik.ReLU(64, bound=16.0)
    build = lambda: ik.constructions.richardson(  # noqa: E731
        ik.Gaussian(), ridge=0.5, steps=4, arithmetic=tables, num_features=4, num_outputs=2
    )
    model = jax.jit(build)()
    t5 = to_t5(tmp_path, model)
    embeds = t5.embed(tasks)
    assert embeds.shape[:2] == (2, 1 + 7 + 3)
    hidden = run(tmp_path, embeds)[-1]
    assert t5.slot(hidden, "alpha").shape == (2, 11, 2)
    prediction = t5.read_out(hidden, tasks)
    assert relative(prediction, ik.predict_batch(model, tasks)) < 1e-9
    first = one(tasks, 0)
    np.testing.assert_array_equal(t5.embed(first), embeds[:1])
    np.testing.assert_array_equal(t5.read_out(hidden[:1], first), prediction[0])


@each_engine
def test_a_trained_transformer_of_relu_units(run, tmp_path, x64, monkeypatch):
    """Several heads, biases; linear units become pairs. Writing it takes no torch."""
    sizes = {"num_features": 4, "width": 8, "depth": 2, "heads": 2}
    model = of_random_weights(**sizes, activation="relu", layer_norm=False)
    task = draw(1)
    with monkeypatch.context() as without:
        for name in ("torch", "transformers"):
            without.setitem(sys.modules, name, None)
        t5 = to_t5(tmp_path, jax.tree.map(lambda leaf: np.asarray(leaf), model))
    again = open_t5(tmp_path)
    hidden = run(tmp_path, again.embed(task))
    prediction = again.read_out(hidden[-1], task)
    assert relative(prediction, ik.predict(t5.model, task)) < 1e-9
    np.testing.assert_array_equal(prediction, t5.read_out(hidden[-1], task))


def test_what_a_t5_cannot_be_is_refused_before_anything_is_written(tmp_path):
    def drawn(**options):
        plain = {"num_features": 4, "activation": "relu", "layer_norm": False}
        architecture = ik.Architecture(**plain | options)
        return jax.eval_shape(lambda: ik.init(jax.random.key(0), architecture))

    gated = jax.eval_shape(lambda: ik.constructions.nadaraya_watson(ik.Gaussian(), num_features=4))
    refused = {
        "softmax attention, got linear; build it with attention='softmax'": jax.eval_shape(cg),
        r"ReLU units, got units gated by .*; build it with arithmetic=icl_krr\.ReLU": gated,
        "no LayerNorm, got a model with .*; draw it with layer_norm=False": drawn(layer_norm=True),
        "ReLU units, got GELU; draw it with activation='relu'": drawn(activation="gelu"),
        "got causal; draw it with causal=False": drawn(causal=True),
        "got interleaved tokens; draw it with tokens='pairs'": drawn(tokens="interleaved"),
        "no positions, got learned positions; draw it with max_tokens=None": drawn(max_tokens=32),
    }
    for message, model in refused.items():
        with pytest.raises(ValueError, match=message):
            to_t5(tmp_path / "t5", model)
    with pytest.raises(TypeError, match=r"model must be an icl_krr\.Transformer, got int"):
        to_t5(tmp_path / "t5", 3)
    with jax.enable_x64(True):
        wide = drawn()
    spoilt = jax.tree.map(lambda leaf: np.full(leaf.shape, np.nan, leaf.dtype), drawn())
    with pytest.raises(ValueError, match="model must have finite weights"):
        to_t5(tmp_path / "t5", spoilt)
    with pytest.raises(ValueError, match="model must be float32 if x64 is not enabled"):
        to_t5(tmp_path / "t5", wide)
    assert not (tmp_path / "t5").exists()


def test_what_does_not_fit_a_t5_is_refused():
    t5 = T5(cast(solved("richardson", 8).model, "float32"))
    task = draw(0, p=2)
    large = task.replace(y=1e9 * np.ones(7))
    with pytest.raises(ValueError, match=r"task must have tokens of norm at most 2\^27"):
        t5.embed(large)
    with pytest.raises(ValueError, match="num_outputs = 1 to fit the model, got 2"):
        t5.embed(draw(0, p=2, r=2))
    hidden = t5.embed(task)
    with pytest.raises(ValueError, match=r"hidden must be \[1, 11, 64\], got shape \[11, 64\]"):
        t5.read_out(hidden[0], task)
    with pytest.raises(ValueError, match=r"hidden must have tokens of norm at most 2\^27"):
        t5.read_out(2.0**35 * hidden, task)
    with pytest.raises(ValueError, match="slot must be one of"):
        t5.slot(hidden, "beta")


@foreign
def test_nnsight_recovers_alpha_from_the_t5(tmp_path, monkeypatch):
    """The example of the docstring, run as a notebook would."""
    for tool in ("torch", "transformers", "nnsight"):
        pytest.importorskip(tool)
    code = re.search(r"every layer:\n\n((    .*\n|\n)+)", inspect.getdoc(to_t5))[1]
    (tmp_path / "example.py").write_text(textwrap.dedent(code))
    monkeypatch.chdir(tmp_path)
    namespace = runpy.run_path("example.py")
    model, task = namespace["model"], namespace["task"]
    prediction, cache = ik.run_with_cache(model, task)
    assert relative(namespace["prediction"], prediction) < 1e-3
    prologue = len(model.weights.prologue)
    supports = [alpha[0, 1:65, 0] for alpha in namespace["alphas"][prologue - 1 :]]
    assert len(supports) == len(cache["alpha"])
    for alpha, ours in zip(supports, cache["alpha"], strict=True):
        assert relative(alpha, ours) < 1e-4
