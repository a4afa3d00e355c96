"""Which machine a solver is written for: its kernel, attention and arithmetic."""

from __future__ import annotations

from jax.typing import DTypeLike

from .. import checks
from ..kernels import Exponential, Gaussian, Kernel, Linear
from .arithmetic import Arithmetic, Exact, ReLU
from .linear_attention import LinearAttention
from .machine import Machine
from .softmax_attention import Softmax, SoftmaxAttention

Attention = str | Softmax | None


def machine(
    kernel: Kernel,
    attention: Attention,
    arithmetic: str | ReLU,
    num_features: int,
    num_outputs: int,
    dtype: DTypeLike | None,
) -> Machine:
    """The machine whose verbs realise these choices; ValueError for a choice without one.

    Without an attention: linear for the linear kernel, softmax for the others.
    """
    if attention is None:
        attention = "linear" if isinstance(kernel, Linear) else "softmax"
    if not isinstance(attention, Softmax):
        checks.choice("attention", attention, ("linear", "softmax"))
    if attention == "linear":
        return linear_machine(kernel, num_features, num_outputs, dtype, arithmetic)
    return softmax_machine(kernel, attention, num_features, num_outputs, dtype, arithmetic)


def linear_machine(
    kernel: Kernel,
    num_features: int,
    num_outputs: int,
    dtype: DTypeLike | None,
    arithmetic: str | ReLU = "exact",
) -> LinearAttention:
    if not isinstance(kernel, Linear):
        raise ValueError(
            f"kernel must be Linear() to be applied by linear attention, got {kernel!r}; "
            "other kernels need softmax attention"
        )
    return LinearAttention("linear", num_features, num_outputs, dtype, rules(arithmetic))


def softmax_machine(
    kernel: Kernel,
    attention: Attention,
    num_features: int,
    num_outputs: int,
    dtype: DTypeLike | None,
    arithmetic: str | ReLU = "exact",
) -> SoftmaxAttention:
    options = attention if isinstance(attention, Softmax) else Softmax()
    if not isinstance(kernel, (Linear, Exponential, Gaussian)):
        raise ValueError(
            f"kernel must be Exponential, Gaussian or Linear to be applied by softmax attention, "
            f"got {kernel!r}"
        )
    if isinstance(kernel, Linear) and options.epsilon is None:
        raise ValueError(
            "attention must be Softmax(epsilon=...) to emulate the linear kernel, got "
            f"{attention!r}; epsilon=icl_krr.theory.best_epsilon(...) fits a task"
        )
    return SoftmaxAttention(kernel, options, num_features, num_outputs, dtype, rules(arithmetic))


def rules(arithmetic: str | ReLU) -> Arithmetic:
    if isinstance(arithmetic, ReLU):
        return arithmetic
    if arithmetic != "exact":
        raise ValueError(
            f"arithmetic must be 'exact' or icl_krr.ReLU(width=..., bound=...), got {arithmetic!r}"
        )
    return Exact()
