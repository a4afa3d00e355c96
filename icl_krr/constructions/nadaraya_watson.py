"""The Nadaraya-Watson estimator: what one softmax head computes."""

from __future__ import annotations

from jax.typing import DTypeLike

from ..kernels import Kernel, Mixture, PositiveKernel
from ..residual import ROLES
from ..transformer.weights import Transformer
from .assembly.choice import Sketch, compress, softmax_machine


def nadaraya_watson(
    kernel: Kernel,
    *,
    num_features: int,
    num_outputs: int = 1,
    width: int | None = None,
    sketch: Sketch = None,
    dtype: DTypeLike | None = None,
) -> Transformer:
    r"""One softmax head: $f(x) = \sum_j k(x, x_j) y_j / \sum_j k(x, x_j)$.

    For the exponential kernel the query reads $x / \tau$, the key x, the value y; for the Gaussian
    keys carry $|x|^2 / 2$ besides, which a block before finds. The logit of the aggregator is one
    that no data reaches, so that it stays out of the average. A `Mixture` has a head for each of
    its kernels, side by side, and is the mixture of their smoothers,
    $\sum_h w_h f_h / \sum_h w_h$: not the smoother of the mixture. The weights are float32 or
    float64 as `dtype` or JAX's default says; temperature and lengthscale are traced.

    With a `sketch` $P$ [p, m], m channels carry $P^T x$ in place of x, and all runs on their kernel
    (`icl_krr.sketched`). `width` is m; a sketch that does not fit is a ValueError.

    Raises ValueError for a kernel that is not positive.

    Source: Nadaraya 1964, Watson 1964; Tsai et al., Transformer dissection, 2019.

    >>> import icl_krr as ik
    >>> nadaraya_watson(ik.Exponential(temperature=0.5), num_features=2).depth
    1
    """
    kernel, sketch = compress(kernel, num_features, width, sketch)
    if not isinstance(kernel, (PositiveKernel, Mixture)):
        raise ValueError(
            "kernel must be Exponential(), Gaussian() or a Mixture of them to be softmax heads, "
            f"got {kernel!r}"
        )
    m = softmax_machine(kernel, None, num_features, num_outputs, dtype, sketch=sketch)
    m.log_sink = -1e30 * m.one  # no logit is rounded beside it: x is 0 there
    prediction = m.state("prediction", ROLES, "kernel-weighted mean of y")
    total = sum(m.weights)

    def step() -> None:
        for term in m.terms:
            m.head(term.query, term.key, (term.weight / total) * m.y, to=prediction)

    return m.transformer(step, steps=1, readout=prediction)
