"""Hyperparameters chosen on the supports alone, by leave-one-out error, for every side alike."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from ... import solvers
from ...kernels import Exponential, Gaussian, Kernel, Linear, PositiveKernel
from ...tasks import Task, system

Family = type[Exponential] | type[Gaussian]


def ridges(kernel: Kernel, task: Task) -> jax.Array:
    """13 values, 1e-3 to 1e3 times tr K / n."""
    gram = system(kernel, task).gram
    scale = jnp.trace(gram) / task.num_supports
    scale = jnp.where(scale > 0, scale, 1)
    return scale * jnp.logspace(-3, 3, 13, dtype=gram.dtype)


def bandwidths(family: Family, task: Task) -> jax.Array:
    """17 temperatures or lengthscales, from 1/16 to 16 times that of logits of unit size.

    That is the root mean square of <x, z> over pairs of supports, or of |x - z| / sqrt(2).
    """
    products = system(Linear(), task).gram
    squares = jnp.diagonal(products)
    distances = (squares[:, None] + squares[None, :]) / 2 - products
    scale = jnp.sqrt(jnp.mean(products**2 if family is Exponential else distances))
    scale = jnp.where(scale > 0, scale, 1)
    return scale * jnp.logspace(-4, 4, 17, base=2, dtype=scale.dtype)


def choose_ridge(kernel: Kernel, task: Task) -> float:
    """The ridge of least squared leave-one-out error among `ridges`."""
    grid = ridges(kernel, task)
    return float(grid[best(lambda ridge: loss(kernel, task, ridge), grid, "ridge")])


def choose_smoother(family: Family, task: Task) -> PositiveKernel:
    """The kernel of least squared leave-one-out error of Nadaraya-Watson among `bandwidths`."""
    grid = bandwidths(family, task)

    def error(bandwidth: jax.Array) -> jax.Array:
        return jnp.sum(solvers.smoother_leave_one_out(family(bandwidth), task) ** 2)

    return family(float(grid[best(error, grid, "bandwidth")]))


def choose_kernel(family: Family, task: Task, ridge: float | None) -> PositiveKernel:
    """The kernel of least squared leave-one-out error of regression among `bandwidths`.

    With a ridge that is given, else with each kernel's best of `ridges`.
    """
    grid = bandwidths(family, task)

    def error(bandwidth: jax.Array) -> jax.Array:
        kernel = family(bandwidth)
        if ridge is not None:
            return loss(kernel, task, ridge)
        losses = jax.lax.map(lambda r: loss(kernel, task, r), ridges(kernel, task))
        return jnp.min(jnp.where(jnp.isfinite(losses), losses, jnp.inf))

    return family(float(grid[best(error, grid, "bandwidth")]))


def loss(kernel: Kernel, task: Task, ridge: float | jax.Array) -> jax.Array:
    return jnp.sum(solvers.leave_one_out(kernel, task, ridge=ridge) ** 2)


def best(error: Callable[[jax.Array], jax.Array], values: jax.Array, name: str) -> int:
    # one after the other: a batch of factorisations would hold them all in memory
    errors = jax.jit(lambda values: jax.lax.map(error, values))(values)
    errors = jnp.where(jnp.isfinite(errors), errors, jnp.inf)
    if not jnp.isfinite(jnp.min(errors)):
        raise ValueError(
            f"{name} could not be chosen: every leave-one-out error overflows; give one"
        )
    return int(jnp.argmin(errors))
