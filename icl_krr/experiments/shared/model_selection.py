"""Choose hyperparameters by leave-one-out error on the supports alone.

Regression and the baselines use the same procedure. One eigendecomposition of a kernel matrix
gives the errors at all ridges. Its cost is cubic in the number of supports, so a random subsample
replaces more supports than `MOST`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import solvers
from ...kernels import Kernel
from ...linalg import eigh
from ...numerics import matmul
from ...tasks import Task, system
from ...tasks.task import kept

MOST = {"regression": 1024, "Nadaraya-Watson": 8192}
"""The largest number of supports on which leave-one-out chooses hyperparameters."""

Progress = Callable[[str], None]


def silent(words: str) -> None:
    """Tell nobody about progress."""


def subsample(task: Task, method: str) -> Task:
    """At most `MOST` of the supports, drawn at random with seed 0, and no queries."""
    n, most = task.num_supports, MOST[method]
    rows = np.random.default_rng(0).permutation(n)[:most] if n > most else np.arange(n)
    mask = None if task.mask is None else task.mask[rows]
    return Task(task.x[rows], task.y[rows], task.x[rows[:1]], mask)


def ridges(kernel: Kernel, task: Task) -> jax.Array:
    """13 ridges from 1e-3 to 1e3 times tr K / n."""
    gram = system(kernel, task).gram
    scale = jnp.trace(gram) / task.num_supports
    scale = jnp.where(scale > 0, scale, 1)
    return scale * jnp.logspace(-3, 3, 13, dtype=gram.dtype)


def bandwidths(family: type[Kernel], task: Task) -> jax.Array:
    """17 bandwidths around the value at which logits have size 1."""
    return family.bandwidths(task.x, task.mask)


def choose_ridge(kernel: Kernel, task: Task, centred: bool = False) -> float:
    """The value of `ridges` with the least squared leave-one-out error; see `losses`."""
    task = subsample(task, "regression")
    grid = ridges(kernel, task)
    errors = losses(kernel, task, grid, centred)
    if not jnp.isfinite(jnp.min(errors)):
        raise ValueError(unknown("ridge"))
    return float(grid[jnp.argmin(errors)])


def unknown(name: str) -> str:
    return (
        f"{name} must be given, because every leave-one-out error is NaN or infinite; "
        "a larger temperature or lengthscale may help"
    )


class Choice(NamedTuple):
    """A kernel, and its root mean squared leave-one-out error; infinite if it is not finite."""

    kernel: Kernel
    error: float


def choose_smoother(
    family: type[Kernel], task: Task, bandwidth: Any = None, progress: Progress = silent
) -> Choice:
    """The kernel whose bandwidth has the least leave-one-out error of Nadaraya-Watson.

    If `bandwidth` is given, the kernel with this bandwidth.
    """
    task = subsample(task, "Nadaraya-Watson")
    return choose(family, task, bandwidth, smoothing_loss, "Nadaraya-Watson", progress)


def choose_kernel(
    family: type[Kernel],
    task: Task,
    ridge: float | None,
    bandwidth: Any = None,
    progress: Progress = silent,
    centred: bool = False,
) -> Choice:
    """The kernel whose bandwidth has the least leave-one-out error of regression; see `losses`.

    If `bandwidth` is given, the kernel with this bandwidth. If `ridge` is None, each bandwidth is
    compared at its best ridge in `ridges`.
    """
    task = subsample(task, "regression")

    def error(kernel: Kernel, task: Task) -> jax.Array:
        grid = ridges(kernel, task) if ridge is None else jnp.full(1, ridge, task.x.dtype)
        return jnp.min(losses(kernel, task, grid, centred))

    return choose(family, task, bandwidth, error, "regression", progress)


def choose(
    family: type[Kernel],
    task: Task,
    bandwidth: Any,
    error: Callable[[Kernel, Task], jax.Array],
    method: str,
    progress: Progress,
) -> Choice:
    if family.bandwidth is None:
        kernels = [family.of_bandwidth(None)]
    else:
        grid = bandwidths(family, task) if bandwidth is None else [bandwidth]
        kernels = [family.of_bandwidth(float(value)) for value in grid]
    errors = []
    for i, kernel in enumerate(kernels):
        told = f"{family.bandwidth} {i + 1} of {len(kernels)}" if family.bandwidth else "ridge"
        progress(f"{method}, leave-one-out: {family.__name__.lower()} kernel, {told}")
        errors.append(float(error(kernel, task)))
    errors = np.where(np.isfinite(errors), errors, np.inf)
    best = int(np.argmin(errors))
    return Choice(kernels[best], float(np.sqrt(errors[best] / task.y.size)))


@jax.jit
def smoothing_loss(kernel: Any, task: Task) -> jax.Array:
    return jnp.sum(solvers.smoother_leave_one_out(kernel, task) ** 2)


@partial(jax.jit, static_argnames="centred")
def losses(kernel: Kernel, task: Task, grid: jax.Array, centred: bool = False) -> jax.Array:
    r"""Squared leave-one-out errors of regression at every ridge; infinite if they are not finite.

    With $K = V \mathrm{diag}(\sigma) V^T$, the coefficients are
    $\alpha = V (V^T y / (\sigma + \lambda))$, the diagonal of the inverse is
    $(V \circ V) (1 / (\sigma + \lambda))$, and an error is the quotient of their entries.

    If x and y were `centred`, a centred support says what the others are: it is minus their sum.
    So the errors are those of regression with a free constant, which does not know the mean of the
    support that is left out. With $u = A^{-1} 1$, its matrix $A^{-1} - u u^T / (1^T u)$ replaces
    $A^{-1}$.
    """
    gram, _, y = system(kernel, task)
    finite = jnp.all(jnp.isfinite(gram))
    sigma, vectors = eigh(jnp.where(finite, gram, 0))
    inverse = 1 / (jnp.maximum(sigma, 0)[None] + grid[:, None])
    turned = matmul(vectors.T, y)
    alpha = jnp.einsum("ij,gj,jr->gir", vectors, inverse, turned, precision="highest")
    diagonal = matmul(inverse, (vectors**2).T)
    if centred:
        one = jnp.where(kept(task), kernel.constant(task.x), 0)
        u = matmul(inverse * matmul(one[None], vectors), vectors.T)
        known = matmul(u, one[:, None])
        alpha = alpha - u[:, :, None] * (matmul(u, y) / known)[:, None]
        diagonal = diagonal - u**2 / known
    alpha = jnp.where(kept(task)[None, :, None], alpha, 0)
    found = jnp.sum((alpha / diagonal[:, :, None]) ** 2, axis=(1, 2))
    return jnp.where(finite & jnp.isfinite(found), found, jnp.inf)
