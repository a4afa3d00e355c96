"""Richardson's and the Chebyshev iteration, preconditioned by the softmax normaliser."""

from __future__ import annotations

from typing import Any, Unpack

from jaxtyping import Array, Float

from .. import checks, step_sizes
from ..constants import xp
from ..kernels import Kernel, check_kernel, check_positive
from ..transformer.weights import Transformer
from .assembly.choice import construction, softmax_machine
from .assembly.normalised_attention import NormalisedAttention
from .assembly.options import Options, Softmax
from .assembly.slots import QUERIES, SUPPORTS


@construction
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
    r"""Build a transformer that runs preconditioned Richardson iteration with one softmax head.

    It is `icl_krr.solvers.richardson`, one block a step. The softmax normaliser is the
    preconditioner: the head has a sink of weight $c$ and computes $(D + cI)^{-1} K \alpha$, and the
    MLP multiplies $y - \lambda \alpha$ by the sink weight $c / (s_i + c)$. At the queries, where
    the logit of the sink is the `log_sink` of `attention`, the same head gives the prediction. In
    each step, the head first applies $K$ to the slot `ahead`. Then the MLP copies `ahead` to
    `alpha` and updates `ahead`, so that `alpha` and `prediction` belong to the same iterate and
    `ahead` is the next one. These are the states. `attention` must not be "linear".

    >>> import icl_krr as ik
    >>> model = richardson(ik.Gaussian(), num_features=3, ridge=0.1, steps=16)
    >>> model.depth, model.blocks_per_step
    (18, 1)
    """
    eta = step_sizes.richardson_step(step_size)
    if sink is not None:
        checks.positive_scalar("sink", sink)
    c = ridge if sink is None else sink
    m = normalised_machine(kernel, num_features, ridge, c, **options)
    return iterate(m, ridge, c, steps, eta)


@construction
def preconditioned_chebyshev(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    steps: int,
    num_supports: int | Float[Array, ""],
    largest: float | Float[Array, ""] | None = None,
    **options: Unpack[Options],
) -> Transformer:
    r"""Build a transformer that runs the Chebyshev iteration on the head of `richardson`.

    The iteration is `icl_krr.solvers.preconditioned_chebyshev`, with a proof of its rate. A step
    takes one head and one block, with the states of `richardson`. The model is told n, $\lambda$,
    which is also the weight of the sink, and $\kappa$, but nothing of the supports.

    >>> import icl_krr as ik
    >>> model = preconditioned_chebyshev(
    ...     ik.Gaussian(), num_features=3, ridge=0.1, steps=16, num_supports=64
    ... )
    >>> model.depth, model.blocks_per_step
    (18, 1)
    """
    checks.count("steps", steps)
    m = normalised_machine(kernel, num_features, ridge, ridge, **options)
    spectrum = step_sizes.normalised_spectrum(kernel, ridge, num_supports, largest)
    first, *coefficients = step_sizes.chebyshev(steps, spectrum)
    return iterate(m, ridge, ridge, steps, first, tuple(coefficients))


def normalised_machine(
    kernel: Kernel, num_features: int, ridge: Any, sink: Any, **options: Any
) -> NormalisedAttention:
    """Make the softmax machine of a solver that the normaliser with this sink preconditions."""
    check_kernel(kernel)
    check_positive(kernel, "to have a softmax normaliser")
    checks.positive_scalar("ridge", ridge)
    attention = options.get("attention")
    c = xp.asarray(sink, checks.dtype(options.get("dtype")))
    shift = attention.log_sink if isinstance(attention, Softmax) else 0.0
    sinks = {SUPPORTS: xp.log(c), QUERIES: shift}
    m = softmax_machine(kernel, num_features, sinks, NormalisedAttention, **options)
    return m.solves(ridge)


def iterate(
    m: NormalisedAttention, ridge: Any, sink: Any, steps: int, first: Any, coefficients: tuple = ()
) -> Transformer:
    """alpha += b z + a (the last change of alpha), with z = (D + sink)^-1 (y - A alpha).

    The first step has b = `first` and a = 0. The next steps have the `coefficients` (a, b), or
    those of the first step.
    """
    alpha = m.state("alpha", SUPPORTS, "dual coefficients")
    ahead = m.state("ahead", SUPPORTS, "alpha one step later")
    prediction = m.state("prediction", QUERIES, "k(x)^T alpha")
    c = xp.asarray(sink, m.dtype)

    def step(a: Any = None, b: Any = first) -> None:
        smoothed = m.smooth_all(ahead, to="smoothed")
        with m.together():
            m.add(ahead - alpha, to=alpha)
            update(b)
            m.add_smooth(-b, smoothed, to=ahead)
            if a is not None:
                m.add(a * (ahead - alpha), to=ahead)
            m.add(-prediction, to=prediction)
            m.add((1 / m.scale) * m.unnormalised(smoothed), to=prediction)

    def update(b: Any = first) -> None:
        sink = m.per_output(m.sink())
        m.multiply((xp.asarray(b, m.dtype) / c) * (m.y - ridge * ahead), sink, to=ahead, size=1)

    return m.transformer(
        step, steps=steps, readout=prediction, prologue=update, coefficients=coefficients
    )
