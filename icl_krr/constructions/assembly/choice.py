"""Which machine a solver is written for: its kernel, attention and arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from ... import checks
from ...kernels import Features, Kernel, check_kernel
from .arithmetic import Arithmetic
from .exact import Exact
from .linear_attention import LinearAttention
from .machine import Machine
from .options import Options, Softmax
from .softmax_attention import SoftmaxAttention


def machine(kernel: Kernel, num_features: int, **options: Unpack[Options]) -> Machine:
    r"""The machine that a construction is written for: slots to name, and verbs that make weights.

    `num_features` is p; the `options` are those of every construction (`Options`). `state`
    declares a slot that lives at `SUPPORTS` or at `SUPPORTS_AND_QUERIES`, `kernel_times` applies
    `scale` times K, `add`, `multiply`, `divide` and `dot` do what they say, and `transformer`
    packs what a step says into blocks.

    Raises ValueError for a kernel that the attention cannot apply, an unknown attention or
    arithmetic, and a sketch that does not fit.

    >>> import icl_krr as ik
    >>> m = machine(ik.Linear(), num_features=2)
    >>> prediction = m.state("prediction", ("support", "query"), "one step of gradient descent")
    >>> def step():
    ...     m.add(0.1 * m.kernel_times(m.y), to=prediction)
    >>> m.transformer(step, steps=1, readout=prediction).depth
    1
    """
    check_kernel(kernel)
    featured = kernel.featured or callable(options.get("sketch"))
    attention = options.get("attention") or ("linear" if featured else "softmax")
    if not isinstance(attention, Softmax):
        checks.choice("attention", attention, ("linear", "softmax"))
    choose = linear_machine if attention == "linear" else softmax_machine
    return choose(kernel, num_features, **options)


def linear_machine(
    kernel: Kernel, num_features: int, **options: Unpack[Options]
) -> LinearAttention:
    """The machine of solvers that work on features, which linear attention alone applies."""
    kernel, attention, rest = with_defaults(kernel, num_features, options)
    if attention not in (None, "linear"):
        raise ValueError(f"attention must be 'linear' for this solver, got {attention!r}")
    return LinearAttention(kernel, *rest)


def softmax_machine(
    kernel: Kernel,
    num_features: int,
    sinks: Mapping[tuple[str, ...], Any] | None = None,
    **options: Unpack[Options],
) -> SoftmaxAttention:
    """The machine of solvers that work on softmax patterns, with sinks of their own if given."""
    kernel, attention, rest = with_defaults(kernel, num_features, options)
    if attention == "linear":
        raise ValueError("attention must be 'softmax' for this solver, got 'linear'")
    how = attention if isinstance(attention, Softmax) else Softmax()
    return SoftmaxAttention(kernel, how, *rest, sinks=sinks)


def with_defaults(kernel: Kernel, num_features: int, options: Options) -> tuple[Kernel, Any, tuple]:
    """The kernel to apply, by which attention, and what every machine is made with."""
    unknown = sorted({*options} - {*Options.__annotations__})
    if unknown:
        known = ", ".join(Options.__annotations__)
        raise TypeError(
            f"keyword must be an argument of the solver or one of {known}; got {unknown[0]!r}"
        )
    kernel, sketch = compress(kernel, num_features, options.get("width"), options.get("sketch"))
    rules = arithmetic_of(options.get("arithmetic", "exact"))
    sizes = (num_features, options.get("num_outputs", 1), options.get("dtype"))
    return kernel, options.get("attention"), (*sizes, rules, sketch)


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
    if callable(sketch):
        kernel, matrix, m = Features(sketch), None, getattr(sketch, "width", None)
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


def arithmetic_of(arithmetic: str | Arithmetic) -> Arithmetic:
    if isinstance(arithmetic, Arithmetic):
        return arithmetic
    if arithmetic != "exact":
        raise ValueError(
            f"arithmetic must be 'exact' or icl_krr.ReLU(width=..., bound=...), got {arithmetic!r}"
        )
    return Exact()
