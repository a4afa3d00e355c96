"""Which machine a solver is written for: its kernel, attention and arithmetic."""

from __future__ import annotations

from typing import Any

from jax import Array
from jax.typing import DTypeLike

from ... import checks
from ...kernels import Exponential, Features, Gaussian, Kernel, Linear, Mixture
from ...sketches import NystromFeatures, RandomFeatures
from .arithmetic import Arithmetic, Exact, ReLU
from .linear_attention import LinearAttention
from .machine import Machine
from .softmax_attention import Softmax, SoftmaxAttention

Attention = str | Softmax | None
Sketch = Array | NystromFeatures | RandomFeatures | None


def machine(
    kernel: Kernel,
    attention: Attention,
    arithmetic: str | ReLU,
    num_features: int,
    num_outputs: int = 1,
    dtype: DTypeLike | None = None,
    width: int | None = None,
    sketch: Any = None,
) -> Machine:
    r"""The machine that a construction is written for: slots to name, and verbs that make weights.

    `attention` None is linear for the linear kernel and those of features, softmax for the others;
    `arithmetic` is "exact" or a `ReLU`. A `sketch` is a matrix $P$ [p, m], so that m channels
    carry $P^T x$ in place of x, or a feature map that stands for its kernel; `width` is m, to be
    checked. `state` declares a slot that lives at `SUPPORTS` or at `SUPPORTS_AND_QUERIES`,
    `kernel_times` applies `scale` times K, `add`, `multiply`, `divide` and `dot` do what they say,
    and `transformer` packs what a step says into blocks.

    Raises ValueError for a kernel that the attention cannot apply, an unknown attention or
    arithmetic, and a sketch that does not fit.

    >>> import icl_krr as ik
    >>> m = machine(ik.Linear(), None, "exact", num_features=2)
    >>> prediction = m.state("prediction", ("support", "query"), "one step of gradient descent")
    >>> def step():
    ...     m.add(0.1 * m.kernel_times(m.y), to=prediction)
    >>> m.transformer(step, steps=1, readout=prediction).depth
    1
    """
    kernel, sketch = compress(kernel, num_features, width, sketch)
    if attention is None:
        attention = "linear" if isinstance(kernel, (Linear, Features)) else "softmax"
    if not isinstance(attention, Softmax):
        checks.choice("attention", attention, ("linear", "softmax"))
    if attention == "linear":
        return linear_machine(kernel, num_features, num_outputs, dtype, arithmetic, sketch)
    return softmax_machine(kernel, attention, num_features, num_outputs, dtype, arithmetic, sketch)


def compress(
    kernel: Kernel, num_features: int, width: int | None, sketch: Any
) -> tuple[Kernel, Any]:
    """The kernel of what the stream carries, and the matrix that makes it of x, if there is one."""
    if sketch is None:
        if width is not None:
            raise ValueError(
                f"sketch must be given for a width of {width}, such as "
                f"icl_krr.sketches.best(task.x, {width})"
            )
        return kernel, None
    if isinstance(sketch, (NystromFeatures, RandomFeatures)):
        kernel, matrix, m = Features(sketch), None, sketch.width
    else:
        checks.floating("sketch", sketch)
        checks.finite("sketch", sketch)
        if sketch.ndim != 2 or sketch.shape[0] != num_features:
            raise ValueError(
                f"sketch must be [p, m] with p = num_features = {num_features}, "
                f"got shape {list(sketch.shape)}"
            )
        matrix, m = sketch, sketch.shape[1]
    if width is not None and width != m:
        raise ValueError(f"width must be {m} as that of the sketch, got {width}")
    return kernel, matrix


def linear_machine(
    kernel: Kernel,
    num_features: int,
    num_outputs: int,
    dtype: DTypeLike | None,
    arithmetic: str | ReLU = "exact",
    sketch: Any = None,
) -> LinearAttention:
    if not isinstance(kernel, (Linear, Features)):
        raise ValueError(
            f"kernel must be Linear() or Features(...) to be applied by linear attention, "
            f"got {kernel!r}; other kernels need softmax attention, or features as a sketch"
        )
    return LinearAttention(kernel, num_features, num_outputs, dtype, rules(arithmetic), sketch)


def softmax_machine(
    kernel: Kernel,
    attention: Attention,
    num_features: int,
    num_outputs: int,
    dtype: DTypeLike | None,
    arithmetic: str | ReLU = "exact",
    sketch: Any = None,
) -> SoftmaxAttention:
    options = attention if isinstance(attention, Softmax) else Softmax()
    if not isinstance(kernel, (Linear, Exponential, Gaussian, Mixture)):
        raise ValueError(
            f"kernel must be Exponential, Gaussian, Linear or a Mixture to be applied by softmax "
            f"attention, got {kernel!r}"
        )
    if isinstance(kernel, Linear) and options.epsilon is None:
        raise ValueError(
            "attention must be Softmax(epsilon=...) to emulate the linear kernel, got "
            f"{attention!r}; epsilon=icl_krr.theory.best_epsilon(...) fits a task"
        )
    return SoftmaxAttention(
        kernel, options, num_features, num_outputs, dtype, rules(arithmetic), sketch
    )


def rules(arithmetic: str | ReLU) -> Arithmetic:
    if isinstance(arithmetic, ReLU):
        return arithmetic
    if arithmetic != "exact":
        raise ValueError(
            f"arithmetic must be 'exact' or icl_krr.ReLU(width=..., bound=...), got {arithmetic!r}"
        )
    return Exact()
