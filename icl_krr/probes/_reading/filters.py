"""The spectral filter of every layer: the function of the kernel matrix that the layer applies."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._core import checks
from ..._core.linalg import eigh
from ..._core.numerics import matmul
from ..._core.readable import readable
from ...kernels import Kernel
from ...kernels._kernel import check_kernel
from ...tasks import Task, map_tasks, system
from ...tasks._task import check_axes, check_plain
from .._resampling import INTERVAL_QUANTILES, RESAMPLES, resamples

SMALLEST = 1e-4
"""Lower edge of the default bins, relative to the largest eigenvalue."""


@readable
class Filter(NamedTuple):
    r"""Spectral filter $q(\sigma)$ of every layer, with 95 % bootstrap intervals over tasks.

    Each value is a mean over a bin of eigenvalues. If the filter is curved, the error of this mean
    is of the order of the squared width of the bin.

    Attributes:
        sigma: mean eigenvalue of each bin [bins], weighted by the $c_i^2$ of `spectral_filter`.
        q: mean filter in each bin [L, bins].
        low, high: ends of the intervals [L, bins].
    """

    sigma: np.ndarray
    q: np.ndarray
    low: np.ndarray
    high: np.ndarray


def spectral_filter(
    kernel: Kernel,
    tasks: Task,
    hats: Float[Array, "b L q n"] | np.ndarray,
    *,
    edges: np.ndarray | None = None,
    bins: int = 12,
    seed: int = 0,
) -> Filter:
    r"""Fit the spectral filter $q$ of every layer from its hat matrices, by least squares in bins.

    For a query $x$, a row of the hat matrix of a spectral method is $h(x)^T = k(x)^T q(K)$, where
    $k(x)$ are the kernel values of $x$ and the supports. With $K = \sum_i \sigma_i u_i u_i^T$ and
    $c_i = k(x)^T u_i$, this means $h(x)^T u_i = q(\sigma_i) c_i$. The estimate for a bin is
    $\sum (h^T u_i) c_i / \sum c_i^2$ over tasks, queries and eigenvalues in the bin. Exact kernel
    ridge regression has $q(\sigma) = 1 / (\sigma + \lambda)$.

    Args:
        hats: hat matrices of every layer, as `hat_matrix` returns them.
        edges: ascending edges of the bins [bins + 1]. The default is logarithmic, from 1e-4 of the
            largest eigenvalue up to the largest; smaller eigenvalues hardly change the predictions.
        bins: number of bins if `edges` is not given.

    Returns:
        A `Filter` without the empty bins, with intervals over 1000 resamples of the tasks.

    Source: Lo Gerfo et al., Spectral algorithms for supervised learning, 2008.

    >>> import icl_krr as ik
    >>> from icl_krr.probes import hat_matrix
    >>> task = ik.Task(x=np.eye(2), y=[1.0, 1.0], x_query=[[1.0, 1.0]])
    >>> solve = lambda task: ik.solvers.exact(ik.Linear(), task, ridge=1.0).prediction[None]
    >>> tasks, hats = jax.tree.map(lambda leaf: leaf[None], (task, hat_matrix(solve, task)))
    >>> spectral_filter(ik.Linear(), tasks, hats, bins=1).q.round(6).tolist()
    [[0.5]]
    """
    check_kernel(kernel)
    checks.count("bins", bins)
    checks.count("seed", seed, minimum=0)
    if edges is not None:
        edges = np.asarray(edges)
        checks.reals(edges=edges)
        if edges.ndim != 1 or len(edges) < 2 or not np.all(np.diff(edges) > 0):
            raise ValueError(f"edges must be at least two ascending numbers, got {edges.tolist()}")
    check_like(tasks, hats=(hats, "b L q n"))
    parts = project(kernel, tasks, jnp.asarray(hats))
    sigma, numerators, weights = (np.asarray(part, float) for part in parts)
    largest = sigma.max()
    ends = largest * SMALLEST, largest * (1 + 1e-9)
    cuts = np.geomspace(*ends, bins + 1) if edges is None else edges
    inside = 1.0 * (np.digitize(sigma, cuts)[..., None] == np.arange(1, len(cuts)))
    tops = np.einsum("bln,bnk->blk", numerators, inside)
    bottoms, means = (np.einsum("bn,bnk->bk", v, inside) for v in (weights, weights * sigma))
    used = bottoms.sum(0) > 0
    tops, bottoms, means = tops[..., used], bottoms[..., used], means[..., used]
    resample = resamples(len(sigma), RESAMPLES, seed)
    under = resample @ bottoms
    drawn = np.einsum("rb,blk->rlk", resample, tops) / np.where(under > 0, under, np.nan)[:, None]
    low, high = np.nanquantile(drawn, INTERVAL_QUANTILES, axis=0)
    total = bottoms.sum(0)
    return Filter(means.sum(0) / total, tops.sum(0) / total, low, high)


@jax.jit
def project(kernel, tasks, hats):
    """Eigenvalues [b, n], sum over queries of (h^T u_i) c_i [b, L, n] and of c_i^2 [b, n]."""

    def of_task(part):
        task, hat = part
        gram, cross, _ = system(kernel, task)
        sigma, vectors = eigh(gram)
        c = matmul(cross, vectors)
        h = jnp.einsum("lqn,ni->lqi", hat, vectors, precision="highest")
        return sigma, jnp.sum(h * c[None], axis=1), jnp.sum(c * c, axis=0)

    return jax.lax.map(of_task, (tasks, hats))


def check_like(tasks: Task, **arrays: tuple[Any, str]) -> None:
    """Raise an error unless arrays have the axes b, q and n of the tasks."""
    check_axes(tasks, 1)
    checks.shapes(x=(tasks.x, "b n p"), x_query=(tasks.x_query, "b q p"), **arrays)


@readable
class Reading(NamedTuple):
    r"""The filter of every layer at one eigenvalue per task.

    Attributes:
        sigma: eigenvalue $\sigma$ of every task [b].
        q: filter $q(\sigma)$ of every task and layer [b, L].
        rest: part of the predictions that no filter of $K$ can have [b, L]: the norm of
            $f - q(\sigma) k(x)^T y$ over the queries, relative to the norm of $f$.
    """

    sigma: np.ndarray
    q: np.ndarray
    rest: np.ndarray


def read_filter(kernel: Kernel, tasks: Task, layer_predictions: Float[Array, "b L q"]) -> Reading:
    r"""Read the filter of every layer from its predictions on tasks of `along_eigenvector`.

    The eigenvalue is $\sigma = y^T K y / y^T y$. With $c = k(x)^T y$, the filter is
    $q(\sigma) = \sum f c / \sum c^2$ over the queries. The predictions need not be linear in $y$:
    conjugate gradient has $1 / (\sigma + \lambda)$ after one step, as $y$ is an eigenvector.

    >>> import icl_krr as ik
    >>> x = np.array([[[2.0], [0.0]]])
    >>> tasks = ik.Task(x=x, y=[[1.0, 1.0]], x_query=x)
    >>> tasks = ik.probes.along_eigenvector(ik.Linear(), tasks)
    >>> solve = lambda task: ik.solvers.exact(ik.Linear(), task, ridge=1.0).prediction[None]
    >>> reading = read_filter(ik.Linear(), tasks, ik.map_tasks(solve, tasks))
    >>> reading.sigma.round(4).tolist(), reading.q.round(4).tolist()
    ([4.0], [[0.2]])
    """
    check_kernel(kernel)
    check_plain(tasks)
    check_like(tasks, layer_predictions=(layer_predictions, "b L q"))
    parts = _read(kernel, tasks, jnp.asarray(layer_predictions))
    return Reading(*(np.asarray(part, float) for part in parts))


@jax.jit
def _read(kernel: Kernel, tasks: Task, layer_predictions: jax.Array) -> tuple[jax.Array, ...]:
    def read_task(part: tuple[Task, jax.Array]) -> tuple[jax.Array, ...]:
        task, f = part
        gram, cross, y = system(kernel, task)
        size = jnp.sum(y * y)
        sigma = jnp.sum(y * matmul(gram, y)) / jnp.where(size > 0, size, 1)
        c = matmul(cross, y)[:, 0]
        square = jnp.sum(c * c)
        q = jnp.sum(f * c[None], axis=1) / jnp.where(square > 0, square, 1)
        rest = jnp.linalg.norm(f - q[:, None] * c[None], axis=1)
        norm = jnp.linalg.norm(f, axis=1)
        return sigma, q, rest / jnp.where(norm > 0, norm, 1)

    return jax.lax.map(read_task, (tasks, layer_predictions))


def along_eigenvector(kernel: Kernel, tasks: Task, index: int = 0) -> Task:
    r"""Replace the outputs of every task by an eigenvector of its kernel matrix.

    With $K = \sum_i \sigma_i u_i u_i^T$, the new outputs are $y = |y_0| u_i$ for the old outputs
    $y_0$ and the sign with $u_i^T y_0 \geq 0$. A solver that applies a function $q$ of $K$ to $y$
    then predicts $q(\sigma_i) k(x)^T y$, and `read_filter` reads this number without a derivative.

    Args:
        tasks: batch with y [b, n], without masks; `y_query` is dropped.
        index: index of the eigenvalue, 0 for the largest, at most n - 1.

    >>> import numpy as np
    >>> import icl_krr as ik
    >>> x = np.array([[[2.0], [0.0]]])
    >>> tasks = ik.Task(x=x, y=[[3.0, 4.0]], x_query=x)
    >>> along_eigenvector(ik.Linear(), tasks).y.tolist()
    [[5.0, 0.0]]
    """
    check_kernel(kernel)
    check_plain(tasks)
    checks.count("index", index, minimum=0)
    if index >= tasks.num_supports:
        raise ValueError(f"index must be < n = {tasks.num_supports}, got {index}")
    return tasks.replace(y=eigenvectors(kernel, tasks, index), y_query=None)


@partial(jax.jit, static_argnums=2)
def eigenvectors(kernel: Kernel, tasks: Task, index: int) -> Float[Array, "b n"]:
    def of_task(task: Task) -> jax.Array:
        u = eigh(system(kernel, task).gram)[1][:, -1 - index]
        size = jnp.linalg.norm(task.y)
        return jnp.where(jnp.sum(u * task.y) < 0, -size, size) * u

    return map_tasks(of_task, tasks)
