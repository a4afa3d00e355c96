"""GPT-2 models of PyTorch, with the read-in and readout of Garg et al., in the one forward.

`reference` is a GPT-2 of this file's own in NumPy, which reads the same tensors.
"""

import dataclasses
import doctest
import inspect
import sys
from functools import cache, partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import in_tiles, of_random_weights, often, one, relative
from test_export import foreign, rewrite

import icl_krr as ik
from icl_krr.export import from_gpt2, load, save

P, N, Q, D, LAYERS, HEADS = 3, 5, 2, 8, 2, 2
CONFIG = {
    "model_type": "gpt2",
    "n_embd": D,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "add_cross_attention": False,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}
OWN = {"causal": True, "inclusive": True, "aggregator": False}


def tensors(seed=0):
    rng = np.random.default_rng(seed)
    normal = lambda *shape: 0.5 * rng.normal(size=shape)  # noqa: E731
    result = {"wte.weight": normal(1, D), "wpe.weight": normal(2 * N + 3, D)}
    sizes = {
        "attn.c_attn": (D, 3 * D),
        "attn.c_proj": (D, D),
        "mlp.c_fc": (D, 4 * D),
        "mlp.c_proj": (4 * D, D),
    }
    for i in range(LAYERS):
        for name, (rows, columns) in sizes.items():
            result[f"h.{i}.{name}.weight"] = normal(rows, columns)
            result[f"h.{i}.{name}.bias"] = normal(columns)
    for name in ("ln_f", *(f"h.{i}.ln_{k}" for i in range(LAYERS) for k in (1, 2))):
        result[f"{name}.weight"], result[f"{name}.bias"] = 1 + normal(D), normal(D)
    return result


def standing_in(**config):
    """What `from_gpt2` reads of a GPT-2 and its two linear maps, without torch."""
    network = SimpleNamespace(config=SimpleNamespace(**{**CONFIG, **config}), state_dict=tensors)
    rng = np.random.default_rng(1)
    read_in = SimpleNamespace(weight=rng.normal(size=(D, P)), bias=rng.normal(size=D))
    read_out = SimpleNamespace(weight=rng.normal(size=(1, D)), bias=rng.normal(size=1))
    return network, read_in, read_out


def sequence(task, query):
    """The tokens [2 n + 1, p] of one query."""
    tokens = np.zeros((2 * len(task.x) + 1, P), np.asarray(task.x).dtype)
    tokens[:-1:2], tokens[1::2, 0], tokens[-1] = task.x, task.y, task.x_query[query]
    return tokens


def norm(h, weight, bias):
    h = h - h.mean(-1, keepdims=True)
    return h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-5) * weight + bias


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def reference(network, read_in, read_out, tokens):
    """The hidden states [L + 1, T, d], the last before the final norm, and readouts [L + 1, T]."""
    state = network.state_dict()
    of = lambda name: (state[f"{name}.weight"], state[f"{name}.bias"])  # noqa: E731

    def linear(h, name):
        weight, bias = of(name)
        return h @ weight + bias

    h = tokens @ read_in.weight.T + read_in.bias + state["wpe.weight"][: len(tokens)]
    path = [h]
    for i in range(LAYERS):
        q, k, v = np.split(linear(norm(h, *of(f"h.{i}.ln_1")), f"h.{i}.attn.c_attn"), 3, axis=1)
        heads = []
        for qh, kh, vh in zip(*(np.split(part, HEADS, axis=1) for part in (q, k, v)), strict=True):
            logits = qh @ kh.T / np.sqrt(D / HEADS)
            weights = np.tril(np.exp(logits - logits.max()))
            heads.append(weights / weights.sum(1, keepdims=True) @ vh)
        h = h + linear(np.concatenate(heads, axis=1), f"h.{i}.attn.c_proj")
        units = gelu(linear(norm(h, *of(f"h.{i}.ln_2")), f"h.{i}.mlp.c_fc"))
        h = h + linear(units, f"h.{i}.mlp.c_proj")
        path.append(h)
    path = np.stack(path)
    return path, (norm(path, *of("ln_f")) @ read_out.weight.T + read_out.bias)[..., 0]


