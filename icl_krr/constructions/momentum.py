"""Heavy ball and the Chebyshev iteration: gradient steps with momentum, without inner products."""

from __future__ import annotations

from typing import Any, Unpack

import jax
from jaxtyping import Array, Float

from .. import checks, step_sizes
from ..kernels import Kernel
from ..step_sizes import Momentum
from ..transformer.weights import Transformer
from .assembly.choice import construction, machine
from .assembly.machine import Machine
from .assembly.options import Options
from .assembly.prefix import CausalOptions, prefix_sums
from .conjugate_gradient import states


@construction
def heavy_ball(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    steps: int,
    step_size: float | Float[Array, ""] | None = None,
    momentum: float | Float[Array, ""] | None = None,
    spectrum: tuple | None = None,
    **options: Unpack[Options],
) -> Transformer:
    r"""Build a transformer that runs Polyak's heavy-ball method with one block per step.

    Equations and coefficients are those of `icl_krr.solvers.heavy_ball`. Give either `step_size`
    and `momentum`, or `spectrum`. The states are alpha, r, p and prediction.

    Args:
        step_size, spectrum: as in `gradient_descent`.
        kernel, num_features, ridge, steps, options: as in `icl_krr.constructions`.
        momentum: momentum $\mu$ >= 0; may be a traced scalar; default: computed from `spectrum`.

    Source: Polyak, Some methods of speeding up the convergence of iteration methods, 1964.

    >>> import icl_krr as ik
    >>> model = heavy_ball(ik.Linear(), num_features=3, ridge=0.1, steps=16, spectrum=(0.1, 9.0))
    >>> model.depth, model.blocks_per_step
    (16, 1)
    """
    checks.count("steps", steps)
    m = machine(kernel, num_features, **options).solves(ridge)
    return iterate(m, ridge, steps, step_sizes.heavy_ball(steps, step_size, momentum, spectrum))


@construction
def chebyshev(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    steps: int,
    spectrum: tuple | None = None,
    **options: Unpack[Options],
) -> Transformer:
    r"""Build a transformer that runs the Chebyshev iteration with one block per step.

    The equations are those of `icl_krr.solvers.chebyshev`, from $p_0 = 2 y / (a + b)$ for
    `spectrum` $= (a, b)$. The weights contain all $\mu_t$ and $\eta_t$, so no step needs an inner
    product or a division. The residual polynomial is optimal for the interval $[a, b]$. The states
    are alpha, r, p and prediction.

    Args:
        kernel, num_features, ridge, steps, spectrum, options: as in `icl_krr.constructions`.

    Source: Saad, Iterative methods for sparse linear systems, algorithm 12.1.

    >>> import icl_krr as ik
    >>> model = chebyshev(
    ...     ik.Exponential(), num_features=3, ridge=0.1, steps=16, spectrum=(0.1, 9.0)
    ... )
    >>> model.depth, model.blocks_per_step
    (17, 1)
    """
    checks.count("steps", steps)
    m = machine(kernel, num_features, **options).solves(ridge)
    return iterate(m, ridge, steps, step_sizes.chebyshev(steps, spectrum))


@construction
def prefix_chebyshev(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""] | Float[Array, " m"],
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
    context is a valid $b$. No step needs an inner product or a division. The states are w, r, d
    [T, r m] and prediction.

    Gated KalmaNet has this iteration for the prefix "inclusive", with a ridge for every token:
    $\lambda_i$ is in proportion to the Frobenius norm of $C_i$, so that a fixed ratio $b / a$ is
    valid for every prefix. It multiplies both key and value by $\beta_i$, which is the `strength`
    $\beta_i^2$, and its n iterations are n + 1 steps. It solves for the query: the predictions are
    the same after every step, because both sides have the same polynomial of $C_i$. The layer mixes
    its solution with the query and multiplies by $1 / \sqrt{d}$; the construction does neither.

    Args:
        steps: as in `icl_krr.constructions`, which also says what is raised.
        ridge: as in `prefix_conjugate_gradient`.
        kernel, num_features, stores_sums, options: as in `prefix_sums`.
        spectrum: bounds (low, high) on the eigenvalues of $C_i + \lambda I$ of every prefix, such
            as from `icl_krr.theory.prefix_bounds`; may be traced; required, the default None raises
            an error.

    Source: Saad, Iterative methods for sparse linear systems, algorithm 12.1; Peng et al., Gated
    KalmaNet: a fading memory layer through test-time ridge regression, 2025.

    >>> import icl_krr as ik
    >>> model = prefix_chebyshev(
    ...     ik.Linear(), num_features=3, ridge=0.1, steps=16, spectrum=(0.1, 9.0)
    ... )
    >>> model.depth, model.blocks_per_step
    (19, 1)
    """
    checks.count("steps", steps)
    m = prefix_sums(kernel, num_features, ridge=ridge, stores_sums=stores_sums, **options)
    return iterate(m, m.each_ridge(ridge), steps, step_sizes.chebyshev(steps, spectrum))


def iterate(m: Machine, ridge: Any, steps: int, momentum: Momentum) -> Transformer:
    alpha, r, p, prediction = states(m, momentum.first * m.right, "direction")

    def step(a: jax.Array, b: jax.Array) -> None:
        Kp = m.kernel_times(p) * (1 / m.scale)
        Ap = Kp + ridge * p
        with m.together():
            m.add(p, to=alpha)
            m.add_fit(p, Kp, to=prediction)
            m.add(-Ap, to=r)
            m.add((a - 1) * p + b * (r - Ap), to=p)

    return m.transformer(step, steps=steps, readout=prediction, coefficients=momentum[1:])
