"""Models outside of JAX, such as PyTorch networks, for probes that differentiate."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from ... import Task
from ..._core import checks
from ...tasks._batches import unstack
from ...tasks._task import check_axes, support_mask
from .derivatives import LayerPredictions

STEP = 1e-3
"""The step of the differences in y, relative to its largest magnitude."""

ArrayPredictions = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]
"""Function from arrays x [n, p], y [n], x_query [q, p] to predictions of layers, [L + 1, q]."""


def array_layer_predictions(function: ArrayPredictions, layers: int) -> LayerPredictions:
    r"""Make layer predictions from a function of NumPy arrays, which JAX cannot differentiate.

    The derivative in y is $(f(y + h e_j) - f(y - h e_j)) / 2h$ with h = 0.001 max |y|, so a hat
    matrix takes 2 n calls. It is exact up to rounding for a model that is linear in y. Derivatives
    in other fields of the task are refused.

    Args:
        function: function of `x` [n, p], `y` [n] and `x_query` [q, p] in the dtype of the task, to
            the predictions before the first layer and after every layer, [layers + 1, q].
        layers: number L of layers.

    Returns:
        A function of a `Task` with y [n], for `identify`, `hat_matrix` and other probes. JAX can
        jit, vmap and differentiate it. It calls `function` once for each task.

    >>> import icl_krr as ik
    >>> task = ik.Task(x=[[1.0]], y=[3.0], x_query=[[2.0]])
    >>> slope = lambda x, y, x_query: [0 * x_query[:, 0], x_query @ (x.T @ y)]
    >>> predictions = array_layer_predictions(slope, layers=1)
    >>> predictions(task).tolist(), ik.probes.hat_matrix(predictions, task)[1].round(3).tolist()
    ([[0.0], [6.0]], [[2.0]])
    """
    checks.function("function", function)
    checks.count("layers", layers, minimum=0)

    def called(run: Callable[..., np.ndarray], *arrays: jax.Array, more: tuple = ()) -> jax.Array:
        shape = jax.ShapeDtypeStruct((layers + 1, len(arrays[2]), *more), arrays[1].dtype)
        return jax.pure_callback(run, shape, *arrays, vmap_method="sequential")

    @jax.custom_jvp
    def predict(x: jax.Array, y: jax.Array, x_query: jax.Array) -> jax.Array:
        return called(read, x, y, x_query)

    def read(*arrays: Any) -> np.ndarray:
        x, y, x_query = map(np.array, arrays)
        predictions = np.asarray(function(x, y, x_query))
        shape = (layers + 1, len(x_query))
        if predictions.shape != shape:
            raise ValueError(
                f"function must return predictions [layers + 1, q] = {list(shape)}, "
                f"got shape {list(predictions.shape)}"
            )
        return predictions.astype(y.dtype)

    def differences(x: Any, y: Any, x_query: Any) -> np.ndarray:
        y = np.asarray(y)
        step = STEP * (np.abs(y).max() or 1)
        shifts = step * np.eye(len(y), dtype=y.dtype)
        each = [read(x, y + shift, x_query) - read(x, y - shift, x_query) for shift in shifts]
        return np.stack(each, axis=-1).astype(y.dtype) / y.dtype.type(2 * step)

    @partial(predict.defjvp, symbolic_zeros=True)
    def derive(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        if not all(isinstance(tangents[i], SymbolicZero) for i in (0, 2)):
            raise ValueError(
                "a function of arrays has no derivative in x or x_query; write the model in JAX"
            )
        value = predict(*primals)
        if isinstance(tangents[1], SymbolicZero):
            return value, jnp.zeros_like(value)
        hat = called(differences, *primals, more=(len(primals[1]),))
        return value, jnp.einsum("lqn,n->lq", hat, tangents[1], precision="highest")

    return lambda task: predict(task.x, task.y, task.x_query)


TorchPredictions = Callable[[Any, Any, Any], Any]
"""The same of torch tensors, or to the streams at the queries [L + 1, q, d]."""


def torch_arrays(function: TorchPredictions, tasks: Task) -> tuple[np.ndarray, np.ndarray]:
    """Compute predictions or streams of a PyTorch model, and their derivatives in the supports' y.

    `torch.func` differentiates the function, one task after the other: by `jacfwd` if there are
    fewer y than values and all operations have forward derivatives, otherwise by `jacrev`. So it
    must not use `torch.no_grad`, `detach` or NumPy. Masked supports are left out, and their
    derivatives are 0. Tasks in float64 need a model in float64 (`model.double()`).

    Args:
        function: function of the tensors `x` [n, p], `y` [n] or [n, r], `x_query` [q, p], in the
            dtype of the tasks, to the predictions before the first layer and after every layer,
            [L + 1, q] or [L + 1, q, r], or to the streams at the queries [L + 1, q, d].

    Returns:
        The values of all tasks [b, L + 1, ...] and their derivatives in y [b, L + 1, ..., n] or
        [b, L + 1, ..., n, r], NumPy arrays in the dtype of the tasks.

    >>> import torch
    >>> import icl_krr as ik
    >>> def slope(x, y, x_query):
    ...     return torch.stack([0 * x_query[:, 0], x_query @ (x.T @ y)])
    >>> x = np.ones((2, 3, 1), np.float32)  # two tasks
    >>> predictions, hats = torch_arrays(slope, ik.Task(x=x, y=x[..., 0], x_query=x))
    >>> predictions[0, :, 0].tolist(), hats[0, 1, 0].tolist()
    ([0.0, 3.0], [1.0, 1.0, 1.0])

    Hooks take the streams of any network from its blocks (notebooks/08_a_pytorch_model.ipynb).
    """
    checks.function("function", function)
    check_axes(tasks, 1, "tasks")
    torch = _import_torch()
    arrays = [arrays_of(torch, function, task) for task in unstack(tasks)]
    shapes = {values.shape for values, _ in arrays}
    if len(shapes) > 1:
        raise ValueError(
            f"function must return one number of layers for every task, got shapes {sorted(shapes)}"
        )
    values, hats = (np.stack(parts) for parts in zip(*arrays, strict=True))
    return values, hats


def arrays_of(torch: Any, function: TorchPredictions, task: Task) -> tuple[np.ndarray, np.ndarray]:
    keep = np.ones(task.num_supports, bool) if task.mask is None else task.mask
    x, y, x_query = (torch.tensor(part) for part in (task.x[keep], task.y[keep], task.x_query))
    values = function(x, y, x_query)
    if not isinstance(values, torch.Tensor):
        raise TypeError(f"function must return a torch.Tensor, got {type(values).__name__}")
    shape = (len(x_query), *y.shape[1:])
    if values.shape[1 : len(shape) + 1] != shape:
        expected = "[L + 1, q, r]" if y.ndim > 1 else "[L + 1, q] or streams [L + 1, q, d]"
        raise ValueError(
            f"function must return predictions {expected} with q = {len(x_query)}, "
            f"got shape {list(values.shape)}"
        )

    def values_at(y: Any) -> Any:
        return function(x, y, x_query)

    slopes = None
    if y.numel() < values.numel():  # forward mode needs fewer passes
        with contextlib.suppress(NotImplementedError):  # of fused attention, for example
            slopes = torch.func.jacfwd(values_at)(y)
    slopes = torch.func.jacrev(values_at)(y) if slopes is None else slopes
    dtype, axes = task.y.dtype, values.ndim
    hats = np.zeros((*values.shape, *task.y.shape), dtype)
    hats[(slice(None),) * axes + (keep,)] = slopes.detach().numpy()
    return values.detach().numpy().astype(dtype), hats


def decoder_layer_predictions(
    model: Any, read_in: Any, read_out: Any, final_norm: Any = None
) -> TorchPredictions:
    r"""Make the layers' predictions of a Hugging Face decoder that regresses in context.

    The tokens are $x_1, y_1, x_2, y_2, \dots, x_{query}$, with y in the first of p channels (Garg
    et al., 2022, arXiv:2208.01066), and each query has a sequence of its own. The prediction of a
    layer is the logit lens (nostalgebraist, 2020): `read_out` of the final norm of the hidden
    state at the query; that of the last layer is the model's own. A model loaded with
    `attn_implementation="eager"` is the fastest: torch batches no derivatives of fused attention.

    Args:
        model: a decoder that takes `inputs_embeds` and returns `hidden_states`, the last of which
            is the output of the final norm, such as `transformers.GPT2Model` or
            `transformers.LlamaModel`. It must be in evaluation mode, without dropout.
        read_in, read_out: modules from p features to the width, and from the width to one output.
        final_norm: module for the norm before the readout; default: `model.ln_f` or `model.norm`.

    Returns:
        A function for `torch_arrays`: tensors x [n, p], y [n], x_query [q, p] to [L + 1, q].

    >>> import torch, transformers
    >>> import numpy as np
    >>> import icl_krr as ik
    >>> config = transformers.GPT2Config(n_embd=64, n_layer=4, n_head=4, n_positions=32)
    >>> network = transformers.GPT2Model(config).eval()
    >>> read_in, read_out = torch.nn.Linear(3, 64), torch.nn.Linear(64, 1)
    >>> function = ik.probes.decoder_layer_predictions(network, read_in, read_out)
    >>> x = np.ones((2, 5, 3), np.float32)  # two tasks
    >>> tasks = ik.Task(x=x, y=x[..., 0], x_query=x[:, :1])
    >>> predictions, hats = ik.probes.torch_arrays(function, tasks)
    >>> predictions.shape, hats.shape
    ((2, 5, 1), (2, 5, 1, 5))
    """
    if final_norm is None:
        final_norm = getattr(model, "ln_f", getattr(model, "norm", None))
    modules = {"model": model, "read_in": read_in, "read_out": read_out, "final_norm": final_norm}
    for name, module in modules.items():
        checks.function(name, module)
    if getattr(model, "training", False):
        raise ValueError("model must be in evaluation mode, got training mode; call model.eval()")
    torch = _import_torch()

    def predict(x: Any, y: Any, x_query: Any) -> Any:
        if y.ndim > 1:
            raise ValueError(f"y must be [n], with one output, got shape {list(y.shape)}")
        wide = torch.nn.functional.pad(y[:, None], (0, x.shape[1] - 1))
        supports = torch.stack([x, wide], dim=1).reshape(-1, x.shape[1])
        tokens = torch.cat([supports.expand(len(x_query), -1, -1), x_query[:, None]], dim=1)
        outputs = model(inputs_embeds=read_in(tokens), output_hidden_states=True, use_cache=False)
        *before, last = (hidden[:, -1] for hidden in outputs.hidden_states)
        return read_out(torch.stack([*map(final_norm, before), last]))[..., 0]

    return predict


def _import_torch() -> Any:
    try:
        import torch
    except ImportError:
        raise ImportError(
            "a PyTorch model needs torch, which is not installed; "
            'run pip install torch, or pip install "icl_krr[t5]"'
        ) from None
    return torch


def prefixes(tasks: Task, positions: tuple[int, ...]) -> Task:
    """Make a task of each position of each context, with the earlier supports and one query.

    The query is the input at the position. At position i, a causal model predicts what it would
    predict for the same query after i supports. So its predictions at several positions of b
    contexts, in this order, are those of one batch for `identify_arrays`: first all positions of
    the first context.

    Args:
        positions: numbers i of supports before the query, from 0 to n - 1. Masks hide the others.

    >>> import numpy as np
    >>> import icl_krr as ik
    >>> x = np.arange(3.0).reshape(1, 3, 1)
    >>> prefix = prefixes(ik.Task(x=x, y=x[..., 0], x_query=x), (1, 2))
    >>> prefix.mask.tolist(), prefix.x_query[:, 0, 0].tolist()
    ([[True, False, False], [True, True, False]], [1.0, 2.0])
    """
    check_axes(tasks, 1, "tasks")
    checks.instance("positions", positions, (tuple, list), "a tuple of integers")
    count = tasks.num_supports
    for position in positions:
        checks.count("positions", position, 0)
        if position >= count:
            raise ValueError(f"positions must be < n = {count}, got {position}")
    if not positions:
        raise ValueError("positions must have at least one number, got none")
    return _cut_before(tasks, jax.device_put(np.asarray(positions)))


@jax.jit
def _cut_before(tasks: Task, at: jax.Array) -> Task:
    def of_position(task: Task, position: jax.Array) -> Task:
        return task.replace(
            mask=support_mask(task) & (jnp.arange(task.num_supports) < position),
            x_query=task.x[position][None],
            y_query=task.y[position][None],
        )

    each = jax.vmap(lambda task: jax.vmap(lambda i: of_position(task, i))(at))(tasks)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), each)
