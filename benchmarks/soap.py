"""SOAP (Vyas et al., 2024), which optax does not have: Adam in the eigenbasis of Shampoo."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

EVERY = 10
"""Updates from one change of the bases to the next."""


class Moments(NamedTuple):
    """What is kept of one array of weights: matrices [..., m, n] have bases, others do not.

    `rows` and `columns` are means of G G^T and G^T G, and `left` and `right` are bases near their
    eigenvectors, in which `second`, the mean of squares, is taken.
    """

    first: jax.Array
    second: jax.Array
    rows: Any = None
    columns: Any = None
    left: Any = None
    right: Any = None


def is_stack(weight: jax.Array) -> bool:
    """Whether weights are matrices [blocks, m, n]."""
    return weight.ndim == 3 and min(weight.shape[-2:]) > 1


def orthogonal(matrices: jax.Array) -> jax.Array:
    """Bases of the columns, one after the other: batched factorisations at once deadlock."""
    return jax.lax.map(lambda one: jnp.linalg.qr(one)[0], matrices)


def soap(
    rate: optax.Schedule, b1: float = 0.95, b2: float = 0.95, eps: float = 1e-8
) -> optax.GradientTransformation:
    """Return the optimiser, for stacked matrices [blocks, m, n], with one pair of bases each."""

    def start(weight: jax.Array) -> Moments:
        zero = jnp.zeros_like(weight)
        if not is_stack(weight):
            return Moments(zero, zero)
        eyes = [jnp.tile(jnp.eye(k, dtype=zero.dtype), (len(zero), 1, 1)) for k in zero.shape[-2:]]
        return Moments(zero, zero, *(0 * eye for eye in eyes), *eyes)

    def init(params: Any) -> tuple[jax.Array, list[Moments]]:
        return jnp.zeros((), int), [start(weight) for weight in jax.tree.leaves(params)]

    def step(count: jax.Array, slope: jax.Array, old: Moments) -> tuple[jax.Array, Moments]:
        def mean(weight: float, past: jax.Array, now: jax.Array) -> jax.Array:
            return weight * past + (1 - weight) * now

        first, rest = mean(b1, old.first, slope), ()
        turned, direction = slope, first
        if old.left is not None:
            transposed = jnp.swapaxes(slope, -2, -1)
            rows = mean(b2, old.rows, slope @ transposed)
            columns = mean(b2, old.columns, transposed @ slope)
            left, right = jax.lax.cond(
                count % EVERY == 1,
                lambda: (orthogonal(rows @ old.left), orthogonal(columns @ old.right)),
                lambda: (old.left, old.right),
            )
            back = jnp.swapaxes(left, -2, -1)
            turned, direction = back @ slope @ right, back @ first @ right
            rest = rows, columns, left, right
        second, steps = mean(b2, old.second, turned**2), count.astype(slope.dtype)
        scale = jnp.sqrt(second / (1 - b2**steps)) + eps
        change = direction / (1 - b1**steps) / scale
        if rest:
            change = rest[2] @ change @ jnp.swapaxes(rest[3], -2, -1)
        return -jnp.asarray(rate(count)) * change, Moments(first, second, *rest)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count, moments = state[0] + 1, state[1]
        leaves, tree = jax.tree.flatten(updates)
        pairs = [step(count, *both) for both in zip(leaves, moments, strict=True)]
        return tree.unflatten([pair[0] for pair in pairs]), (count, [pair[1] for pair in pairs])

    return optax.GradientTransformation(init, update)
