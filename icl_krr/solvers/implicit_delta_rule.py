"""The implicit delta rule: a proximal step in closed form for each support."""

from __future__ import annotations

from typing import Any

from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel
from ..tasks import Task
from .delta_rule import IMPLICIT, learn
from .results import CausalTrajectory


@checks.suggesting
def implicit_delta_rule(
    kernel: Kernel,
    task: Task,
    *,
    step_size: float | Float[Array, ""],
    steps: int | None = None,
    prefix: str = "exclusive",
    log_gate: Any = None,
    strength: Any = None,
    window: int | None = None,
) -> CausalTrajectory:
    r"""Learn the supports one by one, each by an implicit step.

    $$\alpha_i = \frac{\eta \beta_i}{1 + \eta \beta_i k(x_i, x_i)} (y_i - f_i), \quad
    f_i = \sum_{j < i} e^{G_i - G_j} k(x_i, x_j) \alpha_j$$

    Iterate t has learned from the first t supports that are not masked.

    Args:
        kernel, task, prefix, log_gate, strength, window: as in `icl_krr.solvers`,
            which also says what is raised.
        step_size: step size $\eta$ > 0.
        steps: number of supports to learn from, >= 1; default None: all n.

    Source: Liu et al., Longhorn: state space models are amortized online learners, 2024, eq. 4.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 2.0], x_query=[[1.0]])
    >>> implicit_delta_rule(Linear(), task, step_size=1.0).along[-1].tolist()
    [0.0, 1.0, 1.5]
    """
    checks.positive_scalar("step_size", step_size)
    given = {"prefix": prefix, "log_gate": log_gate, "strength": strength, "window": window}
    return learn(kernel, task, (step_size, None, IMPLICIT), steps, **given)
