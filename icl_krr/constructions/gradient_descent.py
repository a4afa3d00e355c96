"""Gradient descent in the function space of the kernel, and in alpha."""

from __future__ import annotations

from typing import Unpack

from jaxtyping import Array, Float

from .. import checks, step_sizes
from ..kernels import Kernel
from ..transformer.weights import Transformer
from .assembly.choice import machine
from .assembly.options import Options
from .assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES


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
    r"""A transformer that follows the functional gradient, one block a step.

    $$\alpha_{t+1} = \alpha_t + \eta r_t, \quad r_{t+1} = r_t - \eta (K + \lambda I) r_t$$

    $\eta$ is `step_size` > 0, or $2 / (a + b)$ for `spectrum` = (low, high) = $(a, b)$, bounds on
    the eigenvalues of $K + \lambda I$ (`icl_krr.spectral_bounds` has them); one of the two is
    needed. The prediction accumulates as $\eta k(x)^T r_t$. `ridge` $\lambda > 0$ and $\eta$ are
    traced.

    Further keywords are the `Options` of every construction.

    Raises ValueError if neither or both are given, for a kernel that the `attention` cannot
    apply and for numbers out of range.

    >>> import icl_krr as ik
    >>> model = gradient_descent(ik.Linear(), num_features=3, ridge=0.1, steps=16, step_size=0.1)
    >>> model.depth, model.blocks_per_step
    (16, 1)
    """
    checks.positive_scalar("ridge", ridge)
    eta = step_sizes.gradient_step(step_size, spectrum)
    m = machine(kernel, num_features, **options)
    alpha = m.state("alpha", SUPPORTS, "dual coefficients")
    r = m.state("r", SUPPORTS, "residual y - A alpha", starts_as=m.y)
    prediction = m.state("prediction", SUPPORTS_AND_QUERIES, "k(x)^T alpha")

    def step() -> None:
        Kr = m.kernel_times(r) * (1 / m.scale)
        with m.together():
            m.add(eta * r, to=alpha)
            m.add(eta * Kr, to=prediction)
            m.add(-eta * (Kr + ridge * r), to=r)

    return m.transformer(step, steps=steps, readout=prediction)


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
    r"""A transformer that follows the Euclidean gradient in alpha: two blocks a step.

    $$\alpha_{t+1} = \alpha_t + \eta K r_t, \quad r_{t+1} = r_t - \eta (K + \lambda I) K r_t$$

    That of $|y - K \alpha|^2 / 2 + \lambda \alpha^T K \alpha / 2$: one $K$ more than
    `gradient_descent`, and the square of its condition number. $\eta$ is `step_size` > 0, or for
    `spectrum` = (low, high) = $(a, b)$, bounds on the eigenvalues of $K + \lambda I$, it is
    $2 / (a (a - \lambda) + b (b - \lambda))$, or half that where $a = \lambda$. `ridge`
    $\lambda > 0$ and $\eta$ are traced.

    Further keywords are the `Options` of every construction.

    Raises ValueError if neither or both are given, for a kernel that the `attention` cannot
    apply and for numbers out of range.

    >>> import icl_krr as ik
    >>> model = gradient_descent_in_alpha(
    ...     ik.Linear(), num_features=3, ridge=0.1, steps=16, step_size=0.1
    ... )
    >>> model.depth, model.blocks_per_step
    (32, 2)
    """
    checks.positive_scalar("ridge", ridge)
    eta = step_sizes.alpha_step(step_size, spectrum, ridge)
    m = machine(kernel, num_features, **options)
    alpha = m.state("alpha", SUPPORTS, "dual coefficients")
    r = m.state("r", SUPPORTS, "residual y - A alpha", starts_as=m.y)
    prediction = m.state("prediction", SUPPORTS_AND_QUERIES, "k(x)^T alpha")

    def step() -> None:
        ascent = m.finish(m.kernel_times(r), to="Kr") * (1 / m.scale)
        K_ascent = m.kernel_times(ascent) * (1 / m.scale)
        with m.together():
            m.add(eta * ascent, to=alpha)
            m.add(eta * K_ascent, to=prediction)
            m.add(-eta * (K_ascent + ridge * ascent), to=r)

    return m.transformer(step, steps=steps, readout=prediction)