def draw(seed=0, dtype=np.float64, batch=()):
    rng = np.random.default_rng(seed)
    shapes = (N, P), (N,), (Q, P)
    return ik.Task(*(rng.normal(size=(*batch, *shape)).astype(dtype) for shape in shapes))


@cache
def model():
    with jax.enable_x64(True):
        return from_gpt2(*standing_in())


@cache
def expected():
    return [reference(*standing_in(), sequence(draw(), i)) for i in range(Q)]


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "tiles"])
def test_every_layer_is_that_of_a_gpt2_at_every_token(streaming, x64):
    task, ours = draw(), in_tiles(model(), streaming)
    names, points = ("stream", "prediction"), ("resid_mid",)
    prediction, cache = ik.run_with_cache(ours, task, names=names, points=points)
    (path, answers), (_, others) = expected()
    assert relative(cache["stream"][:, 1 : 2 * N + 2], path) < 1e-12
    assert relative(cache["prediction"], np.stack([answers[:, -1], others[:, -1]], 1)) < 1e-12
    assert relative(prediction, cache["prediction"][-1]) < 1e-12
    along = ik.predict_along(ours, task)
    assert relative(along[:N], answers[-1, : 2 * N : 2]) < 1e-12
    assert relative(along[N:], prediction) < 1e-12
    assert len(cache["blocks.2.resid_mid"]) == 2


def test_patterns_that_are_looked_at_are_those_that_are_used(x64):
    """A query reads itself, no other query and no aggregator."""
    prediction, cache = ik.run_with_cache(model(), draw(), everything=True)
    assert relative(prediction, ik.predict(model(), draw())) < 1e-13
    for layer in range(LAYERS):
        pattern = np.asarray(cache[f"blocks.{2 * layer}.heads.0.pattern"])
        assert pattern.shape == (HEADS, 1 + 2 * N + Q, 1 + 2 * N + Q)
        assert np.allclose(pattern.sum(-1), 1)
        assert np.all(pattern[:, 0, 0] == 1)
        assert not np.any(pattern[:, 1:, 0])
        assert np.all(pattern[:, -1, -1] > 0)
        assert not np.any(pattern[:, -1, -2])


def test_a_mask_is_a_shorter_context(x64):
    task, keep = draw(), np.arange(N) != 2
    short = task.replace(x=task.x[keep], y=task.y[keep])
    for decoder in (model(), in_tiles(model())):
        masked = ik.predict(decoder, task.replace(mask=keep))
        assert relative(masked, ik.predict(decoder, short)) < 1e-13


@often("attention", ["linear"], ["softmax", "tiles", "linear"])
def test_a_query_knows_itself_and_no_other_query(attention, x64):
    """Not even a NaN leaks, and a gradient has none. The patterns as a whole agree."""
    sizes = {"num_features": P, "width": 4, "depth": 1, "heads": 2, "hidden": 0}
    kind = {"attention": attention.replace("tiles", "softmax"), "streaming": attention == "tiles"}
    decoder, task = of_random_weights(**sizes, **kind, **OWN), draw()
    answer = jax.jit(lambda x_query: ik.predict(decoder, task.replace(x_query=x_query)))
    spoilt = np.where(np.arange(Q)[:, None] == 0, np.nan, task.x_query)
    good, bad = answer(task.x_query), answer(spoilt)
    assert np.all(np.isnan(bad[0]))
    assert relative(bad[1:], good[1:]) < 1e-13
    same = {"blocks.*.heads.0.pattern": lambda pattern, where: pattern}
    assert relative(ik.run_with_hooks(decoder, task, same), good) < 1e-12
    # all supports masked: a query has no key but itself
    alone = task.replace(mask=np.zeros(N, bool))
    slopes = jax.jit(jax.grad(lambda decoder: jnp.sum(ik.predict(decoder, alone))))(decoder)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slopes))
    one, other = np.asarray(ik.predict(decoder, alone))
    assert one != other


