"""Several heads, and one head at extreme temperatures and in many dimensions, for C6."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from ... import constructions, solvers
from ...kernels import Exponential, Gaussian, Linear, Mixture
from ...linalg import eigh
from ...tasks import GaussianProcess, Task, sample
from ...transformer import predict
from ..shared.draws import project
from .measuring import largest_gap, over

INPUTS = ("sphere", "normal")


@dataclass(frozen=True)
class Config:
    """Settings; `temperatures` are ascending, and `dimensions` are numbers of features."""

    draws: int = 50
    num_supports: int = 32
    num_features: int = 4
    num_queries: int = 8
    temperatures: tuple[float, ...] = (1e-7, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e4)
    dimensions: tuple[int, ...] = (4, 16, 64, 256)


@partial(jax.jit, static_argnames="config")
def gap_in_dimensions(keys: jax.Array, dimensions: jax.Array, config: Config) -> jax.Array:
    """Return |head - mean of y| / range of y, for inputs on the unit sphere [draw, p, query]."""
    n, most = config.num_supports, max(config.dimensions)
    model = constructions.nadaraya_watson(Exponential(1.0), num_features=most)

    def gap(key: jax.Array, p: jax.Array) -> jax.Array:
        at, out = jax.random.split(key)
        # the other features are 0, so that one compiled program serves every p
        x = jax.random.normal(at, (n + config.num_queries, most))
        x = jnp.where(jnp.arange(most)[None] < p, x, 0)
        task = Task(x=x[:n], y=jax.random.normal(out, (n,)), x_query=x[n:])
        head = predict(model, project(task, jnp.asarray(True)))
        return jnp.abs(head - jnp.mean(task.y)) / jnp.ptp(task.y)

    return over(gap, keys, dimensions)


def logit_variance(key: jax.Array, p: int) -> jax.Array:
    x, z = jax.random.normal(key, (2, 20000, p))
    return jnp.var(jnp.sum(x * z, axis=-1) / jnp.sqrt(p))


@partial(jax.jit, static_argnames="config")
def measure(keys: jax.Array, temperatures: jax.Array, spheres: jax.Array, config: Config) -> dict:
    """Return the outputs of heads and their theoretical values [draw, inputs, ...].

    `spread` and `apart` are the distances of the largest logit from the smallest and from the
    second largest one.
    """
    p = config.num_features
    process = GaussianProcess(
        Linear(), num_features=p, num_supports=config.num_supports, num_queries=config.num_queries
    )

    def once(key: jax.Array, sphere: jax.Array) -> dict[str, jax.Array]:
        at, order, weigh, subspace = jax.random.split(key, 4)
        task = project(sample(at, process), sphere)
        weights = jax.random.uniform(weigh, (3,), minval=0.1)
        U = jax.random.normal(subspace, (3, 2, p)) / jnp.sqrt(p)
        kernels = (Exponential(0.5, U[0]), Gaussian(1.0, U[1]), Exponential(2.0, U[2]))
        mixture = Mixture(kernels, weights)
        heads = predict(constructions.nadaraya_watson(mixture, num_features=p), task)
        smoothers = [solvers.nadaraya_watson(kernel, task).prediction for kernel in kernels]
        mixed = sum(w * f for w, f in zip(weights, smoothers, strict=True)) / jnp.sum(weights)
        turned = jax.random.permutation(order, config.num_supports)
        moved = Task(x=task.x[turned], y=task.y[turned], x_query=task.x_query)
        sigma = eigh(Exponential(0.5)(task.x, task.x))[0]

        def head(temperature: jax.Array) -> jax.Array:
            model = constructions.nadaraya_watson(Exponential(temperature), num_features=p)
            return predict(model, task)

        products = Linear()(task.x_query, task.x)
        distances = jnp.sum((task.x_query[:, None] - task.x[None]) ** 2, axis=-1)
        highest = jnp.sort(products, axis=1)
        permuted = predict(constructions.nadaraya_watson(mixture, num_features=p), moved)
        spread, apart = (highest[:, -1] - highest[:, place] for place in (0, -2))
        return {
            "heads": largest_gap(heads, mixed),
            "permuted": largest_gap(permuted, heads),
            "negative": -sigma[0] / sigma[-1],
            "head": jax.lax.map(head, temperatures),
            "nearest": task.y[jnp.argmin(distances, axis=1)],
            "top": task.y[jnp.argmax(products, axis=1)],
            "spread": spread[None] / temperatures[:, None],
            "apart": apart[None] / temperatures[:, None],
            "y": task.y,
        }

    return over(once, keys, spheres)
