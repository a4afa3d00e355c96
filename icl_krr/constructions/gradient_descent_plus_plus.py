"""GD++: gradient descent on features that are preconditioned on the way."""

from __future__ import annotations

from typing import Unpack

from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel
from ..transformer.weights import Transformer
from .assembly.choice import linear_machine
from .assembly.options import Options
from .assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES


def gradient_descent_plus_plus(
    kernel: Kernel,
    *,
    num_features: int,
    steps: int,
    step_size: float | Float[Array, ""],
    curvature: float | Float[Array, ""],
    **options: Unpack[Options],
) -> Transformer:
    r"""A transformer that runs GD++ on least squares, one block a step.

    $$r_{t+1} = r_t - \eta X_t X_t^T r_t, \quad f_{t+1}(x) = f_t(x) + \eta x_t^T X_t^T r_t, \quad
    x_{t+1} = x_t - c X_t^T X_t x_t$$

    for every token's features $x_t$: the second head turns the spectrum of $X X^T$ towards a flat
    one. $\eta$ is `step_size` > 0, $c$ `curvature` >= 0; both are traced. There is no ridge: it
    would have to act through stopping early.

    Further keywords are the `Options` of every construction.

    Raises ValueError for a kernel that is not linear and for numbers out of range.

    Source: von Oswald et al., Transformers learn in-context by gradient descent, 2023.

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
    if not m.layer.is_read:
        raise ValueError(
            "sketch must be a matrix [p, m] for features that change in every step, "
            f"got those of a map, {m.layer.function!r}"
        )
    at = SUPPORTS_AND_QUERIES
    r = m.state("r", SUPPORTS, "residual y - f", starts_as=m.y)
    features = m.state(
        "features", at, "preconditioned x", starts_as=m.features, width=m.features.width
    )
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
