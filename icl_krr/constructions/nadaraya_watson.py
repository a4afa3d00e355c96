"""The Nadaraya-Watson estimator, computed by softmax heads."""

from __future__ import annotations

from typing import Unpack

from ..kernels import Kernel, check_kernel
from ..residual import ROLES
from ..transformer.weights import Transformer
from .assembly.choice import construction, softmax_machine
from .assembly.options import Options, Softmax
from .assembly.slots import SUPPORTS_AND_QUERIES
from .assembly.softmax_attention import SoftmaxAttention


@construction
def nadaraya_watson(
    kernel: Kernel, *, num_features: int, **options: Unpack[Options]
) -> Transformer:
    r"""Build a softmax head that computes $f(x) = \sum_j k(x, x_j) y_j / \sum_j k(x, x_j)$.

    For the exponential kernel, the query is $x / \tau$, the key is $x$ and the value is $y$. For
    the Gaussian kernel, the key also has $|x|^2 / 2$, which a first block computes. The logit of
    the aggregator is -1e30, so its weight is 0; `attention` must be "softmax" or None.

    A `Mixture` has one head for each kernel and the weighted mean of
    `icl_krr.solvers.nadaraya_watson`, which differs from the smoother of the mixture. For a Matern
    kernel, a sum of Gaussian kernels, the model divides the sum of $k(x, x_j) y_j$ by that of
    $k(x, x_j)$, each with one head for each Gaussian kernel. The state is prediction.

    Source: Tsai et al., Transformer dissection, 2019.

    >>> import icl_krr as ik
    >>> nadaraya_watson(ik.Exponential(temperature=0.5), num_features=2).depth
    1
    """
    check_kernel(kernel)
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
    if len(counts) == 1 < counts[0]:
        return quotient(softmax_machine(kernel, num_features, **options))
    if max(counts) > 1:
        raise ValueError(
            "kernels of a Mixture must be Exponential() or Gaussian() for nadaraya_watson, "
            f"got {kernel!r}"
        )
    # -1e30 does not round other logits, because x is 0 at the aggregator
    m = softmax_machine(kernel, num_features, {ROLES: -1e30}, **options)
    prediction = m.state("prediction", ROLES, "kernel-weighted mean of y")
    total = sum(term.weight for term in m.terms)

    def step() -> None:
        for term in m.terms:
            m.head(term.query, term.key, (term.weight / total) * m.y, to=prediction)

    return m.transformer(step, steps=1, readout=prediction)


def quotient(m: SoftmaxAttention) -> Transformer:
    """Divide K y by K 1, for a kernel with several patterns."""
    prediction = m.state("prediction", SUPPORTS_AND_QUERIES, "kernel-weighted mean of y")

    def step() -> None:
        above = m.finish(m.kernel_times(m.y), to="above")
        below = m.finish(m.kernel_times(m.per_output(m.support)), to="below")
        m.divide(above, below, to=prediction)

    return m.transformer(step, steps=1, readout=prediction)
