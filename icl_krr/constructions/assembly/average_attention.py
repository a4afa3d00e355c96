"""Softmax heads that average, without a sink."""

from __future__ import annotations

from typing import Any, Unpack

from ...kernels import Kernel
from ...residual import ROLES, Read
from .choice import softmax_machine
from .options import Options, Softmax
from .slots import SUPPORTS_AND_QUERIES, label
from .softmax_attention import SoftmaxAttention


class AverageAttention(SoftmaxAttention):
    """A machine with products with D^-1 K, for the row sums D of K.

    The aggregator has the logit -1e30, so its weight is 0. A `Mixture` has one head for each kernel
    and the weighted mean of their averages, which differs from the average of the mixture. A kernel
    that is a sum of patterns divides the sum of k(x, x_j) v_j by that of k(x, x_j).
    """

    def state_of_fit(self) -> Read:
        at = SUPPORTS_AND_QUERIES if self.divides else ROLES
        return self.state("prediction", at, "kernel-weighted mean of y")

    @property
    def divides(self) -> bool:
        return len(self.kernel.parts) < len(self.patterns)

    def add_average(self, v: Read, to: Read) -> None:
        """Add D^-1 K v to a slot."""
        if self.divides:
            above = self.finish(self.kernel_times(v), to="above")
            below = self.finish(self.kernel_times(self.per_output(self.support)), to="below")
            self.divide(above, below, to=to)
            return
        everywhere = self.layout[to.slot].at == ROLES
        mean = to if everywhere else self.scratch("mean", ROLES, f"softmax mean of {label(v)}")
        total = sum(term.weight for term in self.terms)
        for term in self.terms:
            self.head(term.query, term.key, (term.weight / total) * v, to=mean)
        if not everywhere:
            self.add(mean, to=to)


def average_machine(
    kernel: Kernel, num_features: int, **options: Unpack[Options]
) -> AverageAttention:
    """Make the machine of a smoother."""
    if kernel.featured:
        raise ValueError(
            "kernel must be Exponential(), Gaussian(), a Mixture of them or a Matern kernel for "
            f"nadaraya_watson, got {kernel!r}"
        )
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
    return softmax_machine(kernel, num_features, sinks, AverageAttention, **options)
