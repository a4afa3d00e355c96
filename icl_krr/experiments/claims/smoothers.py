"""Softmax heads as estimators of a regression function, for C31."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import constructions
from ...kernels import Exponential, Gaussian
from ...tasks import Task
from ...transformer import Transformer, predict
from .measuring import every

QUERIES = 16


class Inputs(NamedTuple):
    """Where the inputs lie: p features, a set of this dimension, and their density on it."""

    name: str
    p: int
    dimension: int
    density: float
    kernel: type


SPHERE = Inputs("sphere, exponential kernel", 3, 2, 1 / (4 * np.pi), Exponential)
LINE = Inputs("line, Gaussian kernel", 1, 1, 1 / 4, Gaussian)
PLACES = (SPHERE, LINE)


def queries(place: Inputs) -> jax.Array:
    if place is LINE:
        return jnp.linspace(-1, 1, QUERIES)[:, None]
    return points(jax.random.key(0), QUERIES, place)


def points(key: jax.Array, count: int, place: Inputs) -> jax.Array:
    if place is LINE:
        return jax.random.uniform(key, (count, 1), minval=-2.0, maxval=2.0)
    x = jax.random.normal(key, (count, place.p))
    return x / jnp.linalg.norm(x, axis=1, keepdims=True)


def regression(x: jax.Array) -> jax.Array:
    return jnp.cos(2 * x[:, 0])


def laplacian(x: jax.Array, place: Inputs) -> jax.Array:
    """The Laplacian of `regression` on the line or on the sphere."""
    u = x[:, 0]
    if place is LINE:
        return -4 * jnp.cos(2 * u)
    return -4 * (1 - u * u) * jnp.cos(2 * u) + 2 * place.dimension * u * jnp.sin(2 * u)


def with_weights(model: Transformer, task: Task) -> tuple[jax.Array, jax.Array]:
    """Return the prediction of a head [q] and the weights [q, n] with which it averages y."""

    def head(y: jax.Array) -> tuple[jax.Array, jax.Array]:
        prediction = predict(model, task.replace(y=y))
        return prediction, prediction

    weights, prediction = jax.jacrev(head, has_aux=True)(task.y)
    return prediction, weights


@every(static=("place", "size"))
def smoother(
    key: jax.Array, bandwidths: jax.Array, place: Inputs, size: int
) -> tuple[jax.Array, jax.Array]:
    """Return errors without noise, and the sums of squared weights [draw, bandwidth, query]."""
    x_query = queries(place)
    x = points(key, size, place)
    task = Task(x=x, y=regression(x), x_query=x_query)

    def head(bandwidth: jax.Array) -> tuple[jax.Array, jax.Array]:
        kernel = place.kernel.of_temperature(bandwidth**2)
        model = constructions.nadaraya_watson(kernel, num_features=place.p)
        prediction, weights = with_weights(model, task)
        return prediction - regression(x_query), jnp.sum(weights**2, axis=1)

    return jax.lax.map(head, bandwidths)


@every(static=("size", "most"))
def logit_gradients(
    key: jax.Array, dimensions: jax.Array, *, size: int, most: int
) -> tuple[jax.Array, jax.Array]:
    """Return norms [draw, d, scale, query] of gradients and variances [draw, d, scale] of logits.

    The gradient of the output f of a head with weights w_j and values y_j with respect to its
    logits has the entries w_j (y_j - f).
    """
    x = jax.random.normal(key, (size + QUERIES, most))
    y = jax.random.normal(jax.random.fold_in(key, 1), (size,))

    def at(d: jax.Array) -> tuple[jax.Array, jax.Array]:
        # features after the d-th are zero, so that all d share one program
        own = jnp.where((jnp.arange(most, dtype=x.dtype) < d)[None], x, 0)
        task = Task(x=own[:size], y=y, x_query=own[size:])

        def head(temperature: jax.Array) -> tuple[jax.Array, jax.Array]:
            kernel = Exponential(temperature)
            model = constructions.nadaraya_watson(kernel, num_features=most)
            f, weights = with_weights(model, task)
            norms = jnp.linalg.norm(weights * (y[None] - f[:, None]), axis=1)
            return norms, jnp.mean(kernel.log(task.x_query, task.x) ** 2)

        return jax.lax.map(head, jnp.stack([jnp.sqrt(d), jnp.ones(())]))

    return jax.lax.map(at, dimensions.astype(x.dtype))
