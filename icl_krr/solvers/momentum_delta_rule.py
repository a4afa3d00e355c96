"""The momentum delta rule: heavy-ball online gradient descent with forgetting."""

from __future__ import annotations

from typing import Unpack

from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel
from ..tasks import Task
from .fast_weights import error, follow, nothing, outer
from .prefix import PrefixOptions
from .results import CausalTrajectory


@checks.suggesting
def momentum_delta_rule(
    kernel: Kernel,
    task: Task,
    *,
    step_size: float | Float[Array, "..."],
    momentum: float | Float[Array, "..."],
    decay: float | Float[Array, "..."] = 1.0,
    steps: int | None = None,
    **options: Unpack[PrefixOptions],
) -> CausalTrajectory:
    r"""Learn the supports one by one, with momentum.

    $$M_i = \theta_i M_{i-1} + \beta_i (y_i - S_{i-1} \phi_i) \phi_i^T, \quad
    S_i = \alpha_i S_{i-1} + \eta_i M_i$$

    $\phi$ are the m features of the kernel. Before that, a log gate $g_i$ multiplies S and M by
    $e^{g_i}$. The coefficients `alpha` are $\beta_i (y_i - S_{i-1} \phi_i)$: the error is that of
    $S_{i-1}$ before it decays. With momentum 0 and decay 1, this is the gated `delta_rule`.

    Args:
        step_size: step size $\eta$ > 0, or a vector $w$ [p] for $\eta_i = \langle w, x_i \rangle$.
        momentum: factor $\theta$ in [0, 1) of the momentum of the support before, or a vector [p].
        decay: factor $\alpha$ in (0, 1] of the state of the support before, or a vector [p].

    Source: Behrouz, Zhong, Mirrokni, Titans, 2025, eq. 9, 10 and 13.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0], [1.0]], y=[2.0, 2.0, 2.0], x_query=[[1.0]])
    >>> path = momentum_delta_rule(Linear(), task, step_size=0.5, momentum=0.5)
    >>> path.along[-1].tolist()
    [0.0, 1.0, 2.0, 2.5]
    """
    checks.obeys("step_size", step_size, "> 0")
    checks.obeys("momentum", momentum, ">= 0 and < 1")
    checks.obeys("decay", decay, "> 0 and <= 1")
    own = {"step_size": step_size, "momentum": momentum, "decay": decay}
    return follow(kernel, task, rule, start, (), steps, options, own)


def start(numbers, width, outputs, dtype):
    return nothing(width, outputs, dtype) * 2


def rule(numbers, states, token):
    S, M = states
    eta, theta, decay = (token.own[name] for name in ("step_size", "momentum", "decay"))
    alpha = token.strength * error(states, token)
    M = theta * token.gate[:, None] * M + outer(token.phi, alpha)
    return (decay * S + eta * M, M), alpha
