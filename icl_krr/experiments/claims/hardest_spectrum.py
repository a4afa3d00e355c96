"""The spectrum on which conjugate gradient is slowest."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from ... import constructions, theory
from ...kernels import Linear
from ...numerics import matmul
from ...tasks import Task
from ...transformer import run_with_cache


@partial(jax.jit, static_argnums=0)
def hardest_for_conjugate_gradient(
    degree: int, low: float = 1.0, high: float = 100.0
) -> tuple[jax.Array, ...]:
    """Return the error of CG after t = `degree` steps on the spectrum that is hardest for CG.

    On this spectrum no polynomial of degree t is better than the Chebyshev polynomial T_t. A is
    diagonal, and its eigenvalues sigma_i are the extrema of T_t on [low, high]. Let alpha solve
    A alpha = y. The weights w_i = sigma_i alpha_i^2 make T_t optimal in the A-norm, for two
    reasons. The signs of T_t at the sigma_i alternate. The sum over i of
    w_i sigma_i (-1)^i q(sigma_i) is a divided difference of q, so it is 0 for every polynomial q
    of degree < t.
    """
    theta = jnp.pi * jnp.arange(degree + 1.0) / degree
    sigma = (low + high) / 2 - (high - low) / 2 * jnp.cos(theta)
    ridge = low / 2
    apart = jnp.abs(sigma[:, None] - sigma[None]) + jnp.eye(degree + 1)
    weights = 1 / (sigma * jnp.prod(apart / (high - low), axis=1))
    alpha = jnp.sqrt(weights / sigma)
    x = jnp.diag(jnp.sqrt(sigma - ridge))
    task = Task(x=x, y=sigma * alpha, x_query=x[:1])
    model = constructions.conjugate_gradient(
        Linear(), num_features=degree + 1, ridge=ridge, steps=degree
    )
    _, cache = run_with_cache(model, task, names=("alpha",))
    A = matmul(x, x.T) + ridge * jnp.eye(degree + 1)
    error = theory.energy_norm(A, cache["alpha"][-1] - alpha) / theory.energy_norm(A, alpha)
    rates = (theory.chebyshev_rate, theory.conjugate_gradient_rate)
    return error, *(rate(low, high, degree) for rate in rates)
