"""Softmax heads as estimators of a regression function, for C31."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import Exponential, Gaussian, Task, Transformer, constructions, predict
from ...probes import hat_matrix
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


def weights(model: Transformer, task: Task) -> jax.Array:
    """The weights [q, n] with which a head averages y."""
    return hat_matrix(lambda task: predict(model, task)[None], task)[0]


@every(1, 1, static=("place", "size"))
def smoother(
    key: jax.Array, bandwidth: jax.Array, place: Inputs, size: int
) -> tuple[jax.Array, jax.Array]:
    """Return errors without noise, and the sums of squared weights [draw, bandwidth, query]."""
    x, x_query = points(key, size, place), queries(place)
    task = Task(x=x, y=regression(x), x_query=x_query)
    kernel = place.kernel.of_temperature(bandwidth**2)
    model = constructions.nadaraya_watson(kernel, num_features=place.p)
    error = predict(model, task) - regression(x_query)
    return error, jnp.sum(weights(model, task) ** 2, axis=1)


@every(1, 1, static=("size", "most"))
def logit_gradients(
    key: jax.Array, d: jax.Array, size: int, most: int
) -> tuple[jax.Array, jax.Array]:
    """Norms [draw, d, scale, query] of the gradients w_j (y_j - f), and variances of the logits."""
    x = jax.random.normal(key, (size + QUERIES, most))
    # features after the d-th are zero, so that all d share one program
    x = jnp.where((jnp.arange(most, dtype=x.dtype) < d)[None], x, 0)
    y = jax.random.normal(jax.random.fold_in(key, 1), (size,))
    task = Task(x=x[:size], y=y, x_query=x[size:])

    def head(temperature: jax.Array) -> tuple[jax.Array, jax.Array]:
        kernel = Exponential(temperature)
        model = constructions.nadaraya_watson(kernel, num_features=most)
        slopes = weights(model, task) * (y[None] - predict(model, task)[:, None])
        return jnp.linalg.norm(slopes, axis=1), jnp.mean(kernel.log(task.x_query, task.x) ** 2)

    return jax.lax.map(head, jnp.stack([jnp.sqrt(d), jnp.ones(())]))
