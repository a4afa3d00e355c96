"""The implicit delta rule: a proximal step in closed form for each support."""

from __future__ import annotations

from typing import Unpack

from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel
from ..tasks import Task
from .delta_rule import IMPLICIT, learn
from .prefix import PrefixOptions
from .results import CausalTrajectory


@checks.suggesting
def implicit_delta_rule(
    kernel: Kernel,
    task: Task,
    *,
    step_size: float | Float[Array, ""],
    steps: int | None = None,
    **options: Unpack[PrefixOptions],
) -> CausalTrajectory:
    r"""Learn the supports one by one, each by an implicit step.

    $$\alpha_i = \frac{\eta \beta_i}{1 + \eta \beta_i k(x_i, x_i)} (y_i - f_i), \quad
    f_i = \sum_{j < i} e^{G_i - G_j} k(x_i, x_j) \alpha_j$$

    This minimises $|S - S_{i-1}|^2 + \eta_i |y_i - S \phi_i|^2$ with $\eta_i = \eta \beta_i$, so it
    never steps too far: the error at $x_i$ shrinks by the factor $1 / (1 + \eta_i k(x_i, x_i))$ for
    every step size. For $\eta \to \infty$, it is `delta_rule` with `normalised` and step size 1.

    Args:
        step_size: step size $\eta$ > 0.

    Source: Kulis and Bartlett, Implicit online learning, 2010.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 2.0], x_query=[[1.0]])
    >>> implicit_delta_rule(Linear(), task, step_size=1.0).along[-1].tolist()
    [0.0, 1.0, 1.5]
    """
    checks.positive_scalar("step_size", step_size)
    return learn(kernel, task, (step_size, None, IMPLICIT), steps, options)
