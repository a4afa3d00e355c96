"""The spectral filter of every layer: what it makes of each eigenvalue of the kernel matrix."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import checks, linalg, solvers
from ..catalogue import KERNELS, find, kernel_class, make_kernel
from ..kernels import Kernel
from ..linalg import eigh
from ..numerics import matmul
from ..tasks import Task, map_tasks, system
from ..tasks.task import check_axes
from .candidates import typical_bandwidth
from .least_squares import minimise

SMALLEST = 1e-4
"""The smallest eigenvalue that is looked at, relative to the largest."""


class Filter(NamedTuple):
    r"""$q(\sigma)$ [L, bins] at the eigenvalues `sigma` [bins], with 95 % intervals over tasks.

    A bin's eigenvalue is the mean of those in it, weighed as its filter is: q is a mean over the
    bin too, so a curved filter is met to about the square of the bin's width.
    """

    sigma: np.ndarray
    q: np.ndarray
    low: np.ndarray
    high: np.ndarray


def spectral_filter(
    kernel: Kernel,
    tasks: Task,
    hats: Float[Array, "b L q n"],
    *,
    edges: np.ndarray | None = None,
    bins: int = 12,
    seed: int = 0,
) -> Filter:
    r"""Least-squares $q$ of $h(x)^T = k(x)^T q(K)$, in bins of $\sigma_i$, for every layer.

    With $K = \sum_i \sigma_i u_i u_i^T$ and $c_i = k(x)^T u_i$, a hat row of a spectral method has
    $h(x)^T u_i = q(\sigma_i) c_i$: so $q$ of a bin is $\sum (h^T u_i) c_i / \sum c_i^2$ over the
    tasks of a batch, their queries and the eigenvalues in it. Exact regression has
    $q(\sigma) = 1 / (\sigma + \lambda)$. `hats` [b, L, q, n] are those of `hat_matrix`; `edges` of
    the bins are by default logarithmic, from 1e-4 of the largest eigenvalue up: queries hardly see
    what is below.

    Raises ValueError for hats of other tasks and for no bins.

    Source: Lo Gerfo et al., Spectral algorithms for supervised learning, 2008.

    >>> import icl_krr as ik
    >>> from icl_krr.probes import hat_matrix
    >>> task = ik.Task(x=jnp.eye(2), y=jnp.ones(2), x_query=jnp.ones((1, 2)))
    >>> solve = lambda task: ik.solvers.exact(ik.Linear(), task, ridge=1.0).prediction[None]
    >>> tasks, hats = jax.tree.map(lambda leaf: leaf[None], (task, hat_matrix(solve, task)))
    >>> spectral_filter(ik.Linear(), tasks, hats, bins=1).q.round(6).tolist()
    [[0.5]]
    """
    checks.count("bins", bins)
    matching(tasks, hats, 4)
    sigma, numerators, weights = (
        np.asarray(part, float) for part in project(kernel, tasks, jnp.asarray(hats))
    )
    largest = sigma.max()
    ends = largest * SMALLEST, largest * (1 + 1e-9)
    cuts = np.geomspace(*ends, bins + 1) if edges is None else edges
    place = np.digitize(sigma, cuts) - 1
    count = len(cuts) - 1
    inside = [place == k for k in range(count)]
    of_bin = lambda values: np.stack([np.sum(values * m, -1) for m in inside], -1)  # noqa: E731
    tops = np.stack([np.sum(numerators * m[:, None], -1) for m in inside], -1)
    bottoms, means = of_bin(weights), of_bin(weights * sigma)
    used = bottoms.sum(0) > 0
    tops, bottoms, means = tops[..., used], bottoms[..., used], means[..., used]
    resample = np.random.default_rng(seed).multinomial(
        len(sigma), np.full(len(sigma), 1 / len(sigma)), size=1000
    )
    under = resample @ bottoms
    drawn = np.einsum("rb,blk->rlk", resample, tops) / np.where(under > 0, under, np.nan)[:, None]
    low, high = np.nanquantile(drawn, (0.025, 0.975), axis=0)
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


def effective(kind: str, kernel: str, tasks: Task, hats: Float[Array, "b q n"]) -> dict[str, float]:
    r"""The hyperparameters whose hat rows are nearest to a layer's, and how near: `distance`.

    `kind` "regression" fits $k(x)^T (K + \lambda I)^{-1}$, hence a `ridge` $\lambda$ and the
    bandwidth of the `kernel`, a name of the catalogue; "smoother" fits the weights
    of Nadaraya-Watson. `tasks` is a batch. The distance is relative to the norm of `hats`.

    Raises ValueError for unknown kinds and kernels, a smoother without bandwidth, hats of other
    tasks and such that are zero.

    >>> import icl_krr as ik
    >>> from icl_krr.probes import hat_matrix
    >>> task = ik.Task(x=jnp.eye(2), y=jnp.ones(2), x_query=jnp.ones((1, 2)))
    >>> solve = lambda task: ik.solvers.exact(ik.Linear(), task, ridge=3.0).prediction[None]
    >>> tasks, hats = jax.tree.map(lambda leaf: leaf[None], (task, hat_matrix(solve, task)[0]))
    >>> round(effective("regression", "linear", tasks, hats)["ridge"], 3)
    3.0
    """
    checks.choice("kind", kind, ("regression", "smoother"))
    kernel = find("kernel", KERNELS, kernel).name
    bandwidth = kernel_class(kernel).bandwidth
    if bandwidth is None and kind == "smoother":
        raise ValueError(f"kernel must have a bandwidth for a smoother, got {kernel!r}")
    matching(tasks, hats, 3)
    if not np.any(np.asarray(hats)):
        raise ValueError("hats must not be zero: nothing is near to them")
    names = [] if bandwidth is None else [bandwidth]
    names += ["ridge"] if kind == "regression" else []
    scale = 1.0 if bandwidth is None else float(typical_bandwidth(kernel, tasks))
    rest = (tasks, jnp.asarray(hats), kind, kernel)
    found = [
        minimise(
            lambda logs: rows(logs, *rest),
            np.array([2 * at if name == "ridge" else np.log(scale) + at for name in names]),
        )
        for at in (-3.0, -1.0, 1.0)
    ]
    gap, logs = min(found, key=lambda one: one[0])
    return dict(zip(names, np.exp(logs).tolist(), strict=True)) | {"distance": gap}


def matching(tasks: Task, hats: jax.Array, ndim: int) -> None:
    check_axes(tasks, 1)
    shape, rest = np.shape(hats), (tasks.num_queries, tasks.num_supports)
    if len(shape) != ndim or shape[0] != len(tasks.x) or shape[-2:] != rest:
        words = ", ".join(["b", *["L"] * (ndim - 3), "q", "n"])
        raise ValueError(
            f"hats must be [{words}] with b = {len(tasks.x)}, q = {rest[0]}, n = {rest[1]} as "
            f"tasks, got shape {list(shape)}"
        )


@partial(jax.jit, static_argnames=("kind", "kernel"))
def rows(logs, tasks, hats, kind, kernel):
    """Their difference from a layer's, flat, and its derivative in the logarithms."""

    def of_task(task: Task, values: jax.Array) -> jax.Array:
        of_kernel = make_kernel(kernel, {kernel_class(kernel).bandwidth or "": values[0]})
        if kind == "smoother":
            return solvers.nadaraya_watson(of_kernel, task).weights
        gram, cross, _ = system(of_kernel, task)
        shift = values[-1].astype(gram.dtype) * jnp.eye(len(gram), dtype=gram.dtype)
        return linalg.solve(gram + shift, cross.T).T

    def gap(logs: jax.Array) -> tuple[jax.Array, jax.Array]:
        made = map_tasks(partial(of_task, values=jnp.exp(logs)), tasks)
        flat = (made - hats).reshape(-1) / jnp.sqrt(jnp.sum(hats**2))
        return flat, flat

    slope, flat = jax.jacfwd(gap, has_aux=True)(logs)
    return flat, slope
