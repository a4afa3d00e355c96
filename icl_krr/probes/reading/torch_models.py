"""Answers and hat matrices of PyTorch models, for `identify_arrays`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import checks
from ...tasks import Task
from ...tasks.batches import each_task
from ...tasks.task import check_axes

TorchAnswers = Callable[[Any, Any, Any], Any]
"""Function from torch tensors x [n, p], y [n], x_query [q, p] to predictions of layers, [L+1, q]"""


def torch_arrays(function: TorchAnswers, tasks: Task) -> tuple[np.ndarray, np.ndarray]:
    """Compute the layers' predictions of a PyTorch model, and their derivatives in the supports' y.

    `torch.func.jacrev` differentiates the function, one task after the other. The function must be
    differentiable in y by torch: without `torch.no_grad`, `detach` or NumPy. Masked supports are
    left out of the tensors, so contexts may have different lengths; their derivatives are 0. Tasks
    in float64 need a model in float64 (`model.double()`).

    Args:
        function: function of the tensors `x` [n, p], `y` [n] or [n, r], `x_query` [q, p], in the
            dtype of the tasks, to the predictions before the first layer and after every layer,
            [L + 1, q] or [L + 1, q, r].
        tasks: a batch of b tasks with n supports and q queries.

    Returns:
        The answers [b, L + 1, q] and the hat matrices [b, L + 1, q, n], NumPy arrays in the dtype
        of the tasks. For y [b, n, r] they are [b, L + 1, q, r] and [b, L + 1, q, r, n, r].

    Raises:
        ImportError: torch is not installed.
        TypeError: `function` is not a function, or returns something else than a tensor.
        ValueError: `tasks` is not a batch, or the predictions have another shape.

    >>> import torch
    >>> import icl_krr as ik
    >>> def slope(x, y, x_query):
    ...     return torch.stack([0 * x_query[:, 0], x_query @ (x.T @ y)])
    >>> x = np.ones((2, 3, 1), np.float32)  # two tasks
    >>> answers, hats = torch_arrays(slope, ik.Task(x=x, y=x[..., 0], x_query=x))
    >>> answers[0, :, 0].tolist(), hats[0, 1, 0].tolist()
    ([0.0, 3.0], [1.0, 1.0, 1.0])
    """
    checks.function("function", function)
    check_axes(tasks, 1, "tasks")
    torch = import_torch()
    found = [arrays_of(torch, function, task) for task in each_task(tasks)]
    shapes = {answers.shape for answers, _ in found}
    if len(shapes) > 1:
        raise ValueError(
            f"function must return as many layers for every task, got shapes {sorted(shapes)}"
        )
    answers, hats = (np.stack(parts) for parts in zip(*found, strict=True))
    return answers, hats


def arrays_of(torch: Any, function: TorchAnswers, task: Task) -> tuple[np.ndarray, np.ndarray]:
    keep = np.ones(task.num_supports, bool) if task.mask is None else task.mask
    x, y, x_query = (torch.tensor(part) for part in (task.x[keep], task.y[keep], task.x_query))

    def twice(y: Any) -> tuple[Any, Any]:
        answers = function(x, y, x_query)
        if not isinstance(answers, torch.Tensor):
            raise TypeError(f"function must return a torch.Tensor, got {type(answers).__name__}")
        if answers.ndim < 1 or answers.shape[1:] != (len(x_query), *y.shape[1:]):
            wanted = "[L + 1, q, r]" if y.ndim > 1 else "[L + 1, q]"
            raise ValueError(
                f"function must return predictions {wanted} with q = {len(x_query)}, "
                f"got shape {list(answers.shape)}"
            )
        return answers, answers

    slopes, answers = torch.func.jacrev(twice, has_aux=True)(y)
    dtype, axes = task.y.dtype, answers.ndim
    hats = np.zeros((*answers.shape, *task.y.shape), dtype)
    hats[(slice(None),) * axes + (keep,)] = slopes.detach().numpy()
    return answers.detach().numpy().astype(dtype), hats


def decoder_answers(
    model: Any, read_in: Any, read_out: Any, final_norm: Any = None
) -> TorchAnswers:
    r"""Make the layers' predictions of a Hugging Face decoder that regresses in context.

    The tokens are $x_1, y_1, x_2, y_2, \dots, x_{query}$, with y in the first of p channels (Garg
    et al., 2022), and each query has a sequence of its own. The prediction of a layer is the
    logit lens: `read_out` of the final norm of the hidden state at the query. The last layer is
    the model's own prediction. A model that was loaded with `attn_implementation="eager"` is the
    fastest, because torch does not batch the derivatives of its fused attention.

    Args:
        model: a decoder that takes `inputs_embeds` and returns `hidden_states`, of which the last
            follows the final norm, such as `transformers.GPT2Model` or `transformers.LlamaModel`.
            It must be in evaluation mode, without dropout.
        read_in: module from p features to the width, such as a `torch.nn.Linear`.
        read_out: module from the width to one output.
        final_norm: module for the norm before the read-out; default None: `model.ln_f`, or
            `model.norm` if the model has no `ln_f`.

    Returns:
        A function for `torch_arrays`: tensors x [n, p], y [n], x_query [q, p] to [L + 1, q].

    Raises:
        ImportError: torch is not installed.
        TypeError: a module is not callable, or the model has no final norm of these names.
        ValueError: the model is in training mode, or y has several outputs.

    Source: nostalgebraist, Interpreting GPT: the logit lens, 2020; Garg et al., What can
    transformers learn in-context?, 2022, arXiv:2208.01066.

    >>> import torch, transformers
    >>> import icl_krr as ik
    >>> config = transformers.GPT2Config(n_embd=64, n_layer=4, n_head=4, n_positions=32)
    >>> network = transformers.GPT2Model(config).eval()
    >>> read_in, read_out = torch.nn.Linear(3, 64), torch.nn.Linear(64, 1)
    >>> function = decoder_answers(network, read_in, read_out)
    >>> x = np.ones((2, 5, 3), np.float32)  # two tasks
    >>> answers, hats = torch_arrays(function, ik.Task(x=x, y=x[..., 0], x_query=x[:, :1]))
    >>> answers.shape, hats.shape
    ((2, 5, 1), (2, 5, 1, 5))
    """
    if final_norm is None:
        final_norm = getattr(model, "ln_f", getattr(model, "norm", None))
    modules = {"model": model, "read_in": read_in, "read_out": read_out, "final_norm": final_norm}
    for name, module in modules.items():
        checks.function(name, module)
    if getattr(model, "training", False):
        raise ValueError("model must be in evaluation mode, got training mode; call model.eval()")
    torch = import_torch()

    def answers(x: Any, y: Any, x_query: Any) -> Any:
        if y.ndim > 1:
            raise ValueError(f"y must be [n], with one output, got shape {list(y.shape)}")
        wide = torch.nn.functional.pad(y[:, None], (0, x.shape[1] - 1))
        supports = torch.stack([x, wide], dim=1).reshape(-1, x.shape[1])
        tokens = torch.cat([supports.expand(len(x_query), -1, -1), x_query[:, None]], dim=1)
        made = model(inputs_embeds=read_in(tokens), output_hidden_states=True, use_cache=False)
        *before, last = (hidden[:, -1] for hidden in made.hidden_states)
        layers = torch.stack([*map(final_norm, before), last])
        return read_out(layers)[..., 0]

    return answers


def import_torch() -> Any:
    try:
        import torch
    except ImportError:
        raise ImportError(
            "a PyTorch model needs torch, which is not installed; "
            'run pip install torch, or pip install "icl_krr[t5]"'
        ) from None
    return torch