def test_it_can_be_saved_and_older_files_can_be_loaded(tmp_path, x64):
    """Files from before there was `aggregator` in a Spec."""
    path = tmp_path / "model.safetensors"
    save(path, model())
    assert load(path).spec == model().spec
    assert relative(ik.predict(load(path), draw()), ik.predict(model(), draw())) < 1e-15
    with_aggregator = dataclasses.replace(model().spec, aggregator=True)
    save(path, model().replace(spec=with_aggregator))
    rewrite(path, lambda record, tensors: record["model"]["spec"].pop("aggregator"))
    assert load(path).spec == with_aggregator
    assert not jnp.allclose(ik.predict(load(path), draw()), ik.predict(model(), draw()))


def test_a_gpt2_that_is_not_understood_is_refused(x64):
    network, read_in, read_out = standing_in()

    def with_read_in(*like):
        return network, SimpleNamespace(weight=np.ones(*like), bias=None), read_out

    refused = {
        "activation_function must be one of .*, got 'silu'": standing_in(
            activation_function="silu"
        ),
        "must have no cross attention": standing_in(add_cross_attention=True),
        "layer_norm_epsilon of the model must be 1e-5": standing_in(layer_norm_epsilon=1e-6),
        "read_in must map p features to the width 8, got 7": with_read_in((D - 1, P)),
        "read_out must map the width 8 to 1 output, got 3 to 8": (network, read_in, read_in),
        "all weights must have one dtype, got float32 and float64": with_read_in((D, P), "f4"),
        r"read_in\.weight must be float32 or float64, got float16": with_read_in((D, P), "f2"),
    }
    for message, parts in refused.items():
        with pytest.raises(TypeError if "float32" in message else ValueError, match=message):
            from_gpt2(*parts)
    for other in (object(), SimpleNamespace(config=network.config), *standing_in(model_type="t5")):
        with pytest.raises(TypeError, match=r"the GPT of nanoGPT .*; .*probes\.identify_arrays"):
            from_gpt2(other, read_in, read_out)
    with jax.enable_x64(False), pytest.raises(ValueError, match="float32 if x64 is not enabled"):
        from_gpt2(network, read_in, read_out)
    with pytest.raises(ValueError, match="at most 14 positions"):
        ik.predict(model(), ik.Task(np.ones((7, P)), np.ones(7), np.ones((1, P))))


def test_a_probe_can_be_fitted_to_any_reader(x64):
    """To the streams of a model, read by a function, as to the model itself."""
    tasks, targets = draw(2, batch=(6,)), np.random.default_rng(3).normal(size=(6, Q))
    reader = partial(ik.probes.streams, model())
    ours, theirs = (ik.probes.fit_probe(it, tasks, targets) for it in (reader, model()))
    streams = reader(draw())
    assert relative(ours(streams), theirs(streams)) < 1e-9
    with pytest.raises(ValueError, match=r"must return streams \[L \+ 1, q, d\] with q = 2"):
        ik.probes.fit_probe(lambda task: task.x_query, tasks, targets)


def test_a_pytorch_model_without_torch_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="a PyTorch model needs torch, which is not installed"):
        ik.probes.torch_arrays(lambda *arrays: None, draw(batch=(2,)))


# with torch and transformers


def hugging_face(dtype="float64", kind="GPT2Model", **options):
    """A network, its read-in and its readout, with every weight at random."""
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    sizes = {"n_embd": D, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 2 * N + 3}
    tokens = {"vocab_size": 2, "bos_token_id": 0, "eos_token_id": 0}
    network = getattr(transformers, kind)(transformers.GPT2Config(**sizes, **tokens, **options))
    return at_random(network, torch.nn.Linear(P, D), torch.nn.Linear(D, 1), dtype=dtype)


