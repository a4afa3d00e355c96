"""The operations of solvers that the normaliser of the kernel preconditions."""

from functools import reduce
from operator import add
from typing import Any

from ...residual import ROLES, Read
from .machine import Machine
from .slots import QUERIES, SUPPORTS, label
from .softmax_attention import SoftmaxAttention


class NormalisedAttention(SoftmaxAttention):
    """A machine with products with (D + c)^-1 at supports, for the row sums D of K.

    For a kernel with one pattern, these are what its head and its sink give. For a kernel with
    several patterns, whose weights w sum to 1, they are means over the patterns with the weights
    w (Z_ik + c) / (Z_i + c) of pattern k.
    """

    degree, fit_at = 0, QUERIES
    sink_weight: Any = 1.0

    def __init__(self, *options: Any, **sinks: Any):
        super().__init__(*options, **sinks)
        self.shares: dict[str, Read] = {}

    def weighted(self, means: list[Read]) -> Read:
        return super().weighted(means) * self.sink_weight

    def term_normaliser(self, role: str, k: int) -> Read:
        """Return a read of (Z_i + c) / c; the sink has another weight c at the queries."""
        normaliser = super().term_normaliser(role, k)
        return normaliser if role == "support" else normaliser * (1 / self.scale / self.sink_weight)

    def sink(self) -> Read:
        """Return a state with c / (Z_i + c)."""
        if len(self.patterns) == 1:
            return self.keep("sink", ROLES)
        return self.share("sink", self.support)

    def total_normaliser(self) -> Read:
        """Return a read of (Z_i + c) / c at supports."""
        each = (self.term_normaliser("support", k) for k in range(len(self.terms)))
        return reduce(add, (term.weight * of for term, of in zip(self.terms, each, strict=True)))

    def share(self, name: str, dividend: Read) -> Read:
        """Return a state with `dividend` / `total_normaliser`."""
        if name not in self.shares:
            total, about = self.total_normaliser(), f"{label(dividend)} / ((Z + c) / c)"
            self.shares[name] = self.state(name, SUPPORTS, about, width=1)
            self.late.append((self.shares[name], dividend, total))
            if self.started:  # only what comes before the first step needs it
                self.divide(dividend, total, to=self.shares[name])
        return self.shares[name]

    def add_smooth(self, scale: Any, means: list[Read], to: Read) -> None:
        """Add scale (K v)_i / (Z_i + c) at supports, for the means of `smooth_all`."""
        if len(means) == 1:
            Machine.add(self, scale * means[0], to)
            return
        for k, (term, mean) in enumerate(zip(self.terms, means, strict=True)):
            share = self.share(f"share_{k}", term.weight * self.term_normaliser("support", k))
            self.arithmetic.multiply(self, scale * mean, self.per_output(share), to, None, size=1)
