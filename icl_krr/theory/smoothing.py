"""One softmax head is a smoother, not kernel ridge regression (C1, C2, C6, C7, C11)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import capacity, checks
from ..kernels import Exponential, PositiveKernel, check_positive
from ..linalg import solve
from ..numerics import matmul
from ..pytree import compiled
from ..tasks import Task, system
from ..tasks.linear_system import check_matrices
from .softmax import seen


def smoothing_gap(
    kernel: PositiveKernel, task: Task, *, ridge: float | Float[Array, ""]
) -> Float[Array, ""]:
    r"""Return the relative distance $|f_{NW} - f^\ast| / |f^\ast|$ over the queries (C2).

    $f_{NW}$ is the Nadaraya-Watson estimate, which one softmax head computes. $f^\ast$ is exact
    kernel ridge regression.

    Args:
        kernel, task, ridge: as in `icl_krr.theory`, which also says what is raised.

    >>> from icl_krr import Gaussian, Task
    >>> task = Task(x=[[1.0]], y=[3.0], x_query=[[1.0]])
    >>> float(smoothing_gap(Gaussian(), task, ridge=1.0).round(6))
    1.0
    """
    check_matrices(kernel, task)
    check_positive(kernel)
    checks.positive_scalar("ridge", ridge)
    return relative_gap(kernel, task, ridge)


@compiled
def relative_gap(kernel: PositiveKernel, task: Task, ridge: Any) -> jax.Array:
    gram, cross, y = system(kernel, task)
    A = gram + jnp.asarray(ridge, gram.dtype) * jnp.eye(len(gram), dtype=gram.dtype)
    exact = matmul(cross, solve(A, y))
    x, keep = seen(task)
    weights = jax.nn.softmax(kernel.log(task.x_query, x), axis=-1, where=keep[None])
    gap, size = jnp.linalg.norm(matmul(weights, y) - exact), jnp.linalg.norm(exact)
    return gap / jnp.where((gap == 0) & (size == 0), 1, size)  # as without supports


def rank_correlation(a: Float[Array, " q"], b: Float[Array, " q"]) -> Float[Array, ""]:
    """Return Spearman's rank correlation; ties share their average rank (C2).

    A smoother can have a small error and still order the queries wrongly.

    Args:
        a: values at the queries [q].
        b: other values at the same queries [q].

    >>> import numpy as np
    >>> float(rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0, 9.0])).round(6))
    1.0
    """
    checks.shapes(a=(a, "q"), b=(b, "q"))
    capacity.check("comparison of all pairs", 4 * a.size**2, a)
    return correlation_of_ranks(a, b)


@jax.jit
def correlation_of_ranks(a: jax.Array, b: jax.Array) -> jax.Array:
    over = [(v[:, None] > v[None]).astype(float) for v in (a, b)]
    ties = [(v[:, None] >= v[None]).astype(float) for v in (a, b)]
    ranks = [jnp.mean(above + tied, axis=1) for above, tied in zip(over, ties, strict=True)]
    a, b = (rank - jnp.mean(rank) for rank in ranks)
    return jnp.sum(a * b) / jnp.sqrt(jnp.sum(a * a) * jnp.sum(b * b))


def mean_limit_bound(spread: jax.Array | float, values: Float[Array, " n"]) -> Float[Array, ""]:
    r"""Bound the distance between the output of a softmax head and the mean of $y$ (C6).

    $$|f_{NW}(x) - \bar y| \leq \tanh(s / 4) (\max y - \min y)$$

    The bound is small for large temperatures. The bound is attained if three conditions hold. The
    logits take only two values. All supports with one of these logits have the output $\max y$, and
    all others have the output $\min y$. The numbers of supports with the larger and the smaller
    logit are in the ratio 1 to $e^{s/2}$.

    Args:
        spread: difference $s$ >= 0 between the largest and the smallest logit of the query x.
        values: outputs $y$ of the supports [n]; $\bar y$ is their mean.

    >>> import numpy as np
    >>> float(mean_limit_bound(0.0, np.array([1.0, 2.0])))
    0.0
    """
    checks.nonnegatives(spread=spread)
    checks.shapes(values=(values, "n"))
    return jnp.tanh(jnp.asarray(spread) / 4) * (jnp.max(values) - jnp.min(values))


def nearest_limit_bound(gap: jax.Array | float, values: Float[Array, " n"]) -> Float[Array, ""]:
    r"""Bound the distance between the output of a softmax head and $y$ at the largest logit (C6).

    $$|f_{NW}(x) - y_1| \leq (\max y - \min y) m / (1 + m), \quad m = (n - 1) e^{-g}$$

    $y_1$ is the output of the support with the largest logit. For the Gaussian kernel, and for the
    exponential kernel on a sphere, this support is the nearest one. In general the exponential
    kernel selects the support with the largest inner product. The bound is small for small
    temperatures. The bound is attained if $y_1$ is one extreme of $y$, and all other supports have
    the same logit and the other extreme.

    Args:
        gap: difference $g$ >= 0 between the two largest logits of the query x.
        values: outputs $y$ of the supports [n].

    >>> import numpy as np
    >>> float(nearest_limit_bound(100.0, np.array([1.0, 2.0])))
    0.0
    """
    checks.nonnegatives(gap=gap)
    checks.shapes(values=(values, "n"))
    others = (len(values) - 1) * jnp.exp(-jnp.asarray(gap))
    return others / (1 + others) * (jnp.max(values) - jnp.min(values))


def logit_variance(x: Float[Array, "p p"], z: Float[Array, "p p"]) -> Float[Array, ""]:
    r"""Return the variance $\mathrm{tr}(XZ) / p$ of $x^T z / \sqrt{p}$ (C6).

    The vectors x and z are independent and have mean 0. If both covariances are the identity, the
    variance is 1 for every p.

    Args:
        x: covariance $X$ of x [p, p].
        z: covariance $Z$ of z [p, p].

    >>> import numpy as np
    >>> float(logit_variance(np.eye(5), np.eye(5)))
    1.0
    """
    checks.shapes(x=(x, "p p"), z=(z, "p p"))
    return jnp.sum(x * z.T) / len(x)


def gaussian_logits(
    x: Float[Array, "n p"], z: Float[Array, "m p"], lengthscale: jax.Array | float
) -> Float[Array, "n m"]:
    r"""Return the logits $(x^T z - |z|^2 / 2) / \ell^2$ of the Gaussian kernel (C11).

    Their softmax over z equals the softmax of $-|x - z|^2 / 2\ell^2$. The factor
    $\exp(-|x|^2 / 2\ell^2)$ is constant in each row, so the softmax cancels it.

    Args:
        x: queries of the head [n, p].
        z: keys of the head [m, p].
        lengthscale: lengthscale $\ell$ > 0, in units of distances between points.

    >>> import numpy as np
    >>> gaussian_logits(np.ones((1, 1)), np.ones((1, 1)), 1.0).tolist()
    [[0.5]]
    """
    checks.shapes(x=(x, "n p"), z=(z, "m p"))
    checks.positive_scalar("lengthscale", lengthscale)
    return (matmul(x, z.T) - jnp.sum(z * z, -1)[None] / 2) / lengthscale**2


def gaussian_from_exponential(
    x: Float[Array, "n p"], z: Float[Array, "m p"], lengthscale: jax.Array | float
) -> Float[Array, "n m"]:
    r"""Compute the Gaussian kernel matrix $G = E \tilde K E$ from the exponential one (C7).

    $E = \mathrm{diag}(\exp(-|x|^2 / 2\ell^2))$, and $\tilde K$ is the exponential kernel matrix
    with temperature $\ell^2$. On a sphere the two kernels differ only by a constant factor.
    Elsewhere the factor depends on the points.

    Args:
        lengthscale: as in `gaussian_logits`.
        x: points [n, p].
        z: points [m, p].

    >>> import numpy as np
    >>> float(gaussian_from_exponential(np.ones((1, 1)), np.ones((1, 1)), 1.0)[0, 0])
    1.0
    """
    checks.shapes(x=(x, "n p"), z=(z, "m p"))
    checks.positive_scalar("lengthscale", lengthscale)
    checks.matrices(x, z)
    return scaled_exponential(x, z, lengthscale)


@jax.jit
def scaled_exponential(x: jax.Array, z: jax.Array, lengthscale: jax.Array) -> jax.Array:
    temperature = lengthscale**2
    ex, ez = (jnp.exp(-jnp.sum(points * points, -1) / (2 * temperature)) for points in (x, z))
    return ex[:, None] * Exponential(temperature)(x, z) * ez[None, :]
