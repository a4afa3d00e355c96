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
    """Build a transformer that runs Polyak's heavy-ball method with one block per step.

    It is `icl_krr.solvers.heavy_ball`. The states are alpha, r, p and prediction.

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

    It is `icl_krr.solvers.chebyshev`. The weights contain all $\mu_t$ and $\eta_t$, so no step
    needs an inner product or a division. The states are alpha, r, p and prediction.

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
    """Build a causal transformer that solves a ridge regression at every token, a block a step.

    It is `icl_krr.solvers.prefix_chebyshev`, without inner products or divisions. The states are w,
    r, d [T, r m] and prediction.

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
