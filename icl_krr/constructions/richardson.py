"""Richardson's iteration, preconditioned by the kernel's own normaliser."""

from __future__ import annotations

from typing import Unpack

import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel
from ..step_sizes import richardson_step
from ..transformer.weights import Transformer
from .assembly.choice import softmax_machine
from .assembly.options import Options, Softmax
from .assembly.slots import QUERIES, SUPPORTS


def richardson(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    steps: int,
    step_size: float | Float[Array, ""] = 1.0,
    sink: float | Float[Array, ""] | None = None,
    **options: Unpack[Options],
) -> Transformer:
    r"""A transformer of one softmax head a block: Richardson's iteration, its own preconditioner.

    $$\alpha_{t+1} = \alpha_t + \eta (D + cI)^{-1} (y - A \alpha_t), \quad A = K + \lambda I$$

    $D$ is the diagonal of the row sums $s_i$ of $K$ over the supports. The head, with a sink of
    weight $c$, gives $(D + cI)^{-1} K \alpha$ as it is; the one product of the MLP is the sink
    weight $c / (s_i + c)$ times $y - \lambda \alpha$. $c$ is `sink` > 0, by default the ridge: for
    $\lambda \leq c$ the eigenvalues of $(D + cI)^{-1} A$ lie in $(0, 1]$, so that `step_size`
    $\eta$ in $(0, 2)$ converges for every n. The prediction $k(x)^T \alpha$ is read off the same
    head at the queries, whose own sink is that of `attention`; for that the slot `ahead` runs one
    step ahead of alpha. `ridge` $\lambda$, $c$ and $\eta$ are traced.

    Further keywords are the `Options` of every construction.

    Raises ValueError for a kernel that is not positive, for linear attention and for numbers
    out of range.

    >>> import icl_krr as ik
    >>> model = richardson(ik.Gaussian(), num_features=3, ridge=0.1, steps=16)
    >>> model.depth, model.blocks_per_step
    (18, 1)
    """
    checks.positive_scalar("ridge", ridge)
    eta = richardson_step(step_size)
    if sink is not None:
        checks.positive_scalar("sink", sink)
    attention = options.get("attention")
    if attention == "linear":
        raise ValueError(
            "attention must be softmax: richardson is preconditioned by the softmax normaliser, "
            "got 'linear'"
        )
    if kernel.featured:
        raise unlike(kernel)
    c = jnp.asarray(ridge if sink is None else sink, checks.dtype(options.get("dtype")))
    shift = attention.log_sink if isinstance(attention, Softmax) else 0.0
    sinks = {SUPPORTS: jnp.log(c), QUERIES: shift}
    m = softmax_machine(kernel, num_features, sinks, **options)
    if len(m.patterns) > 1:
        raise unlike(kernel)
    alpha = m.state("alpha", SUPPORTS, "dual coefficients")
    ahead = m.state("ahead", SUPPORTS, "alpha one step later")
    prediction = m.state("prediction", QUERIES, "k(x)^T alpha")

    def step() -> None:
        smoothed = m.smooth(ahead, to="smoothed")
        with m.together():
            m.add(ahead - alpha, to=alpha)
            update()
            m.add(-eta * smoothed, to=ahead)
            m.add(-prediction, to=prediction)
            normaliser = m.normaliser(QUERIES)
            m.multiply((1 / m.scale) * smoothed, normaliser, to=prediction, size=normaliser.slots)

    def update() -> None:
        sink = m.per_output(m.sink())
        m.multiply((jnp.asarray(eta, m.dtype) / c) * (m.y - ridge * ahead), sink, to=ahead, size=1)

    return m.transformer(step, steps=steps, readout=prediction, prologue=update)


def unlike(kernel: Kernel) -> ValueError:
    return ValueError(
        f"kernel must be Exponential() or Gaussian() to be its own preconditioner, got {kernel!r}"
    )
