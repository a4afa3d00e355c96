"""Constructions as stock T5 encoders: weights that Hugging Face's own code loads and runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..files import replace
from ..residual import embed, num_tokens, visible
from ..residual.tokens import slot_of_stream, tokens_of_role
from ..tasks import Task
from ..transformer import Transformer
from ..transformer.evaluate import check_compatible
from .native import load, save, write
from .t5_weights import CONSTANT, Channels, check_stock, t5_config_and_tensors

LARGEST = 2.0**27
"""Of a token's norm: the squares of one twice as large are felt beside CONSTANT^2 in float32."""


@dataclass(frozen=True, eq=False)
class T5:
    """What goes into an exported T5, and what its hidden states mean; `to_t5` makes them.

    `model` is the transformer that was exported. Hidden states are [b, T, d_model], those of
    NumPy, or of torch where they are on the CPU and need no gradient; $T = 1 + n + q$.

    >>> import icl_krr as ik
    >>> t5 = T5(ik.constructions.nadaraya_watson(ik.Exponential(), num_features=1))
    >>> task = ik.Task(x=jnp.ones((2, 1)), y=jnp.array([3.0, 4.0]), x_query=jnp.ones((1, 1)))
    >>> t5.slot(t5.embed(task), "y").ravel().tolist()
    [0.0, 3.0, 4.0, 0.0]
    """

    model: Transformer

    def embed(self, task: Task) -> np.ndarray:
        """The `inputs_embeds` of a task, [1, T, d_model], or of a batch of b, [b, T, d_model].

        In the model's dtype. No attention mask is needed: who may be read stands in a channel.

        Raises ValueError for a task that does not fit the model, or a token of norm above $2^{27}$.
        """
        batched = np.ndim(getattr(task, "x", 0)) == 3
        check_compatible(self.model, task, batch=int(batched))
        if task.num_outputs != self.model.spec.num_outputs:
            raise ValueError(
                f"task must have num_outputs = {self.model.spec.num_outputs} as the model, "
                f"got {task.num_outputs}; build the model with num_outputs={task.num_outputs}"
            )
        tasks = task if batched else jax.tree.map(lambda field: field[None], task)
        return within_range("task", np.asarray(lay_out_tokens(self.model, tasks)))

    def slot(self, hidden: Any, name: str) -> Any:
        """A slot of the layout in hidden states [..., T, d_model]: [..., T, width], as they are.

        Raises ValueError for a name that the layout does not have.
        """
        return hidden[..., self.model.layout.channels(name)]

    def read_out(self, hidden: Any, task: Task) -> np.ndarray:
        """The prediction by the last hidden state, [q] or [q, r], [b, ...] for a batch.

        Raises ValueError for hidden states of another shape than `embed` gives for the task,
        and where a token's norm is above $2^{27}$.
        """
        layout, readout = self.model.layout, self.model.weights.readout
        single = task.x.ndim == 2
        b, d_model = 1 if single else len(task.x), Channels.of(layout).d_model
        found, needed = np.asarray(hidden), (b, num_tokens(task), d_model)
        if found.shape != needed:
            raise ValueError(f"hidden must be {list(needed)}, got shape {list(found.shape)}")
        asked = within_range("hidden", found)[:, tokens_of_role(("query",), task)].reshape(
            -1, d_model
        )
        stream = {name: jnp.asarray(self.slot(asked, name)) for name in layout.names}
        if readout.slots == {"stream"}:
            stream = {"stream": jnp.asarray(asked[:, : layout.width])}
        values = np.asarray(readout(stream)).reshape(b, task.num_queries, -1)
        values = values[..., 0] if task.y.ndim == task.x.ndim - 1 else values
        return values[0] if single else values


