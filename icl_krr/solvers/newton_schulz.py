"""Newton-Schulz iteration for the inverse covariance of the features."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import capacity, step_sizes
from ..kernels import Kernel
from ..numerics import matmul
from ..status import Status, assess
from ..tasks import Task
from .accuracy import mean_eigenvalue, norm, out_of_range, scaled, size_of, uneven, worst
from .algebra import check_system, featured, like, seen
from .results import Trajectory


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

    The rows of $X$ are the features of the supports. In $\alpha_t$, $f_t$ is evaluated at the
    supports. The iteration starts from $V_0 = 2 I / (a + b)$. Each step squares the error
    $I - C V_t$.

    Args:
        kernel: kernel with known features, `Linear` or `Features`.
        task: supports, outputs and queries; x [n, p], y [n] or [n, r], x_query [q, p].
        ridge: ridge $\lambda$ > 0, in units of $k(x, x)$.
        steps: number of steps, >= 1.
        spectrum: bounds (low, high) = $(a, b)$ on the eigenvalues of $K + \lambda I$, as
            `icl_krr.spectral_bounds` returns them; required (the default None raises an error).

    Returns:
        A `Trajectory` with one entry for each iterate from 0 to `steps`, in the dtype of the task.
        `p` is None.

    Raises:
        ValueError: `spectrum` is missing, a number is out of range, or `task` is a batch.
        TypeError: the features of `kernel` are not known.
        MemoryError: the matrices and the stored steps do not fit into memory.

    Source: Schulz, Iterative Berechnung der reziproken Matrix, 1933.

    >>> import jax.numpy as jnp
    >>> from icl_krr import Linear, Task
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> path = newton_schulz(Linear(), task, ridge=2.0, steps=1, spectrum=(3.0, 3.0))
    >>> path.prediction[:, 0].round(6).tolist()
    [1.0, 1.0]
    """
    check_system(kernel, task, ridge, steps, matrices=0)
    task = featured(kernel, task)
    capacity.check("inverse of every step", (steps + 2) * task.num_features**2, task.x)
    scale, _ = step_sizes.newton_schulz(steps, ridge, spectrum)
    return iterate(task, ridge, scale, steps)


@partial(jax.jit, static_argnames="steps")
def iterate(task, ridge, scale, steps) -> Trajectory:
    x, y = seen(task)
    ridge, scale = (jnp.asarray(value, y.dtype) for value in (ridge, scale))
    eye = jnp.eye(x.shape[1], dtype=x.dtype)
    covariance = matmul(x.T, x) + ridge * eye

    def step(V, _):
        V = 2 * V - matmul(matmul(V, covariance), V)
        return V, V

    _, path = jax.lax.scan(step, scale * eye, length=steps)
    weights = matmul(jnp.concatenate([scale * eye[None], path]), matmul(x.T, y))
    alpha = (y[None] - matmul(x, weights)) / ridge
    r = y[None] - matmul(x, matmul(x.T, alpha)) - ridge * alpha
    prediction = matmul(task.x_query, weights)
    status = of_inverse(x, y, ridge, alpha[-1], r, prediction[-1])
    return Trajectory(like(task.y, alpha), like(task.y, r), None, like(task.y, prediction), status)


def of_inverse(x: Any, y: Any, ridge: Any, alpha: Any, r: Any, prediction: Any) -> Status:
    r"""The status of the last iterate: the error at the supports is $\lambda A^{-1} r$."""
    given, (y, alpha, size) = y, scaled(y, alpha)
    left, trace = r[-1] / size, jnp.sum(x * x)
    mean = mean_eigenvalue(left, matmul(x, matmul(x.T, left)))
    share = norm(left) / size_of(norm(y))
    half = norm(r[(len(r) - 1) // 2] / size) / size_of(norm(y))
    return assess(
        worst(share),
        3 * worst(share * ridge / (mean + ridge)),
        (trace + ridge) / ridge * jnp.finfo(y.dtype).eps,
        y.dtype,
        overflow=~jnp.isfinite(trace),
        range=out_of_range(given, size, alpha, prediction / size),
        falling=jnp.any(share < 0.9 * half),
        uneven=uneven(jnp.sum(x * x, axis=1)),
        steps=len(r) - 1,
        spectrum=True,
    )
