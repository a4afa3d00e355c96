"""Errors of random features: at given points, for C21 and C47, and in a ball, for C33."""

from functools import partial

import jax
import jax.numpy as jnp

from ...numerics import matmul
from ...sketches import RandomFeatures


def block_means(phi: RandomFeatures, x: jax.Array, z: jax.Array, block: int) -> jax.Array:
    """Estimate k(x, z) from so many frequencies in turn [blocks, n, m]."""
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


def score_error(
    pair: jax.Array, frequencies: jax.Array, weights: jax.Array, d: jax.Array
) -> jax.Array:
    """The error of the estimate of exp(<q, k> / sqrt(d)) for a pair (q, k) [2, d]."""
    q, k = pair
    half = jnp.sum(pair * pair) / (2 * jnp.sqrt(d))
    estimate = jnp.exp(half) * jnp.sum(weights * jnp.cos(matmul(frequencies, q - k)))
    return jnp.abs(estimate - jnp.exp(jnp.sum(q * k) / jnp.sqrt(d)))


@partial(jax.jit, static_argnames=("widths", "starts", "steps"))
def largest(
    keys: jax.Array,
    frequencies: jax.Array,
    radii: jax.Array,
    dims: jax.Array,
    *,
    widths: tuple[int, ...],
    starts: int,
    steps: int,
) -> tuple[jax.Array, jax.Array]:
    """Look for the largest error in the ball, from below: by gradient ascent.

    Returns:
        The errors [scaling, d, draw, width] and the pairs [scaling, d, draw, width, 2, largest d].
    """
    counts = jnp.array(widths, frequencies.dtype)[:, None]
    order = jnp.arange(widths[-1], dtype=frequencies.dtype)[None]
    weights = jnp.where(order < counts, 1 / counts, 0)

    def norm(x: jax.Array) -> jax.Array:
        return jnp.linalg.norm(x, axis=-1, keepdims=True)

    def search(key, own, weights, radius, d):
        value = jax.vmap(jax.value_and_grad(score_error), in_axes=(0, None, None, None))
        start = jax.random.normal(key, (starts, 2, own.shape[1]))
        used = jnp.arange(own.shape[1], dtype=own.dtype) < d
        start = jnp.where(used[None, None], start, 0)

        def step(state, size):
            pair, best, error = state
            found, slope = value(pair, own, weights, d)
            i = jnp.argmax(found)
            better = found[i] > error
            best, error = jnp.where(better, pair[i], best), jnp.where(better, found[i], error)
            moved = pair + size * radius * slope / jnp.maximum(norm(slope), 1e-30)
            return (moved * jnp.minimum(1, radius / norm(moved)), best, error), None

        sizes = 0.5 * 0.9 ** jnp.arange(steps, dtype=frequencies.dtype)
        state = radius * start / norm(start), start[0], jnp.zeros(())
        (_, best, error), _ = jax.lax.scan(step, state, sizes)
        return error, best

    each = jax.vmap(search, in_axes=(None, None, 0, None, None))  # widths
    each = jax.vmap(each, in_axes=(0, 0, None, None, None))  # draws

    def of_dimension(case):
        own, radius, d = case
        return each(keys, own, weights, radius, d)

    return jax.lax.map(lambda row: jax.lax.map(of_dimension, (frequencies, row, dims)), radii)
