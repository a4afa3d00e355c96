"""Random features as estimates of the exponential kernel, alone and in attention, for C21."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

from ... import constructions, solvers, theory
from ...kernels import Exponential, Linear
from ...sketches import RandomFeatures, positive_features, trigonometric_features
from ...tasks import Task
from ...transformer import predict
from .measuring import gap as relative_gap

KINDS = ("positive", "positive, orthogonal", "trigonometric")


@dataclass(frozen=True)
class Config:
    """Settings of the experiment.

    `draws` is the number of draws of features, each with a pair of points on the unit sphere.
    `tasks` is the number of tasks for each floor of CG, and for attention that is divided by the
    sum of its weights. The kernel of this attention has the temperature `low_temperature`.
    """

    draws: int = 4096
    num_features: int = 8
    num_supports: int = 48
    num_queries: int = 16
    temperature: float = 2.0
    ridge: float = 1.0
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    floors: tuple[int, ...] = (16, 64, 256, 1024)
    tasks: int = 20
    low_temperature: float = 0.25


def unit_pair(key: jax.Array, config: Config) -> jax.Array:
    x = jax.random.normal(key, (2, 1, config.num_features))
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


@partial(jax.jit, static_argnames="config")
def kernel_entry_errors(keys: jax.Array, config: Config) -> tuple[jax.Array, ...]:
    """Return relative errors [draw, kind, width], their variance by theory and two more arrays.

    The third array is True where the estimate of the kernel is negative. The fourth has the mean
    squared relative error [draw, kind] of p positive features.

    Each width uses the first features of the largest width.
    """
    kernel, p, most = Exponential(config.temperature), config.num_features, max(config.widths)

    def singles(phi: RandomFeatures, x: jax.Array, z: jax.Array) -> jax.Array:
        # each feature, or each pair of cosine and sine, is one independent estimate
        count = len(phi.frequencies)
        return count * jnp.sum((phi(x) * phi(z)).reshape(-1, count), axis=0)

    def estimates(single: jax.Array) -> jax.Array:
        sums, per = jnp.cumsum(single), most // len(single)
        return jnp.stack([sums[m // per - 1] / (m // per) for m in config.widths])

    def once(key: jax.Array) -> tuple[jax.Array, ...]:
        at, own = jax.random.split(key)
        x, z = unit_pair(at, config)
        maps = (
            positive_features(own, kernel, num_features=p, width=most, orthogonal=False),
            positive_features(own, kernel, num_features=p, width=most),
            trigonometric_features(own, kernel, num_features=p, width=most),
        )
        true = kernel(x, z)[0, 0]
        single = [singles(phi, x, z) for phi in maps]
        found = jnp.stack([estimates(values) for values in single])
        # p features in turn are orthogonal
        blocks = jnp.stack(single[:2]).reshape(2, -1, p).mean(axis=-1)
        positive, waves = (
            jnp.stack([variance(x[0], z[0], config.temperature, m) for m in config.widths])
            for variance in (theory.positive_variance, theory.trigonometric_variance)
        )
        return (
            found / true - 1,
            jnp.stack([positive, positive, waves]) / true**2,
            found < 0,
            jnp.mean((blocks / true - 1) ** 2, axis=-1),
        )

    return jax.lax.map(once, keys, batch_size=128)


@partial(jax.jit, static_argnames="config")
def excess(keys: jax.Array, tasks: Task, config: Config) -> jax.Array:
    """Return how far the outputs of attention with m = 2 p features leave [min y, max y].

    The weights are the estimates of the kernel, divided by their sum. The result [draw, kind] is
    the largest excess over the queries, divided by the range of y, for positive and for
    trigonometric features.
    """
    kernel, p = Exponential(config.low_temperature), config.num_features
    options = {"num_features": p, "width": 2 * p, "orthogonal": False}

    def outside(phi: RandomFeatures, task: Task) -> jax.Array:
        weights = phi(task.x_query) @ phi(task.x).T
        f, y = weights @ task.y / jnp.sum(weights, axis=1), task.y
        return jnp.max(jnp.maximum(f - jnp.max(y), jnp.min(y) - f)) / jnp.ptp(y)

    def once(key: jax.Array, task: Task) -> jax.Array:
        maps = positive_features, trigonometric_features
        return jnp.stack([outside(features(key, kernel, **options), task) for features in maps])

    return jax.lax.map(lambda draw: once(*draw), (keys, tasks))


@partial(jax.jit, static_argnames=("width", "config"))
def gap_floor(
    keys: jax.Array, tasks: Task, kernel: Exponential, width: int, config: Config
) -> jax.Array:
    """Return the final gap to exact KRR of conjugate gradient on m features, median over tasks."""
    p = config.num_features

    def gap(key: jax.Array, task: Task) -> jax.Array:
        phi = positive_features(key, kernel, num_features=p, width=width)
        model = constructions.conjugate_gradient(
            kernel, num_features=p, ridge=config.ridge, steps=24, sketch=phi
        )
        exact = solvers.exact(kernel, task, ridge=config.ridge).prediction
        return relative_gap(predict(model, task), exact)

    return jnp.median(jax.lax.map(lambda draw: gap(*draw), (keys, tasks)))


@partial(jax.jit, static_argnames="config")
def negative_share(keys: jax.Array, config: Config) -> jax.Array:
    return jnp.mean(jax.vmap(lambda key: Linear()(*unit_pair(key, config))[0, 0] < 0)(keys))
