"""The Chebyshev iteration, preconditioned by the softmax normaliser."""

from __future__ import annotations

from typing import Unpack

from jaxtyping import Array, Float

from .. import checks, step_sizes
from ..kernels import Kernel
from ..transformer.weights import Transformer
from .assembly.construction import construction
from .assembly.options import Options
from .richardson import check_normalised, iterate, normalised_machine


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
    \alpha_{t+1} = \alpha_t + a_t z_t + b_t (\alpha_t - \alpha_{t-1}), \quad A = K + \lambda I$$

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
    `icl_krr.theory.budget` computes the number of steps for an error.

    Args:
        num_features, steps: as in `icl_krr.constructions`, which also says what is raised.
        kernel: `Exponential` or `Gaussian`; its numbers may be traced.
        ridge: ridge $\lambda$ > 0, which is also the weight of the sink; may be a traced scalar.
        num_supports: largest number of supports n, >= 1; may be traced.
        largest: bound $\kappa$ > 0 on all values of the kernel; may be traced. Default None: 1 for
            `Gaussian`; other kernels need a value.
        options: further keywords, explained in `Options`; `attention` must not be "linear".

    Returns:
        A `Transformer` with the states alpha, ahead and prediction.

    Raises:
        ValueError: the kernel is not positive or is a mixture, `largest` is missing, the attention
            is "linear", or a number is out of range.

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
    check_normalised(name, kernel, ridge, options.get("attention"))
    spectrum = step_sizes.normalised_spectrum(kernel, ridge, num_supports, largest)
    first, *coefficients = step_sizes.chebyshev(steps, spectrum)
    m = normalised_machine(name, kernel, num_features, ridge, ridge, **options)
    return iterate(m, ridge, ridge, steps, first, tuple(coefficients))
