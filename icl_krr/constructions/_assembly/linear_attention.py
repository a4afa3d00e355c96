"""The operations of a machine that read other tokens, with linear attention."""

from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from ... import Kernel, Read
from ..._core.constants import as_constant, xp
from ...kernels._algebra import precede
from ...transformer._weights import Heads, Write
from .features import add_product, fill
from .machine import Machine
from .slots import AGGREGATOR, SUPPORTS_AND_QUERIES, label, tile


class LinearAttention(Machine):
    """A machine with linear attention, sum_j <query_i, key_j> value_j, which is trilinear.

    One head applies K. One head sums a product over the supports, in the aggregator. One head
    multiplies a slot by this sum at all tokens. Every slot that a kernel or a sum reads must be
    zero at the aggregator, a key like the supports. The read `features` gives phi(x): x itself, a
    projection of x, or a slot that the first blocks compute.

    Source: von Oswald et al., Transformers learn in-context by gradient descent, 2023.
    """

    scalars_at = AGGREGATOR
    scales_by_head = True
    token_log_gate: Read | None = None

    def __init__(self, kernel: Kernel, *options: Any):
        super().__init__(kernel, "linear", *options)
        self.layer = kernel.feature_layer(self.dtype)
        if not self.layer.is_read:
            width = self.layer.width(self.projected(self.layer).width)
            self.slot = self.state("features", SUPPORTS_AND_QUERIES, "phi(x)", width=width)

    @cached_property
    def features(self) -> Read:
        return self.projected(self.layer) if self.layer.is_read else self.slot

    def features_at(self, points: Float[Array, "l p"]) -> Float[Array, "l m"]:
        """Return the values of `features` at points [l, p] that are not tokens."""
        points = xp.asarray(points, self.dtype)
        if self.sketch is not None:
            points = xp.matmul(points, self.sketch)
        if self.layer.is_read:
            return precede(self.layer.projection, points).T
        return as_constant(self.kernel.feature_map(points))

    def start(self) -> None:
        self.compute_features()
        super().start()

    def compute_features(self) -> None:
        if not self.layer.is_read:
            fill(self, self.layer, self.features)

    def kernel_times(self, v: Read) -> Read:
        return self.inner_products_times(v)

    def inner_products_times(self, v: Read, keys: Any = None, queries: Any = None) -> Read:
        """Return sum_j <q_i, w_j> v_j; the default of queries q and keys w are the features."""
        product = self.scratch("K_" + "_".join(v.blocks), SUPPORTS_AND_QUERIES, f"K ({label(v)})")
        keys, queries = (self.features if part is None else part for part in (keys, queries))
        gate = self.log_gate
        if gate is None or gate.width == 1:
            self.head(query=queries, key=keys, value=v, to=product, log_gate=gate)
            return product
        m, r = keys.width, v.width  # one head for each channel, because each has its own gate
        values = tile(v, m * r)
        total = np.kron(np.ones((m, 1), self.dtype), np.eye(r, dtype=self.dtype))
        writes = (Write(values, total, product.slot),)
        self.emit(Heads(queries, keys, writes, m, gate, window=self.window))
        return product

    def features_here(self, at: tuple[str, ...]) -> Read:
        """Copy the features to a scratch slot that is zero at tokens of other roles."""
        here = self.scratch("features_here", at, "phi(x)", self.features.width)
        return self.add(self.features, to=here)

    def over_outputs(self, features: Read) -> Read:
        """Repeat m channels for every output: [m] to [r m]."""
        return tile(features, features.width * self.spec.num_outputs)

    def kernel_diagonal(self, to: Read) -> None:
        add_product(self, self.features_here(self.at(to)), self.features, 1, to)

    def cumsum(self, value: Read, to: Read) -> None:
        query = self.inside(self.at(to))
        with self.within(None):
            self.head(query=query, key=self.support, value=value, to=to)

    def gather(self, place: Read, at: Read, value: Read, to: Read) -> None:
        self.head(query=place, key=at, value=value, to=to)

    def dot(self, a: Read, b: Read, to: str | Read) -> Read:
        self.check_sums()
        to = self.written_slot(to, self.scalars_at, f"({label(a)}) . ({label(b)})")
        query = self.per_output(self.aggregator)
        self.head(query=query, key=a, value=b, to=to, heads=self.spec.num_outputs)
        return to
