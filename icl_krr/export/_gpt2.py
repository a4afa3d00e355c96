"""GPT-2 models of Hugging Face that regress in context, as weights of the one forward."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._core import checks
from ..residual import Layout, Read, Slot
from ..transformer import Block, Heads, Norm, Spec, Transformer, Unit, Weights, Write

ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu"}
"""Names of activations in a GPT-2 config, and ours for the same functions."""


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
    r"""Read a GPT-2 of Hugging Face that regresses in context as a `Transformer`.

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
        model: a `transformers.GPT2Model`, or a model that has one as `transformer`, with float32 or
            float64 weights. Only its config and the values of its weights are read.
        read_in: a `torch.nn.Linear` from p features to the width d.
        read_out: a `torch.nn.Linear` from the width d to one output.

    Returns:
        A `Transformer` in the dtype of the weights. Tasks have at most `n_positions` tokens.

    Raises:
        ValueError: the GPT-2 has cross attention, an activation other than `gelu_new` and `relu`,
            or another epsilon than 1e-5; the maps do not fit; or the weights are float64 and x64 is
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
    model = getattr(model, "transformer", model)
    config = config_of(model)
    state = {name: array(name, tensor) for name, tensor in model.state_dict().items()}
    inward, outward = linear("read_in", read_in), linear("read_out", read_out)
    check_fits(config, state, inward, outward)
    steps, d = blocks(config, state), config.n_embd
    fields = {"x": inward.weight, "y": inward.weight[:1], "one": inward.bias[None]}
    # the aggregator comes first and has a position that nobody reads
    positions = np.pad(state["wpe.weight"], ((1, 0), (0, 0)))
    one = Read({"one": jnp.ones((), positions.dtype)}, 1)
    weights = Weights(
        embedding={"stream": Read(jax.tree.map(jnp.asarray, fields), d), "one": one},
        steps=steps,
        readout=outward.read(),
        positions={"stream": jnp.asarray(positions)},
        final_norm=norm(state, "ln_f"),
    )
    spec = Spec(
        len(inward.weight), causal=True, inclusive=True, tokens="interleaved", aggregator=False
    )
    layout = Layout((Slot("stream", d), Slot("one", 1, kind="data")))
    return Transformer(weights, spec, layout, config.n_layer)


def blocks(config: Any, state: dict[str, np.ndarray]) -> tuple[Block, Block]:
    """The attention and the MLP of all layers, with the layers as first axis."""
    d, layers = config.n_embd, config.n_layer

    def of_layers(name: str) -> np.ndarray:
        return np.stack([state[f"h.{i}.{name}"] for i in range(layers)])

    def affine(name: str) -> Linear:
        return Linear(of_layers(f"{name}.weight"), of_layers(f"{name}.bias"))

    def bias(name: str) -> Unit:
        return Unit(Read({"one": jnp.asarray(of_layers(f"{name}.bias")[:, None])}, d))

    def normed(name: str) -> dict[str, Norm]:
        scale, offset = of_layers(f"{name}.weight"), of_layers(f"{name}.bias")
        return {"stream": Norm(jnp.asarray(scale), jnp.asarray(offset))}

    scale = np.ones((layers, 1, 1), state["wpe.weight"].dtype)
    if config.scale_attn_weights:
        scale /= np.sqrt(d // config.n_head)
    if config.scale_attn_by_inverse_layer_idx:
        scale /= np.arange(1, layers + 1)[:, None, None]
    query, key, value = (affine("attn.c_attn").columns(slice(i * d, (i + 1) * d)) for i in range(3))
    out = jnp.asarray(of_layers("attn.c_proj.weight"))
    heads = Heads(query.read(scale), key.read(), (Write(value.read(), out),), config.n_head)
    units = Unit(
        None,
        affine("mlp.c_fc").read(),
        jnp.asarray(of_layers("mlp.c_proj.weight")),
        "stream",
        ACTIVATIONS[config.activation_function],
    )
    return (
        Block((heads,), (bias("attn.c_proj"),), normed("ln_1"), {}),
        Block((), (units, bias("mlp.c_proj")), {}, normed("ln_2")),
    )


def norm(state: dict[str, np.ndarray], name: str) -> dict[str, Norm]:
    weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
    return {"stream": Norm(jnp.asarray(weight), jnp.asarray(bias))}


def config_of(model: Any) -> Any:
    """The config of a GPT-2 that the forward can run."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "model_type", None) != "gpt2" or not hasattr(model, "state_dict"):
        raise TypeError(
            f"model must be a transformers.GPT2Model, got {type(model).__name__}; "
            "icl_krr.probes.identify_arrays takes the predictions of any network"
        )
    checks.choice("activation_function", config.activation_function, tuple(ACTIVATIONS))
    if config.add_cross_attention:
        raise ValueError("model must have no cross attention, got add_cross_attention=True")
    if config.layer_norm_epsilon != 1e-5:
        raise ValueError(
            f"layer_norm_epsilon of the model must be 1e-5, got {config.layer_norm_epsilon}"
        )
    return config


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


def check_fits(config: Any, state: dict[str, np.ndarray], inward: Linear, outward: Linear) -> None:
    d, width = config.n_embd, inward.weight.shape[1]
    if width != d:
        raise ValueError(f"read_in must map p features to the width {d}, got {width} channels")
    if outward.weight.shape != (d, 1):
        rows, columns = outward.weight.shape
        raise ValueError(f"read_out must map the width {d} to 1 output, got {rows} to {columns}")
    dtypes = {str(part.dtype) for part in (*state.values(), *inward, *outward)}
    if len(dtypes) > 1:
        raise TypeError(f"all weights must have one dtype, got {' and '.join(sorted(dtypes))}")
