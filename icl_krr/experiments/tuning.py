"""Hyperparameters chosen on the supports alone, by leave-one-out error, for every side alike."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .. import solvers
from ..kernels import Exponential, Kernel, Linear
from ..tasks import Task, system


def choose_ridge(kernel: Kernel, task: Task) -> float:
    """The ridge of least squared leave-one-out error: 13 values, 1e-3 to 1e3 times tr K / n."""
    gram = system(kernel, task).gram
    scale = jnp.trace(gram) / task.num_supports
    scale = jnp.where(scale > 0, scale, 1)

    def loss(ridge: jax.Array) -> jax.Array:
        return jnp.sum(solvers.leave_one_out(kernel, task, ridge=ridge) ** 2)

    return best(loss, scale * jnp.logspace(-3, 3, 13, dtype=gram.dtype), "ridge")


def choose_temperature(task: Task) -> float:
    """The temperature of least squared leave-one-out error of Nadaraya-Watson among 17 values.

    They lie from 1/16 to 16 times the root mean square of <x, z> over pairs of supports, at
    which the logits of the softmax have unit size.
    """
    scale = jnp.sqrt(jnp.mean(system(Linear(), task).gram ** 2))
    scale = jnp.where(scale > 0, scale, 1)

    def loss(temperature: jax.Array) -> jax.Array:
        errors = solvers.smoother_leave_one_out(Exponential(temperature), task)
        return jnp.sum(errors**2)

    return best(loss, scale * jnp.logspace(-4, 4, 17, base=2, dtype=scale.dtype), "temperature")


def best(loss, values: jax.Array, name: str) -> float:
    # one after the other: a batch of factorisations would hold them all in memory
    losses = jax.lax.map(loss, values)
    losses = jnp.where(jnp.isfinite(losses), losses, jnp.inf)
    if not jnp.isfinite(jnp.min(losses)):
        raise ValueError(
            f"{name} could not be chosen: every leave-one-out error overflows; give one"
        )
    return float(values[jnp.argmin(losses)])
