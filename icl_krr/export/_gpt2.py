"""GPT-2 models of PyTorch that regress in context, as weights of the one forward."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._core import checks
from ..residual import Layout, Read, Slot
from ..transformer import Block, Heads, Norm, Spec, Transformer, Unit, Weights, Write

ACTIVATIONS = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu": "normal_cdf",  # times its argument
    "relu": "relu",
}
"""Names of activations in a GPT-2 config, and ours for the same functions."""
MODULES = {"none": "gelu", "tanh": "gelu_new"}
"""The same names, by the argument `approximate` of a `torch.nn.GELU`."""
PARTS = ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
"""Names of the weights of a layer."""


class Config(NamedTuple):
    """What the weights of a GPT-2 do not say: `scales` are the factors of the logits of layers."""

    n_head: int
    activation: str
    scales: np.ndarray


class Linear(NamedTuple):
    """A linear map of rows: weight [in, out] and bias [out]."""

    weight: np.ndarray
    bias: np.ndarray

    def read(self, scale: float | np.ndarray = 1.0) -> Read:
        """The map of the stream, times a number for each layer or one for all."""
        blocks = {"stream": self.weight * scale, "one": self.bias[..., None, :] * scale}
        return Read(jax.tree.map(jnp.asarray, blocks), self.weight.shape[-1])

    def columns(self, part: slice) -> Linear:
        return Linear(self.weight[..., part], self.bias[..., part])


def from_gpt2(model: Any, read_in: Any, read_out: Any) -> Transformer:
    r"""Read a GPT-2 of Hugging Face or of nanoGPT that regresses in context as a `Transformer`.

    The model is that of Garg et al.: the tokens are $x_1, y_1, x_2, y_2, \dots, x_{query}$, with
    y in the first of p channels. `read_in` embeds them, and `read_out` predicts y at the tokens of
    x. The result runs through the same forward as every model of this library, so caches, hooks,
    interventions and probes work on it.

    A layer is one step of two blocks: block 2 i is the attention of layer i, block 2 i + 1 its MLP.
    The slot `stream` after step i is `hidden_states[i]` of the GPT-2, at a token more: the first
    token is an aggregator that no token reads. The last hidden state of Hugging Face follows the
    final norm, which is here a part of the readout. All queries are at the position after the
    supports. $1 / \sqrt{d_k}$ is a factor of the query weights. Dropout is left out.

    Args:
        model: a `transformers.GPT2Model`, or a model that has one as `transformer`, or the `GPT`
            of nanoGPT (`torch.nn.Linear` in place of `Conv1D`, with or without biases), with
            float32 or float64 weights. Only its config, its activation and the values of its
            weights are read.
        read_in: a `torch.nn.Linear` from p features to the width d.
        read_out: a `torch.nn.Linear` from the width d to one output.

    Returns:
        A `Transformer` in the dtype of the weights. Tasks have at most as many tokens as `wpe`.

    Raises:
        TypeError: the model is of another class. `icl_krr.probes.identify_arrays` takes it.
        ValueError: the GPT-2 has cross attention, an activation other than GELU and ReLU, or
            another epsilon than 1e-5; the maps do not fit; or the weights are float64 and x64 is
            not enabled.

    Source: Garg et al., What can transformers learn in-context?, 2022, arXiv:2208.01066; Radford
    et al., Language models are unsupervised multitask learners, 2019.

    >>> import torch, transformers
    >>> import numpy as np
    >>> import icl_krr as ik
    >>> config = transformers.GPT2Config(n_embd=64, n_layer=4, n_head=4, n_positions=32)
    >>> network = transformers.GPT2Model(config)
    >>> read_in, read_out = torch.nn.Linear(3, 64), torch.nn.Linear(64, 1)
    >>> model = ik.export.from_gpt2(network, read_in, read_out)
    >>> x = np.eye(3, dtype=np.float32)
    >>> task = ik.Task(x=x, y=x[0], x_query=x[:1])
    >>> ik.probes.layerwise(model, task).shape
    (5, 1)
    """
    inner = getattr(model, "transformer", model)
    config = config_of(model, inner)
    state = {name: array(name, tensor) for name, tensor in inner.state_dict().items()}
    inward, outward = linear("read_in", read_in), linear("read_out", read_out)
    d = state["wpe.weight"].shape[1]
    check_fits(d, state, inward, outward)
    fields = {"x": inward.weight, "y": inward.weight[:1], "one": inward.bias[None]}
    # the aggregator comes first and has a position that nobody reads
    positions = np.pad(state["wpe.weight"], ((1, 0), (0, 0)))
    one = Read({"one": jnp.ones((), positions.dtype)}, 1)
    weights = Weights(
        embedding={"stream": Read(jax.tree.map(jnp.asarray, fields), d), "one": one},
        steps=blocks(config, state, d),
        readout=outward.read(),
        positions={"stream": jnp.asarray(positions)},
        final_norm={"stream": Norm(*map(jnp.asarray, weight_and_bias(state, "ln_f")))},
    )
    p = len(inward.weight)
    spec = Spec(p, causal=True, inclusive=True, tokens="interleaved", aggregator=False)
    layout = Layout((Slot("stream", d), Slot("one", 1, kind="data")))
    return Transformer(weights, spec, layout, len(config.scales))


def blocks(config: Config, state: dict[str, np.ndarray], d: int) -> tuple[Block, Block]:
    """The attention and the MLP of all layers, with the layers as first axis."""
    of_linear = len(state["h.0.attn.c_attn.weight"]) != d  # [3 d, d]; that of Conv1D is [d, 3 d]

    def affine(name: str) -> Linear:
        """Weights [L, in, out] and biases [L, out]."""
        each = [weight_and_bias(state, f"h.{i}.{name}", of_linear) for i in range(len(scale))]
        return Linear(*map(np.stack, zip(*each, strict=True)))

    def bias(name: str) -> Unit:
        return Unit(Read({"one": jnp.asarray(affine(name).bias[:, None])}, d))

    def normed(name: str) -> dict[str, Norm]:
        return {"stream": Norm(*map(jnp.asarray, affine(name)))}

    scale = config.scales[:, None, None].astype(state["wpe.weight"].dtype)
    query, key, value = (affine("attn.c_attn").columns(slice(i * d, (i + 1) * d)) for i in range(3))
    out = jnp.asarray(affine("attn.c_proj").weight)
    heads = Heads(query.read(scale), key.read(), (Write(value.read(), out),), config.n_head)
    hidden, activation = affine("mlp.c_fc").read(), ACTIVATIONS[config.activation]
    out = jnp.asarray(affine("mlp.c_proj").weight)
    factor = hidden if activation == "normal_cdf" else None
    units = Unit(factor, hidden, out, "stream", activation)
    return (
        Block((heads,), (bias("attn.c_proj"),), normed("ln_1"), {}),
        Block((), (units, bias("mlp.c_proj")), {}, normed("ln_2")),
    )


def weight_and_bias(state: dict[str, np.ndarray], name: str, of_linear: bool = False) -> Linear:
    """A weight, transposed if a matrix is that of a `torch.nn.Linear`, and its bias, or zeros."""
    weight = state[f"{name}.weight"]
    weight = weight.T if of_linear else weight
    return Linear(weight, state.get(f"{name}.bias", np.zeros(weight.shape[-1], weight.dtype)))


def config_of(model: Any, inner: Any) -> Config:
    """What the forward needs of the config of a GPT-2 that it can run."""
    config: Any = getattr(inner, "config", getattr(model, "config", None))
    layers = range(getattr(config, "n_layer", 1))
    names = {
        "wpe.weight",
        "ln_f.weight",
        *(f"h.{i}.{part}.weight" for i in layers for part in PARTS),
    }
    is_gpt2 = hasattr(config, "n_head") and getattr(config, "model_type", "gpt2") == "gpt2"
    if not is_gpt2 or not hasattr(inner, "state_dict") or names - {*inner.state_dict()}:
        raise TypeError(
            "model must be a transformers.GPT2Model or the GPT of nanoGPT with its config, "
            f"got {type(model).__name__}; icl_krr.probes.identify_arrays takes the predictions of "
            "a model of any class, which icl_krr.probes.torch_arrays computes"
        )
    if hasattr(config, "activation_function"):
        activations = {config.activation_function}
    else:
        activations = {_activation_name(getattr(block.mlp, "gelu", None)) for block in inner.h}
    for activation in activations:
        checks.choice("activation_function", activation, tuple(ACTIVATIONS))
    if len(activations) > 1:
        raise ValueError(f"model must have one activation in all blocks, got {sorted(activations)}")
    if getattr(config, "add_cross_attention", False):
        raise ValueError("model must have no cross attention, got add_cross_attention=True")
    modules = inner.modules() if hasattr(inner, "modules") else ()
    epsilons = {module.eps for module in modules if hasattr(module, "eps")}
    for epsilon in epsilons | {getattr(config, "layer_norm_epsilon", 1e-5)}:
        if epsilon != 1e-5:
            raise ValueError(f"layer_norm_epsilon of the model must be 1e-5, got {epsilon}")
    scales = np.ones(config.n_layer)
    if getattr(config, "scale_attn_weights", True):
        scales /= np.sqrt(config.n_embd // config.n_head)
    if getattr(config, "scale_attn_by_inverse_layer_idx", False):
        scales /= np.arange(1, config.n_layer + 1)
    return Config(config.n_head, activations.pop(), scales)


def _activation_name(module: Any) -> str:
    return MODULES.get(getattr(module, "approximate", ""), type(module).__name__.lower())


def linear(name: str, layer: Any) -> Linear:
    """The map of a `torch.nn.Linear`, whose weight is [out, in]."""
    if getattr(getattr(layer, "weight", None), "ndim", 0) != 2 or not hasattr(layer, "bias"):
        raise TypeError(f"{name} must be a torch.nn.Linear, got {type(layer).__name__}")
    weight = array(f"{name}.weight", layer.weight).T
    if layer.bias is None:
        return Linear(weight, np.zeros(weight.shape[1], weight.dtype))
    return Linear(weight, array(f"{name}.bias", layer.bias))


def array(name: str, tensor: Any) -> np.ndarray:
    """The values of a tensor of torch, or of a NumPy array."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in ("float32", "float64"):
        raise TypeError(f"{name} must be float32 or float64, got {dtype}; call model.float()")
    if dtype == "float64" and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError(f"{name} must be float32 if x64 is not enabled, got float64; enable x64")
    return np.asarray(tensor.detach().cpu() if hasattr(tensor, "detach") else tensor)


def check_fits(d: int, state: dict[str, np.ndarray], inward: Linear, outward: Linear) -> None:
    width = inward.weight.shape[1]
    if width != d:
        raise ValueError(f"read_in must map p features to the width {d}, got {width} channels")
    if outward.weight.shape != (d, 1):
        rows, columns = outward.weight.shape
        raise ValueError(f"read_out must map the width {d} to 1 output, got {rows} to {columns}")
    dtypes = {str(part.dtype) for part in (*state.values(), *inward, *outward)}
    if len(dtypes) > 1:
        raise TypeError(f"all weights must have one dtype, got {' and '.join(sorted(dtypes))}")
