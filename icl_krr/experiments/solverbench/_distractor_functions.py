"""Functions of a task that answer layer by layer and run no candidate of `identify`.

They have no weights here: these algorithms read supports one after the other or need a solution
that no step of a construction holds. SolverBench gives their answers and hat matrices alone.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._core.linalg import eigh
from ..._core.numerics import matmul
from ...tasks import Task

Path = Float[Array, "steps q"]
Gram = Callable[[jax.Array, jax.Array], jax.Array]
"""A kernel of this library, or any function of points [n, p] and [m, p] to values [n, m]."""


def _regularised_system(kernel: Gram, task: Task, ridge: float) -> tuple[jax.Array, jax.Array]:
    """A = K + ridge I [n, n], and k(x) at the queries [q, n]."""
    gram = kernel(task.x, task.x)
    return gram + ridge * jnp.eye(len(gram), dtype=gram.dtype), kernel(task.x_query, task.x)


def _iterate_predictions(
    kernel: Gram, task: Task, ridge: float, update: Callable[..., jax.Array], steps: int
) -> jax.Array:
    """Predictions [steps + 1, q] of the iterates alpha, alpha <- update(A, alpha)."""
    A, at = _regularised_system(kernel, task, ridge)
    first = jnp.zeros_like(task.y)

    def step(alpha: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        new = update(A, alpha)
        return new, new

    _, alphas = jax.lax.scan(step, first, length=steps)
    return matmul(jnp.concatenate([first[None], alphas]), at.T)


def over_relaxation(kernel: Gram, task: Task, ridge: float, steps: int, omega: float = 1.4) -> Path:
    """Successive over-relaxation (SOR) over the supports in their order."""

    def sweep(A: jax.Array, alpha: jax.Array) -> jax.Array:
        def coordinate(i: jax.Array, alpha: jax.Array) -> jax.Array:
            gap = task.y[i] - jnp.sum(A[i] * alpha)
            return alpha.at[i].add(omega * gap / A[i, i])

        return jax.lax.fori_loop(0, len(A), coordinate, alpha)

    return _iterate_predictions(kernel, task, ridge, sweep, steps)


def anderson(kernel: Gram, task: Task, ridge: float, steps: int, step_size: float) -> Path:
    """Anderson acceleration with memory 1 of gradient descent."""
    A, at = _regularised_system(kernel, task, ridge)

    def residual(alpha: jax.Array) -> jax.Array:
        return step_size * (task.y - matmul(A, alpha[:, None])[:, 0])

    def step(state: tuple, _: None) -> tuple[tuple, jax.Array]:
        previous, current = state
        f, change = residual(current), residual(current) - residual(previous)
        size = jnp.sum(change**2)
        weight = jnp.where(size > 0, jnp.sum(f * change) / jnp.where(size > 0, size, 1), 0)
        new = current + f - weight * (current - previous + change)
        return (current, new), new

    first = jnp.zeros_like(task.y)
    second = residual(first)
    _, alphas = jax.lax.scan(step, (first, second), length=steps - 1)
    return matmul(jnp.concatenate([first[None], second[None], alphas]), at.T)


def spectral(kernel: Gram, task: Task, filters: Callable[[jax.Array], jax.Array]) -> Path:
    """Predictions k(x)^T g_l(K) y; `filters` maps eigenvalues [n] to g_l [layers, n]."""
    sigma, vectors = eigh(kernel(task.x, task.x))
    coefficients = matmul(vectors.T, task.y[:, None])[:, 0]
    alphas = matmul(filters(jnp.maximum(sigma, 0)) * coefficients[None], vectors.T)
    return matmul(alphas, kernel(task.x_query, task.x).T)


def exact(kernel: Gram, task: Task, ridges: Any, shares: Any) -> Path:
    """A share of exact KRR after every layer [steps], with one ridge for each layer [steps]."""
    return spectral(kernel, task, lambda sigma: shares[:, None] / (sigma[None] + ridges[:, None]))


def gradient_flow(kernel: Gram, task: Task, ridge: float, times: Float[Array, " steps"]) -> Path:
    """Gradient descent in continuous time, at one time for each layer."""

    def filters(sigma: jax.Array) -> jax.Array:
        a = (sigma + ridge)[None]
        return -jnp.expm1(-times[:, None] * a) / a

    return spectral(kernel, task, filters)


def descent(kernel: Gram, task: Task, ridge: float, steps: int, step_size: float) -> Path:
    """Gradient descent on any kernel, for kernels without a construction."""

    def update(A: jax.Array, alpha: jax.Array) -> jax.Array:
        return alpha + step_size * (task.y - matmul(A, alpha[:, None])[:, 0])

    return _iterate_predictions(kernel, task, ridge, update, steps)


def laplace(lengthscale: float) -> Gram:
    """The Laplace kernel exp(-|x - z| / lengthscale), which is no kernel of the catalogue."""

    def kernel(x: jax.Array, z: jax.Array) -> jax.Array:
        return jnp.exp(-jnp.sqrt(jnp.sum((x[:, None] - z[None]) ** 2, axis=-1)) / lengthscale)

    return kernel