def at_random(*parts, dtype="float64"):
    torch = pytest.importorskip("torch")
    dtype, generator = getattr(torch, dtype), torch.Generator().manual_seed(0)
    for part in parts:
        for weight in part.to(dtype).eval().parameters():
            weight.data += 0.3 * torch.randn(weight.shape, generator=generator, dtype=dtype)
    return parts


def hidden_states(parts, task, query=0):
    torch = pytest.importorskip("torch")
    network, read_in, read_out = parts
    network = getattr(network, "transformer", network)
    embeds = read_in(torch.tensor(sequence(task, query))[None])
    with torch.no_grad():
        output = network(inputs_embeds=embeds, output_hidden_states=True)
        answers = read_out(output.last_hidden_state)[0, :, 0].numpy()
    return torch.stack(output.hidden_states)[:, 0].numpy(), answers


OPTIONS = {
    "as it comes": {},
    "relu, of a language model": {"activation_function": "relu", "kind": "GPT2LMHeadModel"},
    "other scales": {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True},
    "wide, exact GELU": {"n_inner": 5, "activation_function": "gelu"},
}


@foreign
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
def test_every_layer_is_that_of_hugging_face(options, dtype, tolerance, x64):
    parts, task = hugging_face(dtype, **options), draw(dtype=dtype)
    ours = from_gpt2(*parts)
    cache = ik.run_with_cache(ours, task, names=("stream",))[1]
    along = ik.predict_along(ours, task)
    for query in range(Q):
        states, answers = hidden_states(parts, task, query)
        tokens = [*range(1, 2 * N + 1), 1 + 2 * N + query]
        assert relative(cache["stream"][:-1, tokens], states[:-1]) < tolerance
        # all at once: one answer may be near 0, where rounding errors are relative to its terms
        at_points = np.append(along[:N], along[N + query])
        assert relative(at_points, np.append(answers[:-1:2], answers[-1])) < tolerance


@foreign
@pytest.mark.parametrize(("activation", "bias"), [("none", True), ("tanh", False), ("ReLU", True)])
def test_every_layer_is_that_of_a_nano_gpt(activation, bias, x64):
    """Linear layers in place of Conv1D, whose weights are transposed, and a module of the MLP."""
    torch = pytest.importorskip("torch")
    nn = torch.nn
    linear, norm = partial(nn.Linear, bias=bias), partial(nn.LayerNorm, D, bias=bias)
    gelu = nn.ReLU() if activation == "ReLU" else nn.GELU(activation)

    def layer():
        attn = nn.ModuleDict({"c_attn": linear(D, 3 * D), "c_proj": linear(D, D)})
        mlp = nn.ModuleDict({"c_fc": linear(D, 4 * D), "gelu": gelu, "c_proj": linear(4 * D, D)})
        return nn.ModuleDict({"ln_1": norm(), "attn": attn, "ln_2": norm(), "mlp": mlp})

    network = nn.Module()
    network.config = SimpleNamespace(n_layer=LAYERS, n_head=HEADS, n_embd=D, block_size=2 * N + 3)
    inner = {"wpe": nn.Embedding(2 * N + 3, D), "h": nn.ModuleList([layer(), layer()])}
    network.transformer = nn.ModuleDict(inner | {"ln_f": norm()})
    parts, task = at_random(network, nn.Linear(P, D), nn.Linear(D, 1)), draw()
    tokens = torch.tensor(sequence(task, 0))
    states = [parts[1](tokens) + inner["wpe"].weight[: len(tokens)]]
    for block in inner["h"]:
        h, attn, mlp = states[-1], block.attn, block.mlp
        heads = [
            part.reshape(len(h), HEADS, -1).transpose(0, 1)
            for part in attn.c_attn(block.ln_1(h)).split(D, dim=1)
        ]
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        h = h + attn.c_proj(mixed.transpose(0, 1).reshape(h.shape))
        states.append(h + mlp.c_proj(mlp.gelu(mlp.c_fc(block.ln_2(h)))))
    answers = parts[2](network.transformer.ln_f(states[-1]))[::2, 0].detach().numpy()
    ours = from_gpt2(*parts)
    cache = ik.run_with_cache(ours, task, names=("stream",))[1]
    assert relative(cache["stream"][:, 1 : 2 * N + 2], torch.stack(states).detach()) < 1e-12
    assert relative(ik.predict_along(ours, task)[: N + 1], answers) < 1e-12
    inner["h"][1].mlp["gelu"] = nn.SiLU()
    with pytest.raises(ValueError, match=r"activation_function must be one of .* got 'silu'"):
        from_gpt2(*parts)
    inner["h"][1].mlp["gelu"] = nn.ReLU() if activation != "ReLU" else nn.GELU()
    with pytest.raises(ValueError, match="one activation in all blocks"):
        from_gpt2(*parts)
    inner["h"][1].mlp["gelu"], inner["h"][1].ln_1.eps = gelu, 1e-2
    with pytest.raises(ValueError, match=r"must be 1e-5, got 0\.01"):
        from_gpt2(*parts)


