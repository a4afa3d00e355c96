"""What every construction can be told beside its algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from jax.typing import DTypeLike

from ... import checks
from .arithmetic import Arithmetic


@dataclass(frozen=True, eq=False)
class Softmax:
    r"""How softmax attention applies a kernel; `attention="softmax"` stands for `Softmax()`.

    The aggregator is the sink: its logit is `log_sink` $\log c$, so that a head weighs values by
    $k(x_i, x_j) / (Z_i + c)$, with $Z_i = \sum_j k(x_i, x_j)$, and the sink by $c / (Z_i + c)$.
    Their quotient is $K / c$ with one $c$ for all tokens. `icl_krr.theory.log_sink` chooses it from
    the data such that nothing under- or overflows. The linear kernel is emulated by the small
    `epsilon` $\epsilon$ (`icl_krr.theory.best_epsilon`): as $\sinh(\epsilon x^T z) / \epsilon$ if
    `symmetric`, else as $(\exp(\epsilon x^T z) - 1) / \epsilon$. Both numbers are traced.

    Raises ValueError for numbers out of range.

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


class Options(TypedDict, total=False):
    r"""Keywords that all constructions take, on top of those of their algorithm.

    - `num_outputs` r, by default 1: outputs of a task, solved side by side, each with scalars of
      its own.
    - `attention`: "linear", "softmax", or a `Softmax` that says how softmax attention applies the
      kernel. By default linear for the linear kernel and for `Features`, softmax for the others.
    - `arithmetic`: "exact" gated units, the default, or a `ReLU`, whose tables a plain ReLU MLP
      holds; any other `Arithmetic` will do.
    - `sketch`: what m channels carry in place of x, so that all runs on the kernel
      `icl_krr.sketched(kernel, sketch)`: $P^T x$ for a matrix $P$ [p, m], which is traced, or the
      features of a map such as `icl_krr.sketches.nystrom_features` makes.
    - `width` m: checked against the sketch; it says no more than that.
    - `dtype` of the weights: float32 or float64, by default JAX's own.

    Constructions raise ValueError for a kernel that the attention cannot apply, an attention that
    the algorithm cannot use, an unknown arithmetic and a sketch that does not fit, TypeError for
    an unknown keyword.

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
