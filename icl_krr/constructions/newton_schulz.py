"""Newton-Schulz iteration for the inverse covariance of the features."""

from __future__ import annotations

from typing import Unpack

import jax
from jaxtyping import Array, Float

from .. import checks, step_sizes
from ..kernels import Kernel
from ..transformer.weights import Transformer
from .assembly.choice import linear_machine
from .assembly.options import Options
from .assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES


def newton_schulz(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    steps: int,
    spectrum: tuple | None = None,
    **options: Unpack[Options],
) -> Transformer:
    r"""A transformer that runs $V_{t+1} = V_t (2I - C V_t)$, two blocks a step.

    $C = X^T X + \lambda I$, and $V_0 = s I$ for `spectrum` = (low, high), bounds on the eigenvalues
    of $K + \lambda I$ whose mean is $1 / s$; the prediction is $f(x) = x^T V X^T y$, and
    $\alpha = (y - f) / \lambda$. No token holds the p x p matrix $V$. Its error $E = I - C V$ is
    known by what it does: with $E = eI - \sum_j a_j x_j^T$ over the supports, tokens carry $a$ and
    $v = V x$, and $E V x$ is one linear head, so that $v + E v$ and $E^2$ are

    $$v_i + e v_i - \sum_j a_j x_j^T v_i, \quad a_i \leftarrow 2 e a_i - \sum_j a_j x_j^T a_i, \quad
    e \leftarrow e^2$$

    with $e$, that starts as $1 - s \lambda$, known beforehand. `ridge` $\lambda > 0$ and the bounds
    are traced.

    Further keywords are the `Options` of every construction.

    Raises ValueError without a spectrum, for a kernel that is not linear and for numbers out of
    range.

    Source: Schulz, Iterative Berechnung der reziproken Matrix, 1933; Fu et al., Transformers
    learn to achieve second-order convergence rates for in-context linear regression, 2024.

    >>> import icl_krr as ik
    >>> model = newton_schulz(ik.Linear(), num_features=3, ridge=0.1, steps=5, spectrum=(0.1, 9.0))
    >>> model.depth, model.blocks_per_step
    (11, 2)
    """
    checks.positive_scalar("ridge", ridge)
    checks.count("steps", steps)
    start, e = step_sizes.newton_schulz(steps, ridge, spectrum)
    m = linear_machine(kernel, num_features, **options)
    x = SUPPORTS_AND_QUERIES
    alpha = m.state("alpha", SUPPORTS, "dual coefficients")
    v = m.state("v", x, "V x", starts_as=start * m.features, width=m.features.width)
    a = m.state(
        "a", x, "E x = e x - sum a <x, x>", starts_as=start * m.features, width=m.features.width
    )
    prediction = m.state("prediction", x, "x^T V X^T y")

    def predict() -> None:
        m.head(query=v, key=m.features, value=m.y, to=prediction)
        m.add((1 / ridge) * (m.y - prediction), to=alpha)

    def step(e: jax.Array) -> None:
        Ev, Ea = (
            m.scratch(name, x, "sum_j a_j <x_j, .>", width=m.features.width)
            for name in ("Ev", "Ea")
        )
        m.head(query=v, key=m.features, value=a, to=Ev)
        m.head(query=a, key=m.features, value=a, to=Ea)
        with m.together():
            m.add(e * v - Ev, to=v)
            m.add((2 * e - 1) * a - Ea, to=a)
        for slot in (prediction, alpha):
            m.erase(slot)
        predict()

    return m.transformer(step, steps=steps, readout=prediction, prologue=predict, coefficients=(e,))
