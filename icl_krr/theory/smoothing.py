"""What one head computes: a smoother, not kernel ridge regression (C1, C2, C6, C7, C11)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import checks
from ..kernels import Exponential, PositiveKernel
from ..linalg import solve
from ..numerics import matmul
from ..tasks import Task, system
from ..tasks.task import check_axes


def smoothing_gap(
    kernel: PositiveKernel, task: Task, *, ridge: float | Float[Array, ""]
) -> Float[Array, ""]:
    r"""$|f_{NW} - f^\ast| / |f^\ast|$ over the queries: how far one head is from KRR (C2).

    >>> import jax.numpy as jnp
    >>> from icl_krr import Gaussian, Task
    >>> task = Task(x=jnp.ones((1, 1)), y=jnp.array([3.0]), x_query=jnp.ones((1, 1)))
    >>> float(smoothing_gap(Gaussian(), task, ridge=1.0).round(6))
    1.0
    """
    check_axes(task)
    checks.positive_scalar("ridge", ridge)
    gram, cross, y = system(kernel, task)
    A = gram + jnp.asarray(ridge, gram.dtype) * jnp.eye(len(gram), dtype=gram.dtype)
    exact = matmul(cross, solve(A, y))
    keep = jnp.ones(task.num_supports, bool) if task.mask is None else task.mask
    weights = jax.nn.softmax(kernel.log(task.x_query, task.x), axis=-1, where=keep[None])
    return jnp.linalg.norm(matmul(weights, y) - exact) / jnp.linalg.norm(exact)


def rank_correlation(a: Float[Array, " q"], b: Float[Array, " q"]) -> Float[Array, ""]:
    """Spearman's: the correlation of ranks, ties sharing their average (C2).

    A smoother may have a plausible error and yet order the queries uselessly.

    >>> float(rank_correlation(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 4.0, 9.0])).round(6))
    1.0
    """
    over = [(v[:, None] > v[None]).astype(float) for v in (a, b)]
    ties = [(v[:, None] >= v[None]).astype(float) for v in (a, b)]
    ranks = [jnp.mean(above + tied, axis=1) for above, tied in zip(over, ties, strict=True)]
    a, b = (rank - jnp.mean(rank) for rank in ranks)
    return jnp.sum(a * b) / jnp.sqrt(jnp.sum(a * a) * jnp.sum(b * b))


def mean_limit_bound(spread: jax.Array | float, values: Float[Array, " n"]) -> Float[Array, ""]:
    r"""$|f_{NW}(x) - \bar y| \leq \tanh(s / 4) (\max y - \min y)$: large temperatures (C6).

    `spread` $s$ is the largest minus the smallest logit of x, $\bar y$ the mean of `values` $y$.
    Attained where the weights take two values on sets whose sizes are as 1 to $e^{s/2}$.

    >>> float(mean_limit_bound(0.0, jnp.array([1.0, 2.0])))
    0.0
    """
    return jnp.tanh(jnp.asarray(spread) / 4) * (jnp.max(values) - jnp.min(values))


def nearest_limit_bound(gap: jax.Array | float, values: Float[Array, " n"]) -> Float[Array, ""]:
    r"""$|f_{NW}(x) - y_1| \leq (\max y - \min y) m / (1 + m)$, $m = (n - 1) e^{-g}$ (C6).

    `gap` $g$ is the largest logit of x minus the second largest: small temperatures. The support of
    the largest logit, whose output is $y_1$, is the nearest for the Gaussian kernel, and for the
    exponential on a sphere; elsewhere the exponential kernel picks the largest inner product
    instead. Attained where all others are equally far and have the other extreme of y.

    >>> float(nearest_limit_bound(100.0, jnp.array([1.0, 2.0])))
    0.0
    """
    others = (len(values) - 1) * jnp.exp(-jnp.asarray(gap))
    return others / (1 + others) * (jnp.max(values) - jnp.min(values))


def logit_variance(x: Float[Array, "p p"], z: Float[Array, "p p"]) -> Float[Array, ""]:
    r"""$\mathrm{tr}(XZ) / p$, the variance of $x^T z / \sqrt{p}$ for independent x and z (C6).

    $X$ and $Z$ are their covariances [p, p], their means 0: 1 for unit ones, whatever p.

    >>> float(logit_variance(jnp.eye(5), jnp.eye(5)))
    1.0
    """
    return jnp.sum(x * z.T) / len(x)


def gaussian_logits(
    x: Float[Array, "n p"], z: Float[Array, "m p"], lengthscale: jax.Array | float
) -> Float[Array, "n m"]:
    r"""$(x^T z - |z|^2 / 2) / \ell^2$, whose softmax over z is that of the Gaussian's logs (C11).

    The factor $\exp(-|x|^2 / 2\ell^2)$ of a row cancels.

    >>> gaussian_logits(jnp.ones((1, 1)), jnp.ones((1, 1)), 1.0).tolist()
    [[0.5]]
    """
    return (matmul(x, z.T) - jnp.sum(z * z, -1)[None] / 2) / lengthscale**2


def gaussian_from_exponential(
    x: Float[Array, "n p"], z: Float[Array, "m p"], lengthscale: jax.Array | float
) -> Float[Array, "n m"]:
    r"""The Gaussian kernel matrix as a scaled exponential one, $G = E \tilde K E$ (C7).

    $E = \mathrm{diag}(\exp(-|x|^2 / 2\ell^2))$, and $\tilde K$ has temperature $\ell^2$. The two
    kernels agree up to a constant on a sphere, and differ elsewhere.

    >>> float(gaussian_from_exponential(jnp.ones((1, 1)), jnp.ones((1, 1)), 1.0)[0, 0])
    1.0
    """
    temperature = lengthscale**2
    ex, ez = (jnp.exp(-jnp.sum(points * points, -1) / (2 * temperature)) for points in (x, z))
    return ex[:, None] * Exponential(temperature)(x, z) * ez[None, :]
