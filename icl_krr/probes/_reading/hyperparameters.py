"""Hyperparameters of a method that is near to a layer, and the least squares that find them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import least_squares

from ... import solvers
from ..._core import checks, linalg
from ...catalogue import KERNELS, find
from ...kernels import kernel_class, make_kernel
from ...tasks import Task, map_tasks, system
from .filters import check_like

DIVERGED = 1e3
"""Bound on residuals and slopes, and the value of NaN, so that a search goes on if one diverges."""


def effective(
    kind: str, kernel: str, tasks: Task, hats: Float[Array, "b q n"] | np.ndarray
) -> dict[str, float]:
    r"""Fit hyperparameters of a method so that its hat matrices are nearest to those of a layer.

    Args:
        kind: "regression" fits the ridge $\lambda$ and the bandwidth of the kernel in the hat rows
            $k(x)^T (K + \lambda I)^{-1}$. "smoother" fits only the bandwidth, in the weights of
            Nadaraya-Watson.

    Returns:
        The fitted values by name, such as "ridge" and "lengthscale", and "distance": the distance
        from `hats`, relative to the norm of `hats`.

    >>> import icl_krr as ik
    >>> from icl_krr.probes import hat_matrix
    >>> task = ik.Task(x=np.eye(2), y=[1.0, 1.0], x_query=[[1.0, 1.0]])
    >>> solve = lambda task: ik.solvers.exact(ik.Linear(), task, ridge=3.0).prediction[None]
    >>> tasks, hats = jax.tree.map(lambda leaf: leaf[None], (task, hat_matrix(solve, task)[0]))
    >>> round(effective("regression", "linear", tasks, hats)["ridge"], 3)
    3.0
    """
    checks.choice("kind", kind, ("regression", "smoother"))
    kernel = find("kernel", KERNELS, kernel).name
    bandwidth = kernel_class(kernel).bandwidth
    if bandwidth is None and kind == "smoother":
        raise ValueError(f"kernel must have a bandwidth if kind is 'smoother', got {kernel!r}")
    check_like(tasks, hats=(hats, "b q n"))
    if not np.any(np.asarray(hats)):
        raise ValueError("hats must not be zero, because the distance is relative to their norm")
    names = [] if bandwidth is None else [bandwidth]
    names += ["ridge"] if kind == "regression" else []
    scale = 1.0 if bandwidth is None else float(typical_bandwidth(kernel, tasks))
    rest = (tasks, jnp.asarray(hats), kind, kernel)
    middle = np.array([0 if name == "ridge" else np.log(scale) for name in names])
    unit = np.array([2 if name == "ridge" else 1 for name in names])
    fits = [minimise(lambda x: rows(x, *rest), middle + at * unit) for at in (-3.0, -1.0, 1.0)]
    gap, logs = min(fits, key=lambda one: one[0])
    return dict(zip(names, np.exp(logs).tolist(), strict=True)) | {"distance": gap}


@partial(jax.jit, static_argnames=("kind", "kernel"))
def rows(logs, tasks, hats, kind, kernel):
    """Fitted minus given hat rows as a vector, and its derivative in the log parameters."""

    def of_task(task: Task, values: jax.Array) -> jax.Array:
        of_kernel = make_kernel(kernel, {kernel_class(kernel).bandwidth or "": values[0]})
        if kind == "smoother":
            return solvers.nadaraya_watson(of_kernel, task).weights
        gram, cross, _ = system(of_kernel, task)
        shift = values[-1].astype(gram.dtype) * jnp.eye(len(gram), dtype=gram.dtype)
        return linalg.solve(gram + shift, cross.T).T

    def gap(logs: jax.Array) -> tuple[jax.Array, jax.Array]:
        fitted = map_tasks(partial(of_task, values=jnp.exp(logs)), tasks)
        flat = (fitted - hats).reshape(-1) / jnp.sqrt(jnp.sum(hats**2))
        return flat, flat

    slope, flat = jax.jacfwd(gap, has_aux=True)(logs)
    return flat, slope


def typical_bandwidth(kernel: str, tasks: Task) -> jax.Array:
    """The bandwidth at which |log k| is about 1: root mean square over tasks."""
    typical = kernel_class(kernel).typical_bandwidth
    return jnp.sqrt(jnp.mean(map_tasks(lambda task: typical(task.x, task.mask) ** 2, tasks)))


def minimise(
    function: Callable[[np.ndarray], Sequence[Any]],
    start: np.ndarray,
    limits: np.ndarray | float = np.inf,
    flat: float = 1e-5,
) -> tuple[float, np.ndarray]:
    """A local minimum of the norm of residuals, within 12 of `start` and `limits`.

    The function returns residuals and slopes, or residuals alone. The search stops where the loss
    is `flat`, as at a ridge that is too small to matter.
    """

    @lru_cache(maxsize=1)
    def at(x: bytes) -> list[np.ndarray]:
        values = (np.asarray(v, float) for v in function(np.frombuffer(x)))
        return [np.clip(np.nan_to_num(v, nan=DIVERGED), -DIVERGED, DIVERGED) for v in values]

    initial = at(start.tobytes())
    if not start.size:  # SciPy would take the maximum of no slopes
        return float(np.linalg.norm(initial[0])), start
    slopes: Any = "2-point" if len(initial) == 1 else lambda x: at(x.tobytes())[1]
    first, bounds = np.minimum(start, limits - 1e-3), (start - 12, np.minimum(start + 12, limits))
    solved = least_squares(
        lambda x: at(x.tobytes())[0], first, slopes, bounds=bounds, ftol=flat, max_nfev=40
    )
    return float(np.sqrt(2 * solved.cost)), solved.x
