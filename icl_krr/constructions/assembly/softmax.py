"""What softmax attention needs to know of a kernel, and what it leaves for the MLP to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ... import checks
from ...residual import Read


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


class Term(NamedTuple):
    """One softmax pattern: logits <query_i, key_j>, and a multiple of what it weighs."""

    query: Read
    key: Read
    weight: Any


class Unnormalised(NamedTuple):
    """rest + sum_k mean_k x normaliser_k: what attention left for the MLP to multiply."""

    rest: Read | None
    means: tuple[tuple[Read, int], ...]
    __array_ufunc__ = None  # a NumPy scalar times this is not NumPy's to compute

    def __add__(self, other: Any) -> Unnormalised:  # pyright: ignore[reportIncompatibleMethodOverride]
        if isinstance(other, Unnormalised):
            raise TypeError("only one unfinished product can be added at a time")
        return self._replace(rest=other if self.rest is None else self.rest + other)

    def __mul__(self, scale: Any) -> Unnormalised:  # pyright: ignore[reportIncompatibleMethodOverride]
        rest = None if self.rest is None else self.rest * scale
        return Unnormalised(rest, tuple((mean * scale, k) for mean, k in self.means))

    __radd__ = __add__
    __rmul__ = __mul__  # pyright: ignore[reportAssignmentType]

    def __neg__(self) -> Unnormalised:
        return self * -1

    def __rsub__(self, other: Any) -> Unnormalised:
        return other + -self