@foreign
def test_hat_matrices_by_torch_are_those_of_the_forward(x64):
    """Of every layer, through the final norm; with masks, which torch never sees."""
    parts = hugging_face()
    ours, tasks = from_gpt2(*parts), draw(1, batch=(3,))
    tasks = tasks.replace(mask=np.arange(N)[None] < np.array([[N], [3], [N]]))
    read = partial(ik.probes.layerwise, ours)
    answers, hats = ik.probes.torch_arrays(ik.probes.decoder_layer_predictions(*parts), tasks)
    assert answers.dtype == hats.dtype == np.float64
    assert relative(answers, jax.lax.map(read, tasks)) < 1e-12
    expected = jax.lax.map(partial(ik.probes.hat_matrix, read), tasks)
    assert relative(hats, expected) < 1e-11
    assert not np.any(hats[1, ..., 3:])


@foreign
def test_several_outputs_have_all_their_derivatives(x64):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    y = rng.normal(size=(2, N, 2))
    tasks = draw(1, batch=(2,)).replace(y=y)
    turn = rng.normal(size=(2, 2))
    slope = lambda x, y, x_query: (x_query @ (x.T @ y) @ torch.tensor(turn))[None]  # noqa: E731
    answers, hats = ik.probes.torch_arrays(slope, tasks)
    assert answers.shape == (2, 1, Q, 2)
    expected = np.einsum("bqp,bnp,rs->bqsnr", tasks.x_query, tasks.x, turn)
    assert relative(hats[:, 0], expected) < 1e-13
    with pytest.raises(ValueError, match=r"predictions \[L \+ 1, q, r\] with q = 2, got shape"):
        ik.probes.torch_arrays(lambda x, y, x_query: y, tasks)
    with pytest.raises(TypeError, match=r"must return a torch\.Tensor, got int"):
        ik.probes.torch_arrays(lambda x, y, x_query: 0, tasks)


@foreign
def test_streams_have_derivatives_forward_and_backward(x64):
    """Forward, and backward through fused attention, which has no forward derivatives."""
    torch, tasks = pytest.importorskip("torch"), draw(1, batch=(2,))

    def read(attention):
        torch.manual_seed(0)
        network, read_in, _ = hugging_face(attn_implementation=attention)

        def streams(x, y, x_query):
            wide = torch.nn.functional.pad(y[:, None], (0, P - 1))
            supports = torch.stack([x, wide], dim=1).reshape(-1, P)
            tokens = torch.cat([supports.expand(Q, -1, -1), x_query[:, None]], dim=1)
            output = network(inputs_embeds=read_in(tokens), output_hidden_states=True)
            return torch.stack([hidden[:, -1] for hidden in output.hidden_states])

        return ik.probes.torch_arrays(streams, tasks)

    (values, slopes), (same, backward) = map(read, ("eager", "sdpa"))
    assert values.shape == (2, LAYERS + 1, Q, D)
    assert slopes.shape == (*values.shape, N)
    assert relative(values, same) < 1e-12
    assert relative(slopes, backward) < 1e-11


