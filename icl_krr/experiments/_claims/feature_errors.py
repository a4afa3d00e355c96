"""Errors of random features: at given points, for C21, C46 and C47, and in a ball, for C33."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, Features, Transformer, constructions
from ..._core.numerics import matmul
from ...sketches import RandomFeatures, positive_features, trigonometric_features

MAPS = {"positive": positive_features, "trigonometric": trigonometric_features}


def scores(d: int) -> Exponential:
    """The kernel exp(<q, k> / sqrt(d))."""
    return Exponential(float(np.sqrt(d)))


def drawn(key: jax.Array, d: int, m: int, kind: str, *, orthogonal: bool = True) -> RandomFeatures:
    """Random features of exp(<q, k> / sqrt(d)) from m frequencies."""
    width = m if kind == "positive" else 2 * m
    return MAPS[kind](key, scores(d), num_features=d, width=width, orthogonal=orthogonal)


def sums(phi: RandomFeatures, **options: Any) -> Transformer:
    """Linear attention of sums phi(x)^T phi(x_j) y_j: one step of gradient descent from 0."""
    options |= {"ridge": 1.0, "steps": 1, "step_size": 1.0}
    return constructions.gradient_descent(Features(phi), **options)


def block_means(phi: RandomFeatures, x: jax.Array, z: jax.Array, block: int) -> jax.Array:
    """Estimate k(x, z) from each block of so many frequencies [blocks, n, m]."""
    # positive features have one feature for each frequency, the others a cosine and a sine
    count = len(phi.frequencies)
    parts = [phi(points).reshape(len(points), -1, count // block, block) for points in (x, z)]
    return count / block * jnp.einsum("ipbc,jpbc->bij", *parts, precision="highest")


def estimates(
    phi: RandomFeatures, x: jax.Array, z: jax.Array, widths: tuple[int, ...], block: int
) -> jax.Array:
    """Estimate k(x, z) from the first features of a map, for each width [width, n, m]."""
    sums = jnp.cumsum(block_means(phi, x, z, block), axis=0)
    counts = [width * len(phi.frequencies) // (phi.width * block) for width in widths]
    return jnp.stack([sums[count - 1] / count for count in counts])


def shares(weights: jax.Array) -> jax.Array:
    """Attention weights with the sum 1, from estimates of the kernel [..., query, support]."""
    return weights / jnp.sum(weights, axis=-1, keepdims=True)


def distance(weights: jax.Array, exact: jax.Array) -> jax.Array:
    """Total-variation distance of attention weights, mean over the queries [...]."""
    return jnp.mean(jnp.sum(jnp.abs(shares(weights) - shares(exact)), axis=-1), axis=-1) / 2


def score_error(pair: jax.Array, omega: jax.Array, weights: jax.Array, d: jax.Array) -> jax.Array:
    """The error of the estimate of exp(<q, k> / sqrt(d)) for a pair (q, k) [2, d]."""
    q, k = pair
    half = jnp.sum(pair * pair) / (2 * jnp.sqrt(d))
    estimate = jnp.exp(half) * jnp.sum(weights * jnp.cos(matmul(omega, q - k)))
    return jnp.abs(estimate - jnp.exp(jnp.sum(q * k) / jnp.sqrt(d)))


@partial(jax.jit, static_argnames="config")
def largest(
    keys: jax.Array, frequencies: jax.Array, radii: jax.Array, dims: jax.Array, config: Any
) -> tuple[jax.Array, jax.Array]:
    """The largest errors in the ball [scaling, d, draw, width], by ascent, and their pairs."""
    counts = np.array(config.widths)[:, None]
    norm = partial(jnp.linalg.norm, axis=-1, keepdims=True)
    weights = jnp.asarray(np.where(np.arange(config.widths[-1]) < counts, 1 / counts, 0))

    def search(key, frequencies_of_draw, weights, radius, d):
        value = jax.vmap(jax.value_and_grad(score_error), in_axes=(0, None, None, None))
        start = jax.random.normal(key, (config.starts, 2, frequencies_of_draw.shape[1]))
        within = jnp.arange(frequencies_of_draw.shape[1], dtype=d.dtype) < d
        start = jnp.where(within[None, None], start, 0)

        def step(state, size):
            pair, best, error = state
            errors, slope = value(pair, frequencies_of_draw, weights, d)
            i = jnp.argmax(errors)
            better = errors[i] > error
            best, error = jnp.where(better, pair[i], best), jnp.where(better, errors[i], error)
            moved = pair + size * radius * slope / jnp.maximum(norm(slope), 1e-30)
            return (moved * jnp.minimum(1, radius / norm(moved)), best, error), None

        sizes = 0.5 * 0.9 ** jnp.arange(config.steps, dtype=float)
        state = radius * start / norm(start), start[0], jnp.zeros(())
        (_, best, error), _ = jax.lax.scan(step, state, sizes)
        return error, best

    of_draw = jax.vmap(search, in_axes=(None, None, 0, None, None))  # widths
    each = jax.vmap(of_draw, in_axes=(0, 0, None, None, None))
    at = lambda case: each(keys, case[0], weights, *case[1:])  # noqa: E731
    return jax.lax.map(lambda row: jax.lax.map(at, (frequencies, row, dims)), radii)
