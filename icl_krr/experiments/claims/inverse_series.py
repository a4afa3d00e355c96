"""The series sum_j (-ridge)^j K^-(j+1) of the inverse of K + ridge I, in powers of K^-1 (C5)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from ...kernels import Exponential
from ...linalg import eigh, solve
from ...tasks import GaussianProcess, sample, system


@partial(jax.jit, static_argnames=("num_supports", "steps"))
def inverse_series(
    keys: jax.Array, ratios: jax.Array, *, num_supports: int, steps: int
) -> tuple[jax.Array, jax.Array]:
    """Return the errors of the partial sums times y [draw, ridge, step], and their growth.

    The ridges are `ratios` times sigma_n, the smallest eigenvalue of K. The growth [draw, ridge] in
    one step is that for y = eigenvector of sigma_n. K is well conditioned: its points are in 8
    dimensions and its temperature is low.
    """
    kernel = Exponential(0.2)
    process = GaussianProcess(kernel, num_features=8, num_supports=num_supports, inputs="sphere")

    def once(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        gram, _, y = system(kernel, sample(key, process))
        sigma, vectors = eigh(gram)

        def errors(y: jax.Array, ratio: jax.Array) -> jax.Array:
            ridge = ratio * sigma[0]
            exact = solve(gram + ridge * jnp.eye(len(gram)), y)

            def step(alpha: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
                alpha = solve(gram, y - ridge * alpha)
                return alpha, jnp.linalg.norm(alpha - exact)

            _, gaps = jax.lax.scan(step, jnp.zeros_like(y), length=steps)
            return jnp.concatenate([jnp.ones(1), gaps / jnp.linalg.norm(exact)])

        found, worst = (
            jax.lax.map(partial(errors, outputs), ratios) for outputs in (y, vectors[:, :1])
        )
        return found, worst[:, 1]

    return jax.lax.map(once, keys)
