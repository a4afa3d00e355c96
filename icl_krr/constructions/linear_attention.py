"""Route B: the verbs that read other tokens, by linear attention."""

from __future__ import annotations

import jax.numpy as jnp

from ..residual import Read
from .machine import Machine
from .slots import AGGREGATOR, SUPPORTS_AND_QUERIES, label


class LinearAttention(Machine):
    """Linear attention is trilinear: sum_j <query_i, key_j> value_j.

    So one head applies K, one head sums a product over the supports, and one head both
    broadcasts such a sum and multiplies it to a slot. The sums live at the aggregator, which
    must stay zero in every slot that a kernel or a sum reads: it is a key like any support.

    Source: von Oswald et al., Transformers learn in-context by gradient descent, 2023.
    """

    scalars_at = AGGREGATOR

    def kernel_times(self, v: Read) -> Read:
        name = "K_" + "_".join(v.blocks)
        product = self.scratch(name, SUPPORTS_AND_QUERIES, f"K ({label(v)})")
        self.head(query=self.x, key=self.x, value=v, to=product)
        return product

    def finish(self, product: Read, to: str) -> Read:
        return product

    def kernel_diagonal(self, to: Read) -> None:
        ones = jnp.ones((self.spec.num_features, 1), self.dtype)
        x = self.scratch("x_support", self.layout[to.slot].at, "x", self.spec.num_features)
        self.add(self.x, to=x)
        self.multiply(x, self.x, to=to, out=ones)

    def dot(self, a: Read, b: Read, to: str | Read) -> Read:
        to = self.target(to, self.scalars_at, f"({label(a)}) . ({label(b)})")
        query = self.per_output(self.aggregator)
        self.head(query=query, key=a, value=b, to=to, heads=self.spec.num_outputs)
        return to

    def add_scaled(self, value: Read, by: Read | tuple[Read, Read], to: Read) -> None:
        key, one = by if isinstance(by, tuple) else (by, self.per_output(self.one))
        self.head(query=value, key=key, value=one, to=to, heads=self.spec.num_outputs)
