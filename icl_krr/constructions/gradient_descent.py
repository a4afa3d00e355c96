"""Gradient descent in the function space of the kernel, in alpha, and on features that change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from jaxtyping import Array, Float

from .. import checks, step_sizes
from ..kernels import Kernel
from ..residual import Read
from ..transformer.weights import Transformer
from .assembly.choice import construction, linear_machine, machine
from .assembly.machine import Machine
from .assembly.options import Options
from .assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES


@construction
def gradient_descent(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    steps: int,
    step_size: float | Float[Array, ""] | None = None,
    spectrum: tuple | None = None,
    **options: Unpack[Options],
) -> Transformer:
    r"""Build a transformer that runs functional gradient descent with one block per step.

    It is `icl_krr.solvers.gradient_descent`: each step adds $\eta k(x)^T r_t$ to the prediction.
    The states are alpha, r and prediction.

    >>> import icl_krr as ik
    >>> model = gradient_descent(ik.Linear(), num_features=3, ridge=0.1, steps=16, step_size=0.1)
    >>> model.depth, model.blocks_per_step
    (16, 1)
    """
    m = machine(kernel, num_features, **options).solves(ridge)
    eta = step_sizes.gradient_step(step_size, spectrum)
    return descend(m, eta, ridge, steps, lambda r: r)


@construction
def gradient_descent_in_alpha(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    steps: int,
    step_size: float | Float[Array, ""] | None = None,
    spectrum: tuple | None = None,
    **options: Unpack[Options],
) -> Transformer:
    """Build a transformer that runs gradient descent in alpha with two blocks per step.

    It is `icl_krr.solvers.gradient_descent_in_alpha`. The states are alpha, r and prediction.

    >>> import icl_krr as ik
    >>> model = gradient_descent_in_alpha(
    ...     ik.Linear(), num_features=3, ridge=0.1, steps=16, step_size=0.1
    ... )
    >>> model.depth, model.blocks_per_step
    (32, 2)
    """
    m = machine(kernel, num_features, **options).solves(ridge)
    eta = step_sizes.alpha_step(step_size, spectrum, ridge)
    ascent_of = lambda r: m.finish(m.kernel_times(r), to="Kr") * (1 / m.scale)  # noqa: E731
    return descend(m, eta, ridge, steps, ascent_of)


def descend(
    m: Machine, eta: Any, ridge: Any, steps: int, ascent_of: Callable[[Read], Read]
) -> Transformer:
    """alpha += eta a, with the residual r and the prediction of alpha, and the ascent a of r."""
    alpha = m.state("alpha", SUPPORTS, "dual coefficients")
    r = m.state("r", SUPPORTS, "residual y - A alpha", starts_as=m.y)
    prediction = m.state("prediction", SUPPORTS_AND_QUERIES, "k(x)^T alpha")

    def step() -> None:
        ascent = ascent_of(r)
        K_ascent = m.kernel_times(ascent) * (1 / m.scale)
        with m.together():
            m.add(eta * ascent, to=alpha)
            m.add(eta * K_ascent, to=prediction)
            m.add(-eta * (K_ascent + ridge * ascent), to=r)

    return m.transformer(step, steps=steps, readout=prediction)


@construction
def gradient_descent_plus_plus(
    kernel: Kernel,
    *,
    num_features: int,
    steps: int,
    step_size: float | Float[Array, ""],
    curvature: float | Float[Array, ""],
    **options: Unpack[Options],
) -> Transformer:
    """Build a transformer that runs GD++ on least squares with one block per step.

    It is `icl_krr.solvers.gradient_descent_plus_plus`. One head computes the gradient step, a
    second one flattens the spectrum of $X_t X_t^T$. The states are r, features and prediction.

    >>> import icl_krr as ik
    >>> model = gradient_descent_plus_plus(
    ...     ik.Linear(), num_features=3, steps=5, step_size=0.1, curvature=0.05
    ... )
    >>> model.depth, model.blocks_per_step
    (5, 1)
    """
    checks.positive_scalar("step_size", step_size)
    checks.nonnegative_scalar("curvature", curvature)
    m = linear_machine(kernel, num_features, **options)
    at = SUPPORTS_AND_QUERIES
    r = m.state("r", SUPPORTS, "residual y - f", starts_as=m.y)
    features = m.features
    if m.layer.is_read:
        features = m.state("features", at, "preconditioned x", m.features, m.features.width)
    prediction = m.state("prediction", at, "f")

    def step() -> None:
        fall = m.scratch("fall", at, "X X^T r")
        spread = m.scratch("spread", at, "X^T X x", width=m.features.width)
        m.head(query=features, key=features, value=r, to=fall)
        m.head(query=features, key=features, value=features, to=spread)
        m.add(step_size * fall, to=prediction)
        m.add(-step_size * fall, to=r)
        m.add(-curvature * spread, to=features)

    return m.transformer(step, steps=steps, readout=prediction)
