"""What softmax heads compute: products with K that no MLP has normalised yet, and exponentials."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...residual import ROLES, Read
from .machine import Machine


class Term(NamedTuple):
    """One softmax pattern with logits <query_i, key_j>, and the weight of its contribution."""

    query: Read
    key: Read
    weight: Any


class Unnormalised(NamedTuple):
    """The expression rest + sum_k mean_k normaliser_k, before an MLP computes its products."""

    rest: Read | None
    means: tuple[tuple[Read, int], ...]
    __array_ufunc__ = None  # NumPy scalar * Unnormalised then calls __rmul__

    def __add__(self, other: Any) -> Unnormalised:  # pyright: ignore[reportIncompatibleMethodOverride]
        if isinstance(other, Unnormalised):
            means = {k: mean for mean, k in self.means}
            for mean, k in other.means:
                means[k] = means[k] + mean if k in means else mean
            whole = Unnormalised(self.rest, tuple((mean, k) for k, mean in means.items()))
            return whole if other.rest is None else whole + other.rest
        return self._replace(rest=other if self.rest is None else self.rest + other)

    def __mul__(self, scale: Any) -> Unnormalised:  # pyright: ignore[reportIncompatibleMethodOverride]
        rest = None if self.rest is None else self.rest * scale
        return Unnormalised(rest, tuple((mean * scale, k) for mean, k in self.means))

    __radd__ = __add__
    __rmul__ = __mul__  # pyright: ignore[reportAssignmentType]

    def __neg__(self) -> Unnormalised:
        return self * -1

    def __sub__(self, other: Any) -> Unnormalised:
        return self + -other

    def __rsub__(self, other: Any) -> Unnormalised:
        return other + -self


NOTHING = Read({}, 1)
"""A query with which all logits are 0."""


def exponential(m: Machine, logit: Read, to: Read) -> None:
    """Add e^logit, by a head with logit 0 for the n supports and this logit for the sink.

    The sink has the weight e^logit / (e^logit + n) and the supports have n / (e^logit + n)
    together, so the quotient is e^logit / n. A second head with logit 0 everywhere gives n.
    """
    here = m.layout[to.slot].at
    if m.spec.causal:  # the first support sees no other one
        m.activate("exp", logit, m.inside(here), to)
        return
    parts = []
    for name, query in (("exponential", logit), ("count", NOTHING)):
        sink = m.scratch(f"{name}_sink", ROLES, "weight of the sink", width=1)
        rest = m.scratch(f"{name}_supports", ROLES, "weight of the supports", width=1)
        m.head(query, m.aggregator, m.aggregator, to=sink)
        m.head(query, m.aggregator, m.support, to=rest)
        parts.append((sink, rest))
    (sink, rest), (sink_mean, rest_mean) = parts
    odds = m.scratch("odds", here, "e^logit / n", width=1)
    count = m.scratch("count", here, "n", width=1)
    for dividend, divisor, quotient in ((sink, rest, odds), (rest_mean, sink_mean, count)):
        name = f"{quotient.slot}_above"
        above = m.add(dividend, to=m.scratch(name, here, "dividend", width=1))
        m.divide(above, divisor, to=quotient)
    m.multiply(odds, count, to=to)
