"""The options that all constructions share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from jax.typing import DTypeLike

from ..._core import checks
from ..._core.readable import readable
from .arithmetic import Arithmetic


@readable
@dataclass(frozen=True, eq=False)
class Softmax:
    r"""Settings of softmax attention; `attention="softmax"` means `Softmax()`.

    The aggregator is the sink of every head and has the logit $\log c$. With
    $Z_i = \sum_j k(x_i, x_j)$, a head gives support j the weight $k(x_i, x_j) / (Z_i + c)$ and the
    sink the weight $c / (Z_i + c)$. The quotient of these weights is $k(x_i, x_j) / c$.

    Softmax attention cannot apply the linear kernel exactly. It approximates it with a small number
    $\epsilon$, by $\sinh(\epsilon x^T z) / \epsilon$ or $(\exp(\epsilon x^T z) - 1) / \epsilon$.

    Args:
        log_sink: logit $\log c$ of the sink. `icl_krr.theory.log_sink` returns one at which nothing
            overflows and no sink weight underflows.
        epsilon: $\epsilon$ > 0, which the linear kernel requires and others ignore.
            `icl_krr.theory.best_epsilon` returns the most accurate value.
        symmetric: whether to approximate the linear kernel by sinh, which is more accurate, or by
            exp.

    >>> Softmax(log_sink=4.0).symmetric
    True
    """

    log_sink: Any = 0.0
    epsilon: Any = None
    symmetric: bool = True

    def __post_init__(self):
        checks.scalar("log_sink", self.log_sink)
        checks.finite("log_sink", self.log_sink)
        if self.epsilon is not None:
            checks.positive_scalar("epsilon", self.epsilon)
        checks.flag("symmetric", self.symmetric)


class Options(TypedDict, total=False):
    """Keywords that all constructions accept, in addition to the arguments of their algorithm.

    Args:
        num_outputs: number of outputs r of a task; default 1. The model solves for all in parallel,
            each with its own scalars, such as step sizes of conjugate gradient.
        attention: "linear", "softmax", or a `Softmax` with settings. Linear attention applies
            `Linear`, `Polynomial` and `Features`. Softmax attention applies `Exponential`,
            `Gaussian`, a `Mixture` and any other `LogBilinear`, a Matern kernel up to a stated
            error (`icl_krr.kernels.Matern`), and with `Softmax(epsilon=...)` also `Linear`. Default
            None: "linear" for kernels that it applies and a sketch that is a feature map, "softmax"
            for other kernels.
        arithmetic: how MLPs multiply and divide. "exact" (default) uses gated units without error.
            A `ReLU` uses piecewise-linear tables in a plain ReLU MLP, with a bounded error. Any
            object of a subclass of `Arithmetic` also works.
        sketch: compression of x to m channels: a matrix $P$ [p, m] for $P^T x$, or a feature map,
            such as from `icl_krr.sketches.nystrom_features`. The model then uses the kernel
            `icl_krr.sketched(kernel, sketch)`. Default None: no compression.
        width: expected width m of the sketch, which a construction checks; default None: no check.
        dtype: floating dtype of the weights, not wider than the default float dtype of JAX, which
            is the default.

    >>> import icl_krr as ik
    >>> options: Options = {"num_outputs": 2, "dtype": "float32"}
    >>> ik.constructions.conjugate_gradient(
    ...     ik.Linear(), num_features=3, ridge=0.1, steps=4, **options
    ... ).spec.num_outputs
    2
    """

    num_outputs: int
    attention: str | Softmax | None
    arithmetic: str | Arithmetic
    sketch: Any
    width: int | None
    dtype: DTypeLike | None
