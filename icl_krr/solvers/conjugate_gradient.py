"""Conjugate gradient, one system per output."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..kernels import Kernel
from ..numerics import matmul, reciprocal
from ..tasks import Task, system
from .algebra import apply, check_system, like
from .results import Trajectory


def conjugate_gradient(
    kernel: Kernel, task: Task, *, ridge: float | Float[Array, ""], steps: int
) -> Trajectory:
    """Solve A alpha = y, A = K + ridge I, by conjugate gradient from alpha = 0.

    gamma = r.r / p.Ap,  alpha += gamma p,  r -= gamma Ap,  beta = r'.r' / r.r,  p = r' + beta p,
    for each output on its own; a quotient whose divisor underflows is 0 (`numerics.reciprocal`),
    so that steps past convergence stay finite, and their gradients too. y is scaled by a power
    of two and back, which is exact, so that no size of y under- or overflows. See `Trajectory` for
    the shapes; the dtype is the task's.

    Raises ValueError for a ridge that is not > 0, steps < 1 or shapes that do not fit.

    Source: Hestenes, Stiefel, Methods of conjugate gradients for solving linear systems, 1952.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Linear, Task
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> conjugate_gradient(Linear(), task, ridge=2.0, steps=1).prediction[:, 0].tolist()
    [0.0, 1.0]
    """
    check_system(kernel, task, ridge, steps)
    return iterate(kernel, task, ridge, steps)


@partial(jax.jit, static_argnames="steps")
def iterate(kernel, task, ridge, steps) -> Trajectory:
    gram, cross, y = system(kernel, task)
    ridge = jnp.asarray(ridge, y.dtype)
    _, exponent = jnp.frexp(jax.lax.stop_gradient(jnp.max(jnp.abs(y), axis=0)))
    size = jnp.ldexp(jnp.ones((), y.dtype), exponent - 1)
    y = y / size

    def step(state, _):
        alpha, r, p = state
        Ap = apply(gram, ridge, p)
        gamma = dot(r, r) * reciprocal(dot(p, Ap))
        r_next = r - gamma * Ap
        beta = dot(r_next, r_next) * reciprocal(dot(r, r))
        state = alpha + gamma * p, r_next, r_next + beta * p
        return state, state

    start = jnp.zeros_like(y), y, y
    _, path = jax.lax.scan(step, start, length=steps)
    alpha, r, p = jax.tree.map(
        lambda first, rest: size * jnp.concatenate([first[None], rest]), start, path
    )
    return Trajectory(
        like(task.y, alpha), like(task.y, r), like(task.y, p), like(task.y, matmul(cross, alpha))
    )


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.sum(a * b, axis=0)
