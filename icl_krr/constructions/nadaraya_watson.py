"""The Nadaraya-Watson estimator: what one softmax head computes."""

from __future__ import annotations

from typing import Unpack

from ..kernels import Kernel
from ..residual import ROLES
from ..transformer.weights import Transformer
from .assembly.choice import softmax_machine
from .assembly.options import Options, Softmax


def nadaraya_watson(
    kernel: Kernel,
    *,
    num_features: int,
    **options: Unpack[Options],
) -> Transformer:
    r"""One softmax head: $f(x) = \sum_j k(x, x_j) y_j / \sum_j k(x, x_j)$.

    For the exponential kernel the query reads $x / \tau$, the key x, the value y; for the Gaussian
    keys carry $|x|^2 / 2$ besides, which a block before finds. The logit of the aggregator is one
    that no data reaches, so that it stays out of the average. A `Mixture` has a head for each of
    its kernels, side by side, and is the mixture of their smoothers,
    $\sum_h w_h f_h / \sum_h w_h$: not the smoother of the mixture. Temperature and
    lengthscale are traced.

    Further keywords are the `Options` of every construction.

    Raises ValueError for a kernel that is not positive.

    Source: Nadaraya 1964, Watson 1964; Tsai et al., Transformer dissection, 2019.

    >>> import icl_krr as ik
    >>> nadaraya_watson(ik.Exponential(temperature=0.5), num_features=2).depth
    1
    """
    if kernel.featured:
        raise ValueError(
            "kernel must be Exponential(), Gaussian() or a Mixture of them to be softmax heads, "
            f"got {kernel!r}"
        )
    attention = options.get("attention")
    if isinstance(attention, Softmax):
        raise ValueError(
            "attention must be 'softmax' for nadaraya_watson, whose sink is out of reach, "
            f"got {attention!r}"
        )
    # no logit is rounded beside it: x is 0 there
    m = softmax_machine(kernel, num_features, {ROLES: -1e30}, **options)
    prediction = m.state("prediction", ROLES, "kernel-weighted mean of y")
    total = sum(term.weight for term in m.terms)

    def step() -> None:
        for term in m.terms:
            m.head(term.query, term.key, (term.weight / total) * m.y, to=prediction)

    return m.transformer(step, steps=1, readout=prediction)
