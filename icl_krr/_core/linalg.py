"""Matrix factorisations, differentiable in forward and reverse mode by implicit differentiation.

On a CPU, `jax.vmap` runs them one after the other: see `xla_workarounds.sequential_on_cpu`.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .numerics import matmul
from .xla_workarounds import sequential_on_cpu


def solve(A: Float[Array, "n n"], b: Float[Array, "n r"]) -> Float[Array, "n r"]:
    """Solve A x = b by Cholesky for a symmetric positive definite A.

    A perturbation changes the solution by A^-1 (db - dA x), so the derivative does not
    differentiate the factorisation. The solution is NaN if A is not positive definite.
    """
    return solution(A, b, *factor_and_solution(A, b))


def factor_and_solution(A: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the Cholesky factor of A and A^-1 b, both without derivatives."""
    return factor_and_solve(*jax.lax.stop_gradient((A, b)))


@jax.custom_jvp
def solution(A: jax.Array, b: jax.Array, lower: jax.Array, x: jax.Array) -> jax.Array:
    """Return x = A^-1 b with its derivatives, which reuse the factor of A."""
    return x


@solution.defjvp
def _solution_jvp(primals, tangents):
    (A, _, lower, _), (dA, db, _, _) = primals, tangents
    x = solution(*primals)
    change = jax.lax.custom_linear_solve(
        partial(matmul, A), db - matmul(dA, x), lambda _, b: substitute(lower, b), symmetric=True
    )
    return x, change


@sequential_on_cpu
def factor_and_solve(A: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    lower = _cholesky(A)
    return lower, jax.scipy.linalg.cho_solve((lower, True), b)


@sequential_on_cpu
def substitute(lower: jax.Array, b: jax.Array) -> jax.Array:
    return jax.scipy.linalg.cho_solve((lower, True), b)


def diagonal_of_inverse(A: Float[Array, "n n"]) -> Float[Array, " n"]:
    """Return the diagonal of A^-1 by Cholesky for a symmetric positive definite A, else NaN."""
    return jnp.diagonal(solve(A, jnp.eye(len(A), dtype=A.dtype)))


@jax.custom_jvp
@jax.jit
def log_determinant(A: Float[Array, "n n"]) -> Float[Array, ""]:
    """Return log det A by Cholesky for a symmetric positive definite A, else NaN.

    A perturbation changes the result by tr(A^-1 dA), so the derivative does not differentiate the
    factorisation.
    """
    return 2 * jnp.sum(jnp.log(jnp.diagonal(factor(A))))


@log_determinant.defjvp
def _log_determinant_jvp(primals, tangents):
    (A,), (dA,) = primals, tangents
    return log_determinant(A), jnp.sum(solve(A, jnp.eye(len(A), dtype=A.dtype)) * dA)


def _cholesky(A: jax.Array) -> jax.Array:
    lower = jax.lax.linalg.cholesky(A, symmetrize_input=False)
    return jnp.where(jnp.all(jnp.isfinite(A)), lower, jnp.nan)  # an infinite A has no solution


factor = sequential_on_cpu(_cholesky)


@jax.custom_jvp
def eigh(A: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Return the eigenvalues, ascending, and the eigenvectors (columns) of a symmetric A.

    If two eigenvalues are equal, the derivatives of their eigenvectors are NaN or infinite.
    """
    return _eigenpairs(A)


@eigh.defjvp
def _eigh_jvp(primals, tangents):
    (A,), (dA,) = primals, tangents
    sigma, vectors = eigh(A)
    rotated = matmul(vectors.T, matmul((dA + dA.T) / 2, vectors))
    gaps = jnp.eye(len(A), dtype=A.dtype) + sigma[None, :] - sigma[:, None]
    mixing = rotated * (1 / gaps - jnp.eye(len(A), dtype=A.dtype))
    return (sigma, vectors), (jnp.diagonal(rotated), matmul(vectors, mixing))


@jax.custom_jvp
def eigenvalues(A: Float[Array, "n n"]) -> Float[Array, " n"]:
    """Return the ascending eigenvalues of a symmetric A, several times faster than `eigh`."""
    return _eigenvalues(A)


@eigenvalues.defjvp
def _eigenvalues_jvp(primals, tangents):
    (A,), (dA,) = primals, tangents
    sigma, vectors = eigh(A)
    return sigma, jnp.sum(vectors * matmul((dA + dA.T) / 2, vectors), axis=0)


@sequential_on_cpu
def _eigenvalues(A: jax.Array) -> jax.Array:
    return jnp.linalg.eigvalsh(A)


@sequential_on_cpu
def _eigenpairs(A: jax.Array) -> tuple[jax.Array, jax.Array]:
    sigma, vectors = jnp.linalg.eigh(A)
    return sigma, vectors
