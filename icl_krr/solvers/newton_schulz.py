"""Newton-Schulz iteration for the inverse covariance of the features."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import linalg, step_sizes
from ..fields import suggesting
from ..kernels import Kernel
from ..numerics import matmul
from ..status import Status, assess
from ..tasks import Task
from ..units import in_units, unit_of
from .accuracy import (
    constant,
    largest,
    norm,
    out_of_range,
    scale_of,
    scaled,
    size_of,
    uneven,
    worst,
)
from .algebra import check_system, featured, like, seen
from .results import Trajectory


@suggesting
def newton_schulz(
    kernel: Kernel,
    task: Task,
    *,
    ridge: float | Float[Array, ""],
    steps: int,
    spectrum: tuple | None = None,
) -> Trajectory:
    r"""Invert the covariance of the features, $C = X^T X + \lambda I$ [p, p], by Newton's method.

    $$V_{t+1} = V_t (2I - C V_t), \quad f_t(x) = x^T V_t X^T y, \quad
    \alpha_t = (y - f_t) / \lambda$$

    The rows of $X$ are the features of the supports; in $\alpha_t$, $f_t$ is evaluated at the
    supports. The iteration starts from $V_0 = 2 I / (a + b)$. Each step squares the error
    $I - C V_t$.

    Source: Schulz, Iterative Berechnung der reziproken Matrix, 1933.

    >>> from icl_krr import Linear, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> path = newton_schulz(Linear(), task, ridge=2.0, steps=1, spectrum=(3.0, 3.0))
    >>> path.prediction[:, 0].round(6).tolist()
    [1.0, 1.0]
    """
    check_system(kernel, task, ridge, steps, matrices=0)
    task = featured(kernel, task)
    scale, _ = step_sizes.newton_schulz(steps, ridge, spectrum)
    return solve(task, ridge, scale, steps)


@partial(jax.jit, static_argnames="steps")
def solve(task, ridge, scale, steps) -> Trajectory:
    x, y = seen(task)
    ridge, scale = (jnp.asarray(value, y.dtype) for value in (ridge, scale))
    given = x, task.x_query, ridge, scale
    run = partial(iterate, steps)
    alpha, r, prediction = in_units(unit_of(y, axis=0), run, 1, y, *given)
    status = of_inverse(x, y, task.x_query, ridge, alpha[-1], r, prediction[-1])
    return Trajectory(like(task.y, alpha), like(task.y, r), None, like(task.y, prediction), status)


def iterate(steps, y, x, x_query, ridge, scale):
    eye, C = jnp.eye(x.shape[1], dtype=x.dtype), covariance(x, ridge)

    def step(V, _):
        V = 2 * V - matmul(matmul(V, C), V)
        return V, V

    _, path = jax.lax.scan(step, scale * eye, length=steps)
    weights = matmul(jnp.concatenate([scale * eye[None], path]), matmul(x.T, y))
    alpha = (y[None] - matmul(x, weights)) / ridge
    r = y[None] - matmul(x, matmul(x.T, alpha)) - ridge * alpha
    return alpha, r, matmul(x_query, weights)


def covariance(x: Any, ridge: Any) -> Any:
    return matmul(x.T, x) + ridge * jnp.eye(x.shape[1], dtype=x.dtype)


@constant
def of_inverse(x: Any, y: Any, at: Any, ridge: Any, alpha: Any, r: Any, f: Any) -> Status:
    r"""The status of the last iterate: its distance from the weights that Cholesky finds.

    The error of these at $x$ is $h^T (\delta b - \delta C w)$ with $h = C^{-1} x$. An entry of
    $\delta C$ is at most about $u \sqrt{C_{ii} C_{jj}}$ and one of $\delta b$ about
    $u \sqrt{C_{ii}} |y|$. The residual does not tell it: divided by a small ridge, rounding errors
    of $y - f$ fill directions of large eigenvalues.
    """
    given, (y, alpha, size) = y, scaled(y, alpha)
    C = covariance(x, ridge)
    trace, unit = jnp.sum(x * x), jnp.sqrt(jnp.diagonal(C))[:, None]
    far = largest(at / unit.T, axis=1)
    right = jnp.concatenate([matmul(x.T, y), (at / far).T], axis=1)
    solved = linalg.solve(C, right)
    best, h = solved[:, : y.shape[1]], solved[:, y.shape[1] :]
    spread = jnp.sqrt(norm(y) ** 2 + norm(best * unit) ** 2)
    rounded = jnp.finfo(y.dtype).eps * far * norm(h * unit)[:, None] * spread[None]
    scale = scale_of(y, f / size)[None]
    share, half = (norm(r[i] / size) / size_of(norm(y)) for i in (-1, (len(r) - 1) // 2))
    return assess(
        worst(share),
        worst((jnp.abs(f / size - matmul(at, best)) + rounded) / scale),
        (trace + ridge) / ridge * jnp.finfo(y.dtype).eps,
        y.dtype,
        overflow=~jnp.isfinite(trace),
        range=out_of_range(given, size, alpha, f / size),
        falling=jnp.any(share < 0.9 * half),
        uneven=uneven(jnp.sum(x * x, axis=1)),
        steps=len(r) - 1,
        spectrum=True,
    )
