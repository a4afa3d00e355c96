"""The Nadaraya-Watson estimator: what one softmax head computes."""

from __future__ import annotations

import jax.numpy as jnp
from jax.typing import DTypeLike

from .. import checks
from ..kernels import Exponential, Kernel
from ..residual import ROLES, join
from ..transformer.weights import Transformer
from .machine import Machine


def nadaraya_watson(
    kernel: Kernel, *, num_features: int, num_outputs: int = 1, dtype: DTypeLike | None = None
) -> Transformer:
    """One softmax head: sum_j exp(<x_i, x_j> / t) y_j / sum_j exp(<x_i, x_j> / t).

    The query reads x / t, the key x, the value y; a second channel takes the aggregator out of
    the average by a logit that no data reaches. The weights are float32 or float64 as `dtype`
    or JAX's default says; the temperature t is traced.

    Raises ValueError for a kernel other than `Exponential`.

    Source: Nadaraya 1964, Watson 1964; Tsai et al., Transformer dissection, 2019.

    >>> import icl_krr as ik
    >>> nadaraya_watson(ik.Exponential(temperature=0.5), num_features=2).depth
    1
    """
    if not isinstance(kernel, Exponential):
        raise ValueError(f"kernel must be Exponential() to be one softmax head, got {kernel!r}")
    checks.scalar("temperature", kernel.temperature)
    m = Machine("softmax", num_features, num_outputs, dtype)
    prediction = m.state("prediction", ROLES, "kernel-weighted mean of y")
    hidden = -1e30  # no data reaches it, and no logit is rounded beside it: x is 0 there

    def step() -> None:
        m.head(
            query=join((1 / jnp.asarray(kernel.temperature, m.dtype)) * m.x, m.one),
            key=join(m.x, hidden * m.aggregator),
            value=m.y,
            to=prediction,
        )

    return m.transformer(step, steps=1, readout=prediction)
