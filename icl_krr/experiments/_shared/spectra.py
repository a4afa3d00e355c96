"""Tasks with a chosen feature spectrum and sketches of them, for the claims about width."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ... import sketches
from ..._core.linalg import eigenvalues
from ..._core.messages import unknown_name
from ..._core.numerics import matmul
from ...sketches._matrices import root_inverse
from ...tasks import LinearRegression, Task, sample

SPECTRA: dict[str, Callable[[jax.Array], jax.Array]] = {
    "1/sqrt i": lambda i: 1 / jnp.sqrt(i),
    "1/i": lambda i: 1 / i,
    "1/i^2": lambda i: 1 / i**2,
    "e^(-i/3)": lambda i: jnp.exp(-i / 3),
}
METRIC = "random, best metric"
SKETCHES = ("best", "orthonormal", METRIC, "gaussian", "coordinates", "landmarks", "learned")


def spectral_task(
    key: jax.Array, spectrum: str, num_features: int, num_supports: int, num_queries: int = 1
) -> Task:
    """Linear regression on randomly rotated features with the standard deviations of `SPECTRA`."""
    if spectrum not in SPECTRA:
        raise ValueError(unknown_name("spectrum", spectrum, SPECTRA))
    variances = SPECTRA[spectrum](jnp.arange(1.0, num_features + 1)) ** 2
    sizes: dict[str, Any] = {"num_features": num_features, "num_supports": num_supports}
    return sample(key, LinearRegression(**sizes, num_queries=num_queries, spectrum=variances))


def of_rank(rank: int, key: jax.Array, spectrum: str, p: int, n: int) -> jax.Array:
    """Features [n, p] of a rank below p, with the standard deviations of `SPECTRA`."""
    at, rotation_key = jax.random.split(key)
    x = spectral_task(at, spectrum, rank, n).x
    return matmul(x, sketches.orthonormal(rotation_key, p, rank).T)


def flat_task(key: jax.Array, rank: jax.Array, p: int, n: int, q: int) -> Task:
    """Regression without noise whose kernel matrix has `rank` eigenvalues 1 and others 0."""
    basis, true, at = jax.random.split(key, 3)
    used = (jnp.arange(p) < rank)[None]
    x = jnp.where(used, sketches.orthonormal(basis, n, p), 0)
    queries = jnp.where(used, jax.random.normal(at, (q, p)), 0)
    w = jax.random.normal(true, (p,))
    return Task(x=x, y=jnp.sum(x * w[None], axis=1), x_query=queries)


def ridge_of(sigma: jax.Array, dimension: float) -> jax.Array:
    """Return the ridge at which d_eff equals `dimension`, by bisection on a logarithmic scale."""

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = jnp.sqrt(low * high)
        above = jnp.sum(sigma / (sigma + middle)) > dimension
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    low, high = jax.lax.fori_loop(0, 60, halve, (1e-12 * sigma[-1], 1e3 * sigma[-1]))
    return jnp.sqrt(low * high)


def sketch(name: str, key: jax.Array, x: jax.Array, width: int) -> jax.Array:
    """The sketch of this name in `SKETCHES`, [p, m], for features x [n, p].

    The sketch with a metric R is P R^T [p, p]: queries and keys are R P^T x, read from m channels
    P^T x.
    """
    p = x.shape[1]
    projections = {
        "best": lambda: sketches.best(x, width),
        "orthonormal": lambda: sketches.orthonormal(key, p, width),
        METRIC: lambda: with_metric(projections["orthonormal"](), x),
        "gaussian": lambda: sketches.gaussian(key, p, width),
        "coordinates": lambda: sketches.coordinates(p, width),
        "landmarks": lambda: sketches.landmarks(x, width),
        "learned": lambda: learned_projection(key, x, width),
    }
    return projections[name]()


def metric(P: jax.Array, x: jax.Array) -> jax.Array:
    """The metric R = C P (P^T C P)^+ [p, m] with C = X^T X, whose K^ is the closest to K.

    R P^T x estimates x by least squares. K^ = Q K Q, where Q projects on the columns of X P.
    """
    covariance = matmul(x.T, matmul(x, P))
    root = root_inverse(matmul(P.T, covariance))
    return matmul(matmul(covariance, root), root)


def with_metric(P: jax.Array, x: jax.Array) -> jax.Array:
    """P R^T [p, p] with the R of `metric`."""
    return matmul(P, metric(P, x).T)


def least_lost(P: jax.Array, x: jax.Array, matrix: jax.Array) -> jax.Array:
    """|B - Q B|, the least |B - X P M P^T X^T| (Parrott) of a symmetric B [n, n], Q as in `metric`.

    |B - Q B Q| is at most 2 / sqrt 3 times this if B has no eigenvalue < 0.
    """
    Q = jnp.linalg.qr(matmul(x, P))[0]
    rest = matrix - matmul(Q, matmul(Q.T, matrix))
    return jnp.sqrt(spectral_norm(matmul(rest, rest.T)))


def hiding(P: jax.Array, x: jax.Array, share: float) -> jax.Array:
    """P with the given share of its part along the first principal direction of x."""
    first = sketches.best(x, 1)
    return P - (1 - share) * matmul(first, matmul(first.T, P))


def learned_projection(key: jax.Array, x: jax.Array, width: int, steps: int = 300) -> jax.Array:
    """P [p, m] that minimises |K - K^|_F^2, by Adam from a random orthonormal P."""
    gram, optimiser = matmul(x, x.T), optax.adam(0.03)

    def loss(P: jax.Array) -> jax.Array:
        features = matmul(x, P)
        return jnp.sum((gram - matmul(features, features.T)) ** 2) / jnp.sum(gram**2)

    def step(state: tuple, _: None) -> tuple:
        P, moments = state
        updates, moments = optimiser.update(jax.grad(loss)(P), moments)
        return (optax.apply_updates(P, updates), moments), None

    P = sketches.orthonormal(key, x.shape[1], width)
    (P, _), _ = jax.lax.scan(step, (P, optimiser.init(P)), length=steps)
    return P


def spectral_norm(matrix: jax.Array) -> jax.Array:
    """Spectral norm |M|_2 of a symmetric matrix M."""
    return jnp.max(jnp.abs(eigenvalues(matrix)))
