"""Route B: the verbs that read other tokens, by linear attention."""

from __future__ import annotations

from ..residual import Read
from .machine import AGGREGATOR, SUPPORTS_AND_QUERIES, Machine, label


class LinearAttention(Machine):
    """Linear attention is trilinear: sum_j <query_i, key_j> value_j.

    So one head applies K, one head sums a product over the supports, and one head both
    broadcasts such a sum and multiplies it to a slot. The sums live at the aggregator, which
    must stay zero in every slot that a kernel or a sum reads: it is a key like any support.

    Source: von Oswald et al., Transformers learn in-context by gradient descent, 2023.
    """

    scalars_at = AGGREGATOR

    def kernel_times(self, v: Read, to: str | Read) -> Read:
        """Add K v, at supports and queries alike."""
        to = self.target(to, SUPPORTS_AND_QUERIES, f"K ({label(v)})")
        self.head(query=self.x, key=self.x, value=v, to=to)
        return to

    def dot(self, a: Read, b: Read, to: str | Read) -> Read:
        """Add sum_j a_j b_j for each output to a slot at the aggregator."""
        to = self.target(to, self.scalars_at, f"({label(a)}) . ({label(b)})")
        query = self.per_output(self.aggregator)
        self.head(query=query, key=a, value=b, to=to, heads=self.spec.num_outputs)
        return to

    def add_scaled(self, value: Read, by: Read, to: Read) -> None:
        """Add a value times the scalar that the aggregator holds, for each output."""
        ones = self.per_output(self.one)
        self.head(query=value, key=by, value=ones, to=to, heads=self.spec.num_outputs)
