"""The exponential of a logit, computed by the attention to the sink."""

from __future__ import annotations

from ...residual import ROLES, Read
from .machine import Machine

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
