"""Factorisations, never several at once on the CPU.

Batched LAPACK calls that run at the same time (independent parts of one program, two threads,
several host devices) wait for each other's threads in jaxlib and hang for good. So a batch of
factorisations is a loop of single ones there: they do not, and on small matrices they are as
fast. All is differentiable in both modes, and by implicit differentiation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Float

from .numerics import matmul


def one_by_one(function: Callable) -> Callable:
    """The function, its batches made by a loop on the CPU, by itself elsewhere."""
    looped = sequential_vmap(function)

    def call(*args: Any) -> Any:
        return (looped if jax.default_backend() == "cpu" else function)(*args)

    return call


def solve(A: Float[Array, "n n"], b: Float[Array, "n r"]) -> Float[Array, "n r"]:
    """A^-1 b for a symmetric positive definite A, by Cholesky; NaN where A is not.

    A perturbation moves the solution by A^-1 (db - dA x): no derivative of the factorisation
    is taken.

    >>> solve(4 * jnp.eye(2), jnp.ones((2, 1))).tolist()
    [[0.25], [0.25]]
    """
    return factor_and_solution(A, b)[1]


@jax.custom_jvp
def factor_and_solution(A: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The factor, which serves other solves and has no derivative, and A^-1 b."""
    return factor_and_solve(A, b)


@factor_and_solution.defjvp
def _solve_jvp(primals, tangents):
    (A, _), (dA, db) = primals, tangents
    lower, x = factor_and_solution(*primals)
    change = jax.lax.custom_linear_solve(
        partial(matmul, A),
        db - matmul(dA, x),
        lambda _, right: substitute(jax.lax.stop_gradient(lower), right),
        symmetric=True,
    )
    return (lower, x), (jnp.zeros_like(lower), change)


@one_by_one
def factor_and_solve(A: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    lower = jax.lax.linalg.cholesky(A, symmetrize_input=False)
    return lower, jax.scipy.linalg.cho_solve((lower, True), b)


@one_by_one
def substitute(lower: jax.Array, b: jax.Array) -> jax.Array:
    return jax.scipy.linalg.cho_solve((lower, True), b)


@jax.custom_jvp
def log_determinant(A: Float[Array, "n n"]) -> Float[Array, ""]:
    """log det A of a symmetric positive definite A, by Cholesky; NaN where A is not.

    A perturbation changes it by tr(A^-1 dA): no derivative of the factorisation is taken.

    >>> float(log_determinant(jnp.eye(3)))
    0.0
    """
    return 2 * jnp.sum(jnp.log(jnp.diagonal(factor(A))))


@log_determinant.defjvp
def _log_determinant_jvp(primals, tangents):
    (A,), (dA,) = primals, tangents
    inverse = solve(A, jnp.eye(len(A), dtype=A.dtype))
    return log_determinant(A), jnp.sum(inverse * dA)


@one_by_one
def factor(A: jax.Array) -> jax.Array:
    return jax.lax.linalg.cholesky(A, symmetrize_input=False)


@jax.custom_jvp
def eigh(A: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Eigenvalues of a symmetric A, ascending, and its eigenvectors as columns.

    Where eigenvalues coincide their vectors have no derivative: it is not finite.

    >>> eigh(jnp.diag(jnp.array([2.0, 1.0])))[0].tolist()
    [1.0, 2.0]
    """
    return eigenpairs(A)


@eigh.defjvp
def _eigh_jvp(primals, tangents):
    (A,), (dA,) = primals, tangents
    sigma, vectors = eigh(A)
    turned = matmul(vectors.T, matmul((dA + dA.T) / 2, vectors))
    apart = jnp.eye(len(A), dtype=A.dtype) + sigma[None, :] - sigma[:, None]
    mixing = turned * (1 / apart - jnp.eye(len(A), dtype=A.dtype))
    return (sigma, vectors), (jnp.diagonal(turned), matmul(vectors, mixing))


@one_by_one
def eigenpairs(A: jax.Array) -> tuple[jax.Array, jax.Array]:
    sigma, vectors = jnp.linalg.eigh(A)
    return sigma, vectors