@foreign
def test_other_decoders_have_layers_too():
    """A Llama, whose final norm has another name; a network that could drop out is refused."""
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    sizes = {"hidden_size": D, "intermediate_size": D, "num_hidden_layers": LAYERS}
    tokens = {"vocab_size": 2, "bos_token_id": 0, "eos_token_id": 0}
    config = transformers.LlamaConfig(**sizes, **tokens, num_attention_heads=HEADS)
    network = transformers.LlamaModel(config)
    maps = torch.nn.Linear(P, D), torch.nn.Linear(D, 1)
    with pytest.raises(ValueError, match=r"evaluation mode, got training mode; call model\.eval"):
        ik.probes.decoder_layer_predictions(network.train(), *maps)
    function = ik.probes.decoder_layer_predictions(network.eval(), *maps)
    tasks = draw(1, np.float32, batch=(2,))
    answers, hats = ik.probes.torch_arrays(function, tasks)
    assert hats.shape == (2, LAYERS + 1, Q, N)
    assert not np.any(hats[:, 0])
    assert np.any(hats[:, 1])
    output = network(inputs_embeds=maps[0](torch.tensor(sequence(one(tasks, 0), 1))[None]))
    assert relative(answers[0, -1, 1], maps[1](output.last_hidden_state)[0, -1].item()) < 1e-5


@foreign
def test_hooks_and_interventions_are_those_of_torch(x64):
    """A head of the second layer without its values, as a hook of torch removes it."""
    parts, task = hugging_face(), draw()
    ours = from_gpt2(*parts)
    cut = slice(0, D // HEADS)

    def without(module, inputs):
        (mixed,) = inputs
        mixed = mixed.clone()
        mixed[..., cut] = 0
        return (mixed,)

    handle = parts[0].h[1].attn.c_proj.register_forward_pre_hook(without)
    expected = [hidden_states(parts, task, query)[1][-1] for query in range(Q)]
    handle.remove()
    hook = {"blocks.2.heads.0.mixed": lambda mixed, where: mixed.at[:, 0].set(0)}
    assert relative(ik.run_with_hooks(ours, task, hook), expected) < 1e-12
    tasks, others = draw(batch=(1,)), draw(1, batch=(1,))
    sites = [s for s in ik.probes.sites(ours, ("head",), each_step=True) if s.step == 1]
    assert [site.name for site in sites] == ["blocks.2.heads.0[0]", "blocks.2.heads.0[1]"]
    assert relative(ik.probes.ablate(ours, tasks, sites)[0, 0], expected) < 1e-12
    whole = ik.probes.sites(ours, ("role",), each_step=True)[-3:]
    patched = ik.probes.patch(ours, tasks, whole, others)
    assert relative(patched[-1, 0], ik.predict(ours, draw(1))) < 1e-12


@foreign
@pytest.mark.parametrize(
    "function", [from_gpt2, ik.probes.torch_arrays, ik.probes.decoder_layer_predictions]
)
def test_the_examples_of_the_docstrings(function):
    """Those that need torch, which conftest.py leaves out of the other lane."""
    for name in ("torch", "transformers"):
        pytest.importorskip(name)
    names = dict(vars(inspect.getmodule(function)))
    (examples,) = doctest.DocTestFinder().find(function, globs=names)
    assert "import torch" in examples.docstring
    assert doctest.DocTestRunner().run(examples).failed == 0
