"""Newton-Schulz iteration for the inverse covariance of the features."""

from __future__ import annotations

from typing import Unpack

import jax
from jaxtyping import Array, Float

from .. import checks, step_sizes
from ..kernels import Kernel
from ..transformer.weights import Transformer
from .assembly.choice import construction, linear_machine
from .assembly.options import Options
from .assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES


@construction
def newton_schulz(
    kernel: Kernel,
    *,
    num_features: int,
    ridge: float | Float[Array, ""],
    steps: int,
    spectrum: tuple | None = None,
    **options: Unpack[Options],
) -> Transformer:
    r"""Build a transformer that runs $V_{t+1} = V_t (2I - C V_t)$ with two blocks per step.

    It is `icl_krr.solvers.newton_schulz`. No token stores the matrix $V$. Instead, every token
    stores two vectors, $v = V x$ and $a$. The $a_j$ of the supports represent the error
    $I - C V = eI - \sum_j a_j x_j^T$ with a scalar $e$. One linear head applies this sum to a
    vector, so a step computes

    $$v_i + e v_i - \sum_j a_j x_j^T v_i, \quad a_i \leftarrow 2 e a_i - \sum_j a_j x_j^T a_i, \quad
    e \leftarrow e^2$$

    The scalar $e$ starts as $1 - s \lambda$ for $V_0 = s I$, and is known for all steps before the
    first. The states are alpha, v, a and prediction.

    Source: Fu et al., Transformers learn to achieve second-order convergence rates for in-context
    linear regression, 2024.

    >>> import icl_krr as ik
    >>> model = newton_schulz(ik.Linear(), num_features=3, ridge=0.1, steps=5, spectrum=(0.1, 9.0))
    >>> model.depth, model.blocks_per_step
    (11, 2)
    """
    checks.count("steps", steps)
    m = linear_machine(kernel, num_features, **options).solves(ridge)
    start, e = step_sizes.newton_schulz(steps, ridge, spectrum)
    x, width = SUPPORTS_AND_QUERIES, m.features.width
    alpha = m.state("alpha", SUPPORTS, "dual coefficients")
    v = m.state("v", x, "V x", starts_as=start * m.features, width=width)
    about = "E x = e x - sum a <x, x>"
    a = m.state("a", x, about, starts_as=start * m.features, width=width)
    prediction = m.state("prediction", x, "x^T V X^T y")

    def predict() -> None:
        m.head(query=v, key=m.features, value=m.y, to=prediction)
        m.add((1 / ridge) * (m.y - prediction), to=alpha)

    def step(e: jax.Array) -> None:
        Ev, Ea = (m.scratch(name, x, "sum_j a_j <x_j, .>", width) for name in ("Ev", "Ea"))
        m.head(query=v, key=m.features, value=a, to=Ev)
        m.head(query=a, key=m.features, value=a, to=Ea)
        with m.together():
            m.add(e * v - Ev, to=v)
            m.add((2 * e - 1) * a - Ea, to=a)
        for slot in (prediction, alpha):
            m.erase(slot)
        predict()

    return m.transformer(step, steps=steps, readout=prediction, prologue=predict, coefficients=(e,))
