"""The choice of the machine for a kernel, an attention and an arithmetic."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec, TypeVar, Unpack

import jax
import numpy as np

from ..._core import checks
from ..._core.constants import as_constant
from ..._core.messages import suggest_keywords
from ...kernels import Features, Kernel
from ...kernels._kernel import check_kernel
from ...residual import ROLES
from ...solvers._run import check_keywords
from ...transformer._weights import Transformer
from .arithmetic import Arithmetic
from .linear_attention import LinearAttention
from .machine import Machine
from .options import Options, Softmax
from .slots import SUPPORTS_AND_QUERIES
from .softmax_attention import SoftmaxAttention

P = ParamSpec("P")
S = TypeVar("S", bound=SoftmaxAttention)


def construction(build: Callable[P, Transformer]) -> Callable[P, Transformer]:
    """Compute with the known arguments in NumPy, and note them in the model for `rebuild`."""

    build = suggest_keywords(build)

    @wraps(build)
    def built(*args: P.args, **keywords: P.kwargs) -> Transformer:
        arguments: dict[str, Any] = {**dict(zip(("kernel",), args, strict=False)), **keywords}
        args, keywords = jax.tree.map(as_constant, (args, keywords))
        with np.errstate(all="ignore"):  # an overflow is infinite, as in a trace
            model = build(*args, **keywords)
        return dataclasses.replace(model, construction=partial(built, **arguments))

    return built


def construction_like(
    solver: Callable, parameters: Mapping[str, Parameter], options: type, build: Callable
) -> Callable[..., Transformer]:
    """The construction that `build` computes, with the name of a solver, parameters and options."""
    name = solver.__name__

    def construct(kernel: Kernel, *, num_features: int, **options: Any) -> Transformer:
        check_keywords(name, parameters, options, option_names)
        return build(kernel, num_features=num_features, **options)

    kernel, num_features, var_keyword = signature(construct).parameters.values()
    option_names = "num_features", *options.__annotations__
    construct.__name__ = construct.__qualname__ = name
    construct.__module__ = "icl_krr.constructions"
    construct.__doc__ = f"Build a transformer that runs `icl_krr.solvers.{name}`; see there."
    construct.__annotations__["options"] = Unpack[options]
    every = [kernel, num_features, *parameters.values(), var_keyword.replace(annotation=options)]
    construct.__signature__ = Signature(every, return_annotation="Transformer")
    return construction(construct)


def machine(kernel: Kernel, num_features: int, **options: Unpack[Options]) -> Machine:
    """Make a machine, on which a construction declares slots and records operations as weights.

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
    kernel: Kernel,
    num_features: int,
    kind: Callable[..., LinearAttention] = LinearAttention,
    **options: Unpack[Options],
) -> LinearAttention:
    """Make the machine for solvers that use features of the kernel and need linear attention."""
    kernel, attention, arguments = _machine_args(kernel, num_features, options)
    if attention not in (None, "linear"):
        raise ValueError(f"attention must be 'linear' for this solver, got {attention!r}")
    return kind(kernel, *arguments)


def softmax_machine(
    kernel: Kernel,
    num_features: int,
    sinks: Mapping[tuple[str, ...], Any] | None = None,
    kind: Callable[..., S] = SoftmaxAttention,
    **options: Unpack[Options],
) -> S:
    """Make the machine for solvers that use softmax patterns; `sinks` gives the sink's logits."""
    kernel, attention, arguments = _machine_args(kernel, num_features, options)
    if attention == "linear":
        raise ValueError("attention must be 'softmax' for this solver, got 'linear'")
    settings = attention if isinstance(attention, Softmax) else Softmax()
    return kind(kernel, settings, *arguments, sinks=sinks)


def average_machine(kernel: Kernel, num_features: int, **options: Any) -> SoftmaxAttention:
    """Make the machine of a smoother: its sink has no weight, unless means are divided."""
    if kernel.featured:
        raise ValueError(f"kernel must be positive for nadaraya_watson, got {kernel!r}")
    attention = options.get("attention")
    if isinstance(attention, Softmax):
        raise ValueError(
            "attention must be 'softmax' for nadaraya_watson, which sets its own sink, "
            f"got {attention!r}"
        )
    counts = [len(part.patterns(float)) for _, part in kernel.parts]
    if len(counts) > 1 and max(counts) > 1:
        raise ValueError(
            "kernels of a Mixture must be Exponential() or Gaussian() for nadaraya_watson, "
            f"got {kernel!r}"
        )
    # -1e30 does not round other logits, because x is 0 at the aggregator
    sinks: Any = None if max(counts) > 1 else {ROLES: -1e30}
    m = softmax_machine(kernel, num_features, sinks, **options)
    m.fit_at = SUPPORTS_AND_QUERIES if sinks is None else ROLES
    m.about_prediction = "kernel-weighted mean of y"
    return m


def _machine_args(kernel: Kernel, num_features: int, options: Options) -> tuple[Kernel, Any, tuple]:
    """Return the kernel, the attention, and the further arguments that all machines take.

    If `sketch` is a feature map, the kernel is that of its features.
    """
    check_keywords("machine", {}, options, Options.__annotations__)
    sketch, width, sketch_width = options.get("sketch"), options.get("width"), None
    if callable(sketch):
        kernel, sketch_width, sketch = Features(sketch), getattr(sketch, "width", None), None
    elif sketch is not None:
        checks.floating("sketch", sketch)
        checks.finite("sketch", sketch)
        if sketch.ndim != 2 or sketch.shape[0] != num_features:
            raise ValueError(
                f"sketch must be [p, m] with p = num_features = {num_features}, "
                f"got shape {list(sketch.shape)}"
            )
        sketch_width = sketch.shape[1]
    elif width is not None:
        raise ValueError(
            f"sketch must be given for a width of {width}; use "
            f"sketch=icl_krr.sketches.best(task.x, {width})"
        )
    if width not in (None, sketch_width):
        raise ValueError(f"width must be {sketch_width}, the width of the sketch, got {width}")
    rules = options.get("arithmetic", "exact")
    if rules == "exact":
        rules = Arithmetic()
    if not isinstance(rules, Arithmetic):
        rule = f"arithmetic must be 'exact' or icl_krr.ReLU(width=..., bound=...), got {rules!r}"
        raise ValueError(rule)
    sizes = (num_features, options.get("num_outputs", 1), options.get("dtype"))
    return kernel, options.get("attention"), (*sizes, rules, sketch)
