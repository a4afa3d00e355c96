"""GD++: gradient descent on features that a preconditioner changes at every step."""

from __future__ import annotations

from typing import Unpack

from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel
from ..transformer.weights import Transformer
from .assembly.choice import construction, linear_machine
from .assembly.options import Options
from .assembly.slots import SUPPORTS, SUPPORTS_AND_QUERIES


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
    r"""Build a transformer that runs GD++ on least squares with one block per step.

    $$r_{t+1} = r_t - \eta X_t X_t^T r_t, \quad f_{t+1}(x) = f_t(x) + \eta x_t^T X_t^T r_t, \quad
    x_{t+1} = x_t - c X_t^T X_t x_t$$

    Here $x_t$ are the features of a token and $X_t$ the features of all supports after t steps.
    One head computes the gradient step. A second head flattens the spectrum of $X_t X_t^T$. GD++
    has no ridge; the number of steps regularises the solution.

    Args:
        num_features, steps, options: as in `icl_krr.constructions`, which also says what is raised.
        kernel: linear kernel; GD++ works on its features.
        step_size: step size $\eta$ > 0; may be a traced scalar.
        curvature: strength $c$ >= 0 of the update of the features; may be a traced scalar.

    Returns:
        A `Transformer` with the states r, features and prediction.

    Raises:
        ValueError: the kernel is not linear, `sketch` is a feature map, the attention is not
            "linear", or a number is out of range.

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
            "sketch must be a matrix [p, m] for gradient_descent_plus_plus, which updates the "
            f"features in every step, got a feature map with {m.layer.function!r} units"
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