def to_t5(model: Transformer, folder: str | Path) -> T5:
    r"""Write a construction to a folder as a T5 encoder; returns what embeds and reads it out.

    `config.json` and `model.safetensors` are for `transformers.T5EncoderModel`, unmodified;
    `icl_krr.safetensors` beside them is the model as `save` writes it. Writing needs neither
    torch nor transformers. In a notebook that has them (`pip install "icl_krr[t5]" nnsight`),
    nnsight reads alpha off every layer:

        import jax, nnsight, torch
        import icl_krr as ik
        from transformers import T5EncoderModel

        process = ik.tasks.GaussianProcess(ik.Exponential(0.5), inputs="sphere")
        task = ik.tasks.sample(jax.random.key(0), process)
        build = ik.constructions.richardson
        options = {"num_features": 2, "ridge": 0.1, "steps": 8}
        exact = build(ik.Gaussian(), **options)
        tables = ik.ReLU(width=128, bound=ik.operand_bounds(exact, task))
        model = build(ik.Gaussian(), **options, arithmetic=tables)

        t5 = ik.export.to_t5(model, "richardson-t5")
        network = nnsight.NNsight(T5EncoderModel.from_pretrained("richardson-t5"))
        with torch.no_grad(), network.trace(inputs_embeds=torch.tensor(t5.embed(task))):
            layers = network.encoder.block
            alphas = nnsight.save([t5.slot(layer.output[0], "alpha") for layer in layers])
            last = network.output.last_hidden_state.save()
        prediction = t5.read_out(last, task)  # that of ik.predict(model, task)

    T5 is bidirectional, does not scale its logits and has no biases: the one thing of its own
    is RMSNorm. Every token holds $C = 2^{40}$ in one more channel, d_model $d$ is filled up with
    zeros to a power of 4, and the norm's weight is $C / \sqrt{d}$: the mean of squares in float32
    is $C^2 / d$ to the bit, its root a power of 2, and RMSNorm the identity, bit for bit,
    for tokens of norm at most $2^{27}$ whose channels are 0 or at least $2^{-86}$ (below, float32
    underflows). A token beyond it is refused on its way in and out. Tokens that nobody may
    read, queries and padding, hold 1 in a channel that takes $2^{20}$ off their logits: their
    weight underflows to 0 as long as logits differ by less than $2^{20} - 1000$.

    A table rounds relative to its bound, so in float32 the sink should be that of the data,
    `icl_krr.Softmax(log_sink=icl_krr.theory.log_sink(kernel, task))`: on the default task, eight
    Chebyshev steps at ridge 0.3 then have bounds of at most 8 and predictions of size 1.4 that are
    1e-5 from ours, and without it 220 and 0.2. A model whose tables have run out, such as conjugate
    gradient past convergence, is exported as it is.

    `model` is float32 or float64, and so is the network; transformers 4 must be told by
    `torch_dtype=torch.float64`. Its softmax is in float32 in 4.44, which leaves an error of
    2e-7 of the float64 stream in one layer; in 5.23 it is not.

    Raises ValueError for what T5 has not: linear attention, gated or GELU units, a causal mask,
    interleaved tokens, LayerNorm, positions; and for weights that are no finite numbers. Nothing is
    written then.

    Source: Raffel et al., 2020, arXiv:1910.10683, sections 2.1 and 3.1.1.

    >>> import icl_krr as ik
    >>> from tempfile import TemporaryDirectory
    >>> head = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=1)
    >>> with TemporaryDirectory() as folder:
    ...     _ = to_t5(head, folder)
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['config.json', 'icl_krr.safetensors', 'model.safetensors']
    """
    check_stock(model)
    config, tensors = t5_config_and_tensors(model)
    if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
        raise ValueError("model must have finite weights, got some that are not")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "model.safetensors", tensors, {"format": "pt"})
    save(folder / "icl_krr.safetensors", model)
    replace(folder / "config.json", json.dumps(config, indent=2).encode())
    return T5(model)


def open_t5(folder: str | Path) -> T5:
    """What `to_t5` returned when it wrote the folder.

    Raises as `load` does.

    >>> import icl_krr as ik
    >>> from tempfile import TemporaryDirectory
    >>> plain = {"activation": "relu", "layer_norm": False}
    >>> architecture = ik.Architecture(num_features=1, width=8, depth=1, heads=2, **plain)
    >>> with TemporaryDirectory() as folder:
    ...     _ = to_t5(ik.init(jax.random.key(0), architecture), folder)
    ...     sorted(path.name for path in Path(folder).iterdir())
    ...     t5 = open_t5(folder)
    ['config.json', 'icl_krr.safetensors', 'model.safetensors']
    >>> task = ik.Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> hidden = t5.embed(task)
    >>> hidden.shape, t5.slot(hidden, "one").ravel().tolist(), t5.read_out(hidden, task).shape
    ((1, 3, 16), [1.0, 1.0, 1.0], (1,))
    """
    return T5(load(Path(folder) / "icl_krr.safetensors"))


@jax.jit
def lay_out_tokens(model: Transformer, tasks: Task) -> jax.Array:
    """The slots side by side, the flag, the constant and zeros, [b, T, d_model]."""
    at = Channels.of(model.layout)

    def one(task: Task) -> jax.Array:
        stream = embed(model.weights.embedding, task)
        parts = [slot_of_stream(stream, model.layout, name) for name in model.layout.names]
        hidden = ~visible(task)[:, None]
        told = jnp.concatenate([*parts, hidden.astype(model.dtype)], axis=1)
        padded = jnp.pad(told, ((0, 0), (0, at.d_model - told.shape[1])))
        return padded.at[:, at.constant].set(CONSTANT)

    return jax.vmap(one)(tasks)


def within_range(name: str, tokens: np.ndarray) -> np.ndarray:
    own = np.where(tokens == CONSTANT, 0, tokens).astype(np.float64)
    largest = np.max(np.linalg.norm(own, axis=-1))
    if largest > LARGEST:
        raise ValueError(
            f"{name} must have tokens of norm at most 2^27, where T5's RMSNorm is the identity, "
            f"got {largest:.3g}; scale y"
        )
    return tokens
