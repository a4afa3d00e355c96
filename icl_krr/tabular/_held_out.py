"""Leave-one-out errors at the supports, of regression at many ridges and of Nadaraya-Watson."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import Kernel, solvers
from .._core.linalg import eigh
from .._core.numerics import matmul
from ..tasks import Task, system
from ..tasks._task import support_mask


def unknown(name: str) -> str:
    return (
        f"{name} must be given, because every leave-one-out error is NaN or infinite; "
        "a larger temperature or lengthscale may help"
    )


def refuse_one_row(count: int, chosen: Sequence[str]) -> None:
    """Raise ValueError if hyperparameters are to be chosen, and nothing is left to learn from."""
    if chosen and count < 2:
        raise ValueError(
            f"{' and '.join(chosen)} must be given for one support (n_samples=1), because the only "
            "row cannot be left out"
        )


@partial(jax.jit, static_argnames="centred")
def leave_one_out_errors(kernel: Kernel, task: Task, grid: Any, centred: bool = False) -> jax.Array:
    r"""Leave-one-out errors [g, n, r] of regression at g ridges; infinite if they are not finite.

    With $K = V \mathrm{diag}(\sigma) V^T$, $\alpha = V (V^T y / (\sigma + \lambda))$, the diagonal
    of the inverse is $(V \circ V) (1 / (\sigma + \lambda))$, and an error is a quotient of entries.

    If x and y were `centred`, the other supports give away the one that is left out: it is minus
    their sum. So the errors are those of regression with a free constant. With $u = A^{-1} 1$, its
    matrix $A^{-1} - u u^T / (1^T u)$ replaces $A^{-1}$.
    """
    gram, _, y = system(kernel, task)
    finite = jnp.all(jnp.isfinite(gram))
    sigma, vectors = eigh(jnp.where(finite, gram, 0))
    inverse = 1 / (jnp.maximum(sigma, 0)[None] + grid[:, None])
    turned = matmul(vectors.T, y)
    alpha = jnp.einsum("ij,gj,jr->gir", vectors, inverse, turned, precision="highest")
    diagonal = matmul(inverse, (vectors**2).T)
    if centred:
        one = jnp.where(support_mask(task), kernel.constant(task.x), 0)
        u = matmul(inverse * matmul(one[None], vectors), vectors.T)
        projected_one = matmul(u, one[:, None])
        alpha = alpha - u[:, :, None] * (matmul(u, y) / projected_one)[:, None]
        diagonal = diagonal - u**2 / projected_one
    errors = jnp.where(support_mask(task)[None, :, None], alpha / diagonal[:, :, None], 0)
    return jnp.where(finite & jnp.isfinite(errors), errors, jnp.inf)


def squared(errors: np.ndarray) -> np.ndarray:
    """Sums of squares over supports and outputs."""
    with np.errstate(over="ignore"):
        return np.sum(errors**2, axis=(-2, -1))


@jax.jit
def smoothing_loss(kernel: Any, task: Task) -> jax.Array:
    return jnp.sum(solvers.smoother_leave_one_out(kernel, task) ** 2)


class LeaveOneOut(NamedTuple):
    """Leave-one-out errors of a regression, and of the mean of the other supports."""

    regression: float  # root mean squared error of the regression
    mean: float  # root mean squared error of the mean of the other supports
    ok: bool  # whether the mean of the differences of the squared errors is above 2 standard errors


class Regression(NamedTuple):
    """A ridge, and the leave-one-out errors [n, r] of regression with it; infinite if unknown."""

    ridge: float
    errors: np.ndarray
    y: np.ndarray  # outputs of the same supports, [n, r]

    @property
    def loo_result(self) -> LeaveOneOut:
        """The comparison with the mean of the other supports."""
        n = len(self.y)
        squares = self.errors**2
        others = ((self.y - self.y.mean(axis=0)) * n / max(n - 1, 1)) ** 2
        gains = np.mean(others - squares, axis=1)
        sure = n > 1 and gains.mean() > 2 * gains.std(ddof=1) / math.sqrt(n)
        return LeaveOneOut(math.sqrt(squares.mean()), math.sqrt(others.mean()), bool(sure))
