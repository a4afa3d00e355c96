"""The Chebyshev iteration at every token, on the ridge regression of its prefix."""

from __future__ import annotations

from typing import Unpack

from jaxtyping import Array, Float

from .. import checks, step_sizes
from ..kernels import Kernel
from ..transformer.weights import Transformer
from .assembly.construction import construction
from .assembly.prefix import CausalOptions, prefix_sums
from .momentum import iterate


@construction
def prefix_chebyshev(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    steps: int,
    spectrum: tuple | None = None,
    stores_sums: bool = False,
    **options: Unpack[CausalOptions],
) -> Transformer:
    r"""Build a causal transformer that solves a ridge regression at every token, a block a step.

    The equations are those of `icl_krr.solvers.prefix_chebyshev`. The systems $(C_i + \lambda I)
    w_i = b_i$ are those of `prefix_conjugate_gradient`. The bounds $(a, b)$ must hold for all
    prefixes. A prefix with fewer supports than features has the eigenvalue $\lambda$, so use $a =
    \lambda$. With strengths <= 1, $C_i \leq \Phi^T \Phi$, so the largest eigenvalue of the whole
    context is a valid $b$. No step needs an inner product or a division.

    Gated KalmaNet has this iteration for the prefix "inclusive", with a ridge for every token:
    $\lambda_i$ is in proportion to the Frobenius norm of $C_i$, so that a fixed ratio $b / a$ is
    valid for every prefix. It multiplies both key and value by $\beta_i$, which is the `strength`
    $\beta_i^2$, and its n iterations are n + 1 steps. It solves for the query: the predictions are
    the same after every step, because both sides have the same polynomial of $C_i$. The layer mixes
    its solution with the query and multiplies by $1 / \sqrt{d}$; the construction does neither.

    Args:
        ridge, steps: as in `icl_krr.constructions`, which also says what is raised.
        kernel, num_features, stores_sums, options: as in `prefix_sums`.
        spectrum: bounds (low, high) on the eigenvalues of $C_i + \lambda I$ of every prefix, such
            as from `icl_krr.theory.prefix_bounds`; may be traced; required, the default None raises
            an error.

    Returns:
        A `Transformer` with the states w, r, d [T, r m] and prediction.

    Source: Saad, Iterative methods for sparse linear systems, algorithm 12.1; Peng et al., Gated
    KalmaNet: a fading memory layer through test-time ridge regression, 2025.

    >>> import icl_krr as ik
    >>> model = prefix_chebyshev(
    ...     ik.Linear(), num_features=3, ridge=0.1, steps=16, spectrum=(0.1, 9.0)
    ... )
    >>> model.depth, model.blocks_per_step
    (19, 1)
    """
    checks.positive_scalar("ridge", ridge)
    checks.count("steps", steps)
    coefficients = step_sizes.chebyshev(steps, spectrum)
    m = prefix_sums(kernel, num_features, ridge=ridge, stores_sums=stores_sums, **options)
    return iterate(m, ridge, steps, coefficients)
