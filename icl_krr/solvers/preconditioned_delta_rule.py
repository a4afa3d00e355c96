"""The preconditioned delta rule: each feature has a step size of its own, from its curvature."""

from __future__ import annotations

from typing import Unpack

import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks, step_sizes
from ..kernels import Kernel
from ..tasks import Task
from .fast_weights import error, follow, nothing, outer
from .prefix import PrefixOptions, num_features
from .results import CausalTrajectory


@checks.suggesting
def preconditioned_delta_rule(
    kernel: Kernel,
    task: Task,
    *,
    step_size: float | Float[Array, ""],
    initial: float | Float[Array, " m"] = 1.0,
    squash: float | Float[Array, ""] | None = None,
    center: float | Float[Array, ""] = 0.0,
    steps: int | None = None,
    **options: Unpack[PrefixOptions],
) -> CausalTrajectory:
    r"""Learn the supports one by one, with the step of each feature divided by its curvature.

    $$A_i = e^{g_i} A_{i-1} + \beta_i \phi_i^2, \quad
    S_i = e^{g_i} S_{i-1} + \eta \beta_i (y_i - e^{g_i} S_{i-1} \phi_i) (M_i \phi_i)^T$$

    Squares, quotients and products of the m features $\phi$ are channel by channel.
    $M_i = 1 / A_i$, or with `squash` s, $M_i = s^{-u_i / (1 + |u_i|)}$ with $u_i = \log A_i - c$,
    which is between $1 / s$ and $s$. For $M = 1 / A$, choose the step size with care: the error at
    $\phi_i$ is multiplied by $1 - \eta \beta_i \sum_c \phi_{ic}^2 / A_{ic}$, and this sum can reach
    m.

    Args:
        step_size: step size $\eta$ > 0.
        initial: initial curvature $A_0$ > 0, a number or a vector [m].
        squash: base s > 1; default None: $M = 1 / A$.
        center: center c, used with `squash`.

    Source: Duchi, Hazan, Singer, Adaptive subgradient methods, 2011; Tumma, Loo, Rus, 2026.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 2.0], x_query=[[1.0]])
    >>> path = preconditioned_delta_rule(Linear(), task, step_size=0.5)
    >>> path.along[-1].round(4).tolist()
    [0.0, 0.5, 0.75]
    """
    checks.positive_scalar("step_size", step_size)
    step_sizes.check_curvature(initial, squash, center, num_features(kernel, task))
    numbers, strength = (step_size, initial, squash, center), options.get("strength")
    own = {"strength": 1.0 if strength is None else strength}  # also of supports yet to learn
    return follow(kernel, task, rule, start, numbers, steps, options, own)


def start(numbers, width, outputs, dtype):
    return *nothing(width, outputs, dtype), jnp.broadcast_to(numbers[1], width)


def rule(numbers, states, token):
    step_size, _, squash, center = numbers
    S, A = states
    A = token.gate * A + token.own["strength"] * token.phi**2
    A = jnp.maximum(A, jnp.finfo(A.dtype).tiny ** 0.8)
    if squash is None:
        M = 1 / A
    else:
        u = jnp.log(A) - center
        M = squash ** (-u / (1 + jnp.abs(u)))
    alpha = step_size * token.strength * error(states, token)
    return (S + outer(M * token.phi, alpha), A), alpha
