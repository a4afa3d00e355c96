"""Gradient descent in the function space of the kernel, and gradient descent in alpha."""

from __future__ import annotations

from typing import Unpack

from jaxtyping import Array, Float

from .. import step_sizes
from ..kernels import Kernel
from ..transformer.weights import Transformer
from .assembly.choice import construction, machine
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

    It is that of `icl_krr.solvers.gradient_descent`, with its step size $\eta$: each step adds
    $\eta k(x)^T r_t$ to the prediction. Give either `step_size` or `spectrum`.

    Args:
        kernel, num_features, ridge, steps, options: as in `icl_krr.constructions`,
            which also says what is raised.
        step_size: step size $\eta$ > 0; may be a traced scalar; default: computed from `spectrum`.
        spectrum: bounds (low, high) on the eigenvalues of $A = K + \lambda I$, as from
            `icl_krr.spectral_bounds`; may be traced; default None: `step_size` is given.

    Returns:
        A `Transformer` with the states alpha, r and prediction.

    >>> import icl_krr as ik
    >>> model = gradient_descent(ik.Linear(), num_features=3, ridge=0.1, steps=16, step_size=0.1)
    >>> model.depth, model.blocks_per_step
    (16, 1)
    """
    m = machine(kernel, num_features, **options)
    m.solves(ridge)
    eta = step_sizes.gradient_step(step_size, spectrum)
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
    r"""Build a transformer that runs gradient descent in alpha with two blocks per step.

    It is that of `icl_krr.solvers.gradient_descent_in_alpha`. Compared with `gradient_descent`, a
    step has one more product with $K$. Give either `step_size` or `spectrum`.

    Args:
        kernel, num_features, ridge, steps, options: as in `icl_krr.constructions`,
            which also says what is raised.
        step_size, spectrum: as in `gradient_descent`.

    Returns:
        A `Transformer` with the states alpha, r and prediction.

    >>> import icl_krr as ik
    >>> model = gradient_descent_in_alpha(
    ...     ik.Linear(), num_features=3, ridge=0.1, steps=16, step_size=0.1
    ... )
    >>> model.depth, model.blocks_per_step
    (32, 2)
    """
    m = machine(kernel, num_features, **options)
    m.solves(ridge)
    eta = step_sizes.alpha_step(step_size, spectrum, ridge)
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
