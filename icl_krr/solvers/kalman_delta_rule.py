"""The Kalman delta rule: gains from a covariance with one number for each feature, or one."""

from __future__ import annotations

from typing import Unpack

import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Kernel
from ..tasks import Task
from .fast_weights import error, follow, nothing, outer
from .prefix import PrefixOptions
from .results import CausalTrajectory


@checks.suggesting
def kalman_delta_rule(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    process_noise: float | Float[Array, " p"] = 0.0,
    covariance: str = "diagonal",
    info_scale: float | Float[Array, ""] = 1.0,
    steps: int | None = None,
    **options: Unpack[PrefixOptions],
) -> CausalTrajectory:
    r"""Learn the supports one by one, with the gains of a Kalman filter that keeps a diagonal only.

    $$\hat p_i = e^{2 g_i} p_{i-1} + \omega_i, \quad
    \kappa_i = \frac{\beta_i \hat p_i \phi_i}{\lambda + \beta_i \langle \hat p_i, \phi_i^2
    \rangle}, \quad S_i = e^{g_i} S_{i-1} + (y_i - e^{g_i} S_{i-1} \phi_i) \kappa_i^T$$
    $$1 / p_i = 1 / \hat p_i + s \beta_i \phi_i^2 / \lambda, \quad p_0 = 1$$

    Products and quotients of the m features $\phi$ are channel by channel; the covariance of the
    coefficients S is $\mathrm{diag}(p)$. The "isotropic" covariance $p I$ has the mean over
    channels of $e^{2 g_i}$ and $\phi_i^2$ in these two recurrences. The coefficients `alpha` are
    the errors.

    The model of the data is that of `prefix_posterior`, prior $N(0, I)$ and noise of variance
    $\lambda / \beta_i$; besides, coefficients are multiplied by $e^{g_i}$ and get noise of variance
    $\omega_i$ at every support. The exact filter has a full covariance. Keys along one channel each
    have a diagonal one, and then both agree; for other keys, the diagonal of $P^{-1}$ is exact and
    its inverse is not.

    Args:
        process_noise: variance $\omega$ >= 0 that every support adds, a number or a vector [p].
        covariance: "diagonal" or "isotropic".
        info_scale: factor s > 0 of what a support adds to the precision $1 / p$.

    Source: Kalman, A new approach to linear filtering and prediction problems, 1960; Kalman Delta
    Networks, 2026.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0], [1.0]], y=[2.0, 4.0], x_query=[[1.0]])
    >>> kalman_delta_rule(Linear(), task, ridge=1.0).along[-1].round(4).tolist()
    [0.0, 1.0, 2.0]
    """
    checks.positive_scalar("ridge", ridge)
    checks.positive_scalar("info_scale", info_scale)
    checks.obeys("process_noise", process_noise, ">= 0")
    checks.choice("covariance", covariance, tuple(STARTS))
    numbers, own = (ridge, info_scale), {"process_noise": process_noise}
    return follow(kernel, task, rule, STARTS[covariance], numbers, steps, options, own)


def diagonal(numbers, width, outputs, dtype):
    return *nothing(width, outputs, dtype), jnp.ones(width, dtype)


def isotropic(numbers, width, outputs, dtype):
    return *nothing(width, outputs, dtype), jnp.ones(1, dtype)


STARTS = {"diagonal": diagonal, "isotropic": isotropic}


def rule(numbers, states, token):
    ridge, info_scale = numbers
    (S, p), omega = states, token.own["process_noise"]
    squares, kept = token.strength * token.phi**2, token.gate**2
    if len(p) == 1:
        added, kept = jnp.mean(squares, keepdims=True), jnp.mean(kept, keepdims=True)
    else:
        added = squares
    predicted = kept * p + omega
    gain = token.strength * predicted * token.phi / (ridge + jnp.sum(predicted * squares))
    alpha = jnp.where(token.learns, error(states, token), 0)
    after = 1 / (1 / predicted + info_scale * added / ridge)
    return (S + outer(gain, alpha), jnp.where(token.learns, after, p)), alpha
