"""Richardson's and the Chebyshev iteration, preconditioned by the softmax normaliser."""

from __future__ import annotations

from typing import Any, Unpack

from jaxtyping import Array, Float

from .. import checks, step_sizes
from ..constants import xp
from ..kernels import Kernel, PositiveKernel, check_kernel
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

    $$\alpha_{t+1} = \alpha_t + \eta (D + cI)^{-1} (y - A \alpha_t), \quad A = K + \lambda I$$

    The diagonal matrix $D$ holds the row sums $s_i$ of $K$ over the supports. The softmax
    normaliser is the preconditioner: the head has a sink of weight $c$ and computes
    $(D + cI)^{-1} K \alpha$. The MLP multiplies $y - \lambda \alpha$ by the sink weight
    $c / (s_i + c)$. If $\lambda \leq c$, the eigenvalues of $(D + cI)^{-1} A$ are in $(0, 1]$, and
    the iteration converges for every n and every $\eta$ in $(0, 2)$. A step takes one block.

    At the queries, the same head gives the prediction $k(x)^T \alpha$. There, the logit of the sink
    is the `log_sink` of `attention`. In each step, the head first applies $K$ to the slot `ahead`.
    Then the MLP copies `ahead` to the slot `alpha` and updates `ahead`. After the step, the slots
    `alpha` and `prediction` belong to the same iterate $\alpha_t$, and `ahead` contains
    $\alpha_{t+1}$. The states are alpha, ahead and prediction.

    Args:
        num_features, ridge, steps: as in `icl_krr.constructions`, which also says what is raised.
        kernel: `Exponential`, `Gaussian` or a Matern kernel; its numbers may be traced.
        step_size: step size $\eta$, > 0 and < 2, 1 by default; may be a traced scalar.
        sink: weight $c$ > 0 of the sink at the supports; may be a traced scalar; default: `ridge`.
        options: further keywords, explained in `Options`; `attention` must not be "linear".

    >>> import icl_krr as ik
    >>> model = richardson(ik.Gaussian(), num_features=3, ridge=0.1, steps=16)
    >>> model.depth, model.blocks_per_step
    (18, 1)
    """
    eta = step_sizes.richardson_step(step_size)
    if sink is not None:
        checks.positive_scalar("sink", sink)
    c = ridge if sink is None else sink
    m = normalised_machine("richardson", kernel, num_features, ridge, c, **options)
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

    $$z_t = (D + \lambda I)^{-1} (y - A \alpha_t), \quad
    \alpha_{t+1} = \alpha_t + b_t z_t + a_t (\alpha_t - \alpha_{t-1}), \quad A = K + \lambda I$$

    The diagonal matrix $D$ holds the row sums of $K$ over the supports. A step takes one head and
    one block, like a step of `richardson`, and needs no more states: `ahead` and `alpha` are
    $\alpha_{t+1}$ and $\alpha_t$.

    **Theorem.** Let $0 \leq k \leq \kappa$ and let K be positive semidefinite. Then the eigenvalues
    of $(D + \lambda I)^{-1} A$ are in $[\lambda / (n \kappa + \lambda), 1]$, and the error in the
    A-norm after t steps is at most $1 / T_t(1 + 2 \lambda / (n \kappa))$ times the initial error,
    where $T_t$ is the Chebyshev polynomial. So $O(\sqrt{n \kappa / \lambda} \log(1 / \epsilon))$
    blocks reach the error $\epsilon$, where `richardson` needs
    $O((n \kappa / \lambda) \log(1 / \epsilon))$.

    *Proof.* $(D + \lambda I)^{-1} A$ is similar to a symmetric positive definite matrix, so its
    eigenvalues are real. Its entries are >= 0 and its row sums are $(s_i + \lambda) /
    (s_i + \lambda) = 1$, so no eigenvalue exceeds 1. As $s_i \leq n \kappa$, its smallest
    eigenvalue is at least that of $A$ over $n \kappa + \lambda$, and $A \geq \lambda I$. The matrix
    is self-adjoint in the inner product of $A$, so the residual polynomial on this interval, the
    scaled Chebyshev polynomial, bounds the error in the A-norm. Its value is $1 / T_t(\theta /
    \delta)$ with centre $\theta$ and half length $\delta$, and $\theta / \delta = 1 + 2 \lambda /
    (n \kappa)$. ∎

    So the model is told n, $\lambda$ and $\kappa$, but nothing of the supports.
    `icl_krr.theory.budget` computes the number of steps for an error. The states are alpha, ahead
    and prediction.

    Args:
        num_features, steps: as in `icl_krr.constructions`, which also says what is raised.
        kernel: `Exponential`, `Gaussian` or a Matern kernel; its numbers may be traced.
        ridge: ridge $\lambda$ > 0, which is also the weight of the sink; may be a traced scalar.
        num_supports: largest number of supports n, >= 1; may be traced.
        largest: bound $\kappa$ > 0 on all values of the kernel; may be traced. Default None: 1 for
            `Gaussian` and Matern kernels; other kernels need a value.
        options: further keywords, explained in `Options`; `attention` must not be "linear".

    Source: Golub and Varga, Chebyshev semi-iterative methods, 1961, with the normaliser of the
    in-context KRR theorems as preconditioner.

    >>> import icl_krr as ik
    >>> model = preconditioned_chebyshev(
    ...     ik.Gaussian(), num_features=3, ridge=0.1, steps=16, num_supports=64
    ... )
    >>> model.depth, model.blocks_per_step
    (18, 1)
    """
    checks.count("steps", steps)
    name = "preconditioned_chebyshev"
    m = normalised_machine(name, kernel, num_features, ridge, ridge, **options)
    spectrum = step_sizes.normalised_spectrum(kernel, ridge, num_supports, largest)
    first, *coefficients = step_sizes.chebyshev(steps, spectrum)
    return iterate(m, ridge, ridge, steps, first, tuple(coefficients))


def normalised_machine(
    solver: str, kernel: Kernel, num_features: int, ridge: Any, sink: Any, **options: Any
) -> NormalisedAttention:
    """Make the softmax machine of a solver that the normaliser with this sink preconditions."""
    check_kernel(kernel)
    checks.positive_scalar("ridge", ridge)
    attention = options.get("attention")
    if attention == "linear":
        raise ValueError(
            f"attention must be 'softmax' for {solver}, which is preconditioned by the softmax "
            "normaliser, got 'linear'"
        )
    if not isinstance(kernel, PositiveKernel):
        raise ValueError(
            f"kernel must be Exponential(), Gaussian() or a Matern kernel for {solver}, "
            f"got {kernel!r}"
        )
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
