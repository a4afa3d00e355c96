"""Export constructions as T5 encoders that the T5 code of Hugging Face loads and runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._core import checks
from .._core.constants import as_jax
from .._core.files import replace
from .._core.readable import readable
from ..residual import embed, key_mask, num_tokens
from ..residual._tokens import get_slot, role_slice
from ..tasks import Task
from ..transformer import Transformer
from ..transformer._run_plan import check_compatible
from ._native import load, save, write
from ._t5_weights import CONSTANT, Channels, check_stock, t5_config_and_tensors

_LARGEST_NORM = 2.0**27
"""Largest norm of a token. In float32, its square is too small to change CONSTANT^2."""


@readable
@dataclass(frozen=True, eq=False)
class T5:
    """Convert tasks to inputs of an exported T5 encoder, and its hidden states to predictions.

    `to_t5` and `open_t5` return an object of this class. Hidden states are arrays [b, T, d_model]
    with $T = 1 + n + q$ (b = 1 for one task). They are NumPy arrays, or torch tensors on the CPU
    that do not require a gradient.

    >>> import icl_krr as ik
    >>> t5 = T5(ik.constructions.nadaraya_watson(ik.Exponential(), num_features=1))
    >>> task = ik.Task(x=[[1.0], [1.0]], y=[3.0, 4.0], x_query=[[1.0]])
    >>> t5.slot(t5.embed(task), "y").ravel().tolist()
    [0.0, 3.0, 4.0, 0.0]
    """

    model: Transformer

    def embed(self, task: Task) -> np.ndarray:
        """Embed a task as `inputs_embeds` of the T5 encoder.

        No attention mask is needed, because a channel of the tokens stores the mask. The tokens
        [b, T, d_model] have the dtype of the model.

        Raises:
            ValueError: the task does not fit the model, or a token has a norm above $2^{27}$.
            TypeError: the dtype of the task is float16 or wider than the dtype of the model.
        """
        batched = np.ndim(getattr(task, "x", 0)) == 3
        check_compatible(self.model, task, batch=int(batched))
        if task.num_outputs != self.model.spec.num_outputs:
            raise ValueError(
                f"task must have num_outputs = {self.model.spec.num_outputs} to fit the model, "
                f"got {task.num_outputs}; build the model with num_outputs={task.num_outputs}"
            )
        tasks = task if batched else jax.tree.map(lambda field: np.asarray(field)[None], task)
        return _check_norms("task", np.asarray(_embed_tokens(self.model, tasks)))

    def slot(self, hidden: Any, name: str) -> Any:
        """Take the channels [..., T, width] of a slot from hidden states of any layer.

        Args:
            hidden: array or tensor [..., T, d_model].
            name: a slot of `model.layout`.
        """
        return hidden[..., self.model.layout.channels(name)]

    def read_out(self, hidden: Any, task: Task, name: str = "prediction") -> np.ndarray:
        """Read the prediction, or a further readout, from the last hidden state.

        Args:
            hidden: last hidden state [b, T, d_model] of the T5 encoder.
            task: the task, or the batch of tasks, that was embedded.
            name: name of the readout (see `icl_krr.readouts`).

        Returns:
            The prediction at the queries, [q] or [q, r] for one task, [b, q] or [b, q, r] for a
            batch. A further readout is [q, width] or [b, q, width].

        Raises:
            ValueError: `hidden` does not have the shape that `embed` gives for the task, or a token
                has a norm above $2^{27}$.
        """
        layout, weights = self.model.layout, self.model.weights
        reads = {"prediction": weights.readout, **weights.readouts}
        checks.choice("name", name, tuple(reads))
        readout = reads[name]
        single = task.x.ndim == 2
        b, d_model = 1 if single else len(task.x), Channels.of(layout).d_model
        states = np.asarray(hidden)
        expected = (b, num_tokens(task), d_model)
        if states.shape != expected:
            raise ValueError(f"hidden must be {list(expected)}, got shape {list(states.shape)}")
        _check_norms("hidden", states)
        queries = states[:, role_slice(("query",), task)].reshape(-1, d_model)
        stream = {name: as_jax(self.slot(queries, name)) for name in layout.names}
        if readout.slots == {"stream"}:
            stream = {"stream": as_jax(queries[:, : layout.width])}
        values = np.asarray(readout(stream)).reshape(b, task.num_queries, -1)
        flat = name == "prediction" and task.y.ndim == task.x.ndim - 1
        values = values[..., 0] if flat else values
        return values[0] if single else values


def to_t5(folder: str | Path, model: Transformer) -> T5:
    r"""Write a construction to a folder as a T5 encoder.

    `transformers.T5EncoderModel`, unmodified, loads `config.json` and `model.safetensors`. The file
    `icl_krr.safetensors` next to them holds the model as `save` writes it. Writing needs neither
    torch nor transformers. In a notebook that has both (`pip install "icl_krr[t5]"`),
    nnsight reads alpha from every layer:

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

        t5 = ik.export.to_t5("richardson-t5", model)
        network = nnsight.NNsight(T5EncoderModel.from_pretrained("richardson-t5"))
        with torch.no_grad(), network.trace(inputs_embeds=torch.tensor(t5.embed(task))):
            layers = network.encoder.block
            alphas = nnsight.save([t5.slot(layer.output[0], "alpha") for layer in layers])
            last = network.output.last_hidden_state.save()
        prediction = t5.read_out(last, task)  # equals ik.predict(model, task) up to rounding

    Like our forward pass, T5 attends in both directions, does not scale its logits and has no
    biases. The only difference is RMSNorm, which the export turns into the identity. One additional
    channel of every token contains $C = 2^{40}$. Zero channels extend $d$, the `d_model` of T5, to
    a power of 4. The weight of the norm is $C / \sqrt{d}$. In float32, the mean of squares is then
    exactly $C^2 / d$ and its root is a power of 2. RMSNorm changes no bit of a token whose norm is
    at most $2^{27}$ and whose channels are 0 or at least $2^{-86}$ in magnitude (the squares of
    smaller channels underflow in float32). `embed` and `read_out` raise ValueError for a token with
    a larger norm.

    Queries and padding must not be read as keys. An additional channel is 1 at these tokens and 0
    at all others. Every head subtracts $2^{20}$ times this channel from the logits. The attention
    weights of these tokens then underflow to 0 if the original logits differ by less than
    $2^{20} - 1000$.

    The rounding error of a ReLU table is proportional to its bound. In float32, choose the
    attention sink from the data, with
    `icl_krr.Softmax(log_sink=icl_krr.theory.log_sink(kernel, task))`: without it, bounds may be 30
    times as large. `to_t5` does not check whether operands exceed the bounds of their tables.
    Operands are too large, for example, if conjugate gradient continues after convergence.

    The network has the dtype of the model. In transformers 4, load a float64 network with
    `torch_dtype=torch.float64`; its softmax is in float32.

    Args:
        model: it must have softmax attention in both directions, one token per support, and only
            linear and ReLU units without gates (build a construction with
            `arithmetic=icl_krr.ReLU(...)`). It must not have LayerNorm or positions.

    Raises:
        ValueError: a T5 encoder cannot represent the model, a weight is NaN or infinite, or the
            model is float64 and x64 is not enabled. No file is written.

    Source: Raffel et al., 2020, arXiv:1910.10683, sections 2.1 and 3.1.1.

    >>> import icl_krr as ik
    >>> from tempfile import TemporaryDirectory
    >>> head = ik.constructions.nadaraya_watson(ik.Exponential(), num_features=1)
    >>> with TemporaryDirectory() as folder:
    ...     _ = to_t5(folder, head)
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['config.json', 'icl_krr.safetensors', 'model.safetensors']
    """
    check_stock(model)
    folder = checks.path("folder", folder)
    config, tensors = t5_config_and_tensors(model)
    if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
        raise ValueError("model must have finite weights, got NaN or infinite weights")
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "model.safetensors", tensors, {"format": "pt"})
    save(folder / "icl_krr.safetensors", model)
    replace(folder / "config.json", json.dumps(config, indent=2).encode())
    return T5(model)


def open_t5(folder: str | Path) -> T5:
    """Open a folder that `to_t5` wrote, by its file `icl_krr.safetensors` (see `load`).

    >>> import icl_krr as ik
    >>> from tempfile import TemporaryDirectory
    >>> plain = {"activation": "relu", "layer_norm": False}
    >>> architecture = ik.Architecture(num_features=1, width=8, depth=1, heads=2, **plain)
    >>> with TemporaryDirectory() as folder:
    ...     _ = to_t5(folder, ik.init(jax.random.key(0), architecture))
    ...     sorted(path.name for path in Path(folder).iterdir())
    ...     t5 = open_t5(folder)
    ['config.json', 'icl_krr.safetensors', 'model.safetensors']
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> hidden = t5.embed(task)
    >>> hidden.shape, t5.slot(hidden, "one").ravel().tolist(), t5.read_out(hidden, task).shape
    ((1, 3, 16), [1.0, 1.0, 1.0], (1,))
    """
    return T5(load(checks.path("folder", folder) / "icl_krr.safetensors"))


@jax.jit
def _embed_tokens(model: Transformer, tasks: Task) -> jax.Array:
    """The tokens [b, T, d_model]: slots, flag of queries and padding, constant, and zeros."""
    at = Channels.of(model.layout)

    def embed_one(task: Task) -> jax.Array:
        stream = embed(model.weights.embedding, task, centred=model.spec.centred)
        parts = [get_slot(stream, model.layout, name) for name in model.layout.names]
        not_key = ~key_mask(task)[:, None]
        inputs = jnp.concatenate([*parts, not_key.astype(model.dtype)], axis=1)
        padded = jnp.pad(inputs, ((0, 0), (0, at.d_model - inputs.shape[1])))
        return padded.at[:, at.constant].set(CONSTANT)

    return jax.vmap(embed_one)(tasks)


def _check_norms(name: str, tokens: np.ndarray) -> np.ndarray:
    values = np.where(tokens == CONSTANT, 0, tokens).astype(np.float64)
    largest = np.max(np.linalg.norm(values, axis=-1))
    if not largest <= _LARGEST_NORM:  # NaN is not
        raise ValueError(
            f"{name} must have tokens of norm at most 2^27, so that T5's RMSNorm is the identity, "
            f"got norm {largest:.3g}; scale y down"
        )
    return tokens
