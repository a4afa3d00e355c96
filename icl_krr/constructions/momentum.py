"""Heavy ball and Chebyshev: a direction remembered from step to step, and no sums."""

from __future__ import annotations

from typing import Unpack

import jax
from jaxtyping import Array, Float

from .. import checks, step_sizes
from ..kernels import Kernel
from ..step_sizes import Momentum
from ..transformer.weights import Transformer
from .assembly.choice import machine
from .assembly.machine import Machine
from .assembly.options import Options
from .assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES


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
    r"""A transformer that runs Polyak's heavy ball, one block a step.

    $$\alpha_{t+1} = \alpha_t + p_t, \quad r_{t+1} = r_t - A p_t, \quad
    p_{t+1} = \mu p_t + \eta r_{t+1}$$

    Either `step_size` $\eta$ and `momentum` $\mu$, or `spectrum` = (low, high) = $(a, b)$, bounds
    on the eigenvalues of $A = K + \lambda I$: $\eta = 4 / (\sqrt{b} + \sqrt{a})^2$ and
    $\mu = ((\sqrt{b} - \sqrt{a}) / (\sqrt{b} + \sqrt{a}))^2$. `ridge` $\lambda > 0$, $\eta$ and
    $\mu$ are traced.

    Further keywords are the `Options` of every construction.

    Raises ValueError for missing or surplus arguments, for a kernel that the `attention` cannot
    apply and for numbers out of range.

    Source: Polyak, Some methods of speeding up the convergence of iteration methods, 1964.

    >>> import icl_krr as ik
    >>> model = heavy_ball(ik.Linear(), num_features=3, ridge=0.1, steps=16, spectrum=(0.1, 9.0))
    >>> model.depth, model.blocks_per_step
    (16, 1)
    """
    checks.positive_scalar("ridge", ridge)
    checks.count("steps", steps)
    coefficients = step_sizes.heavy_ball(steps, step_size, momentum, spectrum)
    m = machine(kernel, num_features, **options)
    return iterate(m, ridge, steps, coefficients)


def chebyshev(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    steps: int,
    spectrum: tuple | None = None,
    **options: Unpack[Options],
) -> Transformer:
    r"""A transformer that runs the Chebyshev iteration: no sums, no division, one block a step.

    $$\alpha_{t+1} = \alpha_t + p_t, \quad r_{t+1} = r_t - A p_t, \quad
    p_{t+1} = \mu_t p_t + \eta_t r_{t+1}$$

    `spectrum` = (low, high), bounds on the eigenvalues of $A = K + \lambda I$, fixes every $\mu_t$
    and $\eta_t$ beforehand: the optimal polynomial for that interval. `ridge` $\lambda > 0$ and the
    bounds are traced.

    Further keywords are the `Options` of every construction.

    Raises ValueError without a spectrum, for a kernel that the `attention` cannot apply and for
    numbers out of range.

    Source: Saad, Iterative methods for sparse linear systems, algorithm 12.1.

    >>> import icl_krr as ik
    >>> model = chebyshev(
    ...     ik.Exponential(), num_features=3, ridge=0.1, steps=16, spectrum=(0.1, 9.0)
    ... )
    >>> model.depth, model.blocks_per_step
    (17, 1)
    """
    checks.positive_scalar("ridge", ridge)
    checks.count("steps", steps)
    coefficients = step_sizes.chebyshev(steps, spectrum)
    m = machine(kernel, num_features, **options)
    return iterate(m, ridge, steps, coefficients)


def iterate(
    m: Machine, ridge: Float[Array, ""] | float, steps: int, momentum: Momentum
) -> Transformer:
    alpha = m.state("alpha", SUPPORTS, "dual coefficients")
    r = m.state("r", SUPPORTS, "residual y - A alpha", starts_as=m.y)
    p = m.state("p", SUPPORTS, "direction", starts_as=momentum.first * m.y)
    prediction = m.state("prediction", SUPPORTS_AND_QUERIES, "k(x)^T alpha")

    def step(a: jax.Array, b: jax.Array) -> None:
        Kp = m.kernel_times(p) * (1 / m.scale)
        Ap = Kp + ridge * p
        with m.together():
            m.add(p, to=alpha)
            m.add(Kp, to=prediction)
            m.add(-Ap, to=r)
            m.add((a - 1) * p + b * (r - Ap), to=p)

    return m.transformer(step, steps=steps, readout=prediction, coefficients=momentum[1:])
