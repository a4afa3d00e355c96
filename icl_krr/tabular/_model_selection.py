"""Choose hyperparameters by leave-one-out error on the supports alone.

Regression and the baselines use the same procedure, in float64. One eigendecomposition of a kernel
matrix gives the errors at all ridges. Its cost is cubic in the number of supports, so a random
subsample replaces more supports than `MOST`. A grid grows as long as its best value is at an edge,
up to the limits of its `LogGrid`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import Kernel, Task
from ..tasks._task import support_mask
from . import _held_out
from ._held_out import Regression, leave_one_out_errors, refuse_one_row, squared, unknown


class LogGrid(NamedTuple):
    """A grid of values unit * base^(step / 2) with steps from -reach to reach, which can grow."""

    base: float  # factor of two steps
    reach: int  # largest step of the grid
    low: int  # smallest step to which it can grow
    high: int  # largest such step

    def values(self, unit: float) -> np.ndarray:
        """The values at all steps from `low` to `high`."""
        return unit * self.base ** (np.arange(self.low, self.high + 1) / 2)

    def edge(self, unit: float, value: float) -> str:
        """Whether a value is the smallest or the largest that was tried, or else ""."""
        step = round(2 * math.log(value / unit, self.base))
        return "smallest" if step == self.low else "largest" if step == self.high else ""


FIXED = LogGrid(1.0, 0, 0, 0)
"""The grid of a value that the user has set."""

RIDGES = {"float32": LogGrid(10.0, 6, -6, 12), "float64": LogGrid(10.0, 6, -12, 12)}
BANDWIDTHS = {"float32": LogGrid(2.0, 8, -16, 8), "float64": LogGrid(2.0, 8, -16, 16)}
"""Grids by the dtype of the regression, which has too few digits for smaller ridges and for wider
kernels."""

MOST = {"regression": 1024, "Nadaraya-Watson": 8192}
"""The largest number of supports on which leave-one-out chooses hyperparameters."""

LARGEST = math.exp(75)
"""The largest kernel value of a regression that is chosen, so that float32 holds sums of them."""

Progress = Callable[[str], None]


def silent(words: str) -> None:
    """Tell nobody about progress."""


def subsample(task: Task, method: str, *chosen: str) -> Task:
    """At most `MOST` of the supports without mask, at random; in float64 if JAX allows it."""
    rows, most = np.flatnonzero(np.asarray(support_mask(task))), MOST[method]
    refuse_one_row(len(rows), chosen)
    if len(rows) > most:
        rows = rows[np.random.default_rng(0).permutation(len(rows))[:most]]
    x, y, x_query = (np.asarray(part, np.float64) for part in (task.x, task.y, task.x_query))
    return Task(x[rows], y[rows], x_query)


@jax.jit(static_argnames="family")
def bandwidths(family: type[Kernel], task: Task) -> jax.Array:
    """17 bandwidths around the value at which logits have size 1, the grid before it grows."""
    return family.bandwidths(task.x, task.mask)


@jax.jit
def sizes(kernel: Kernel, task: Task) -> tuple[jax.Array, jax.Array]:
    """tr K / n, or 1 if it is 0, and the largest k(x, x) of supports and queries."""
    on = jnp.where(support_mask(task), kernel.diagonal(task.x), 0)
    at_queries = kernel.diagonal(task.x_query)
    unit = jnp.sum(on) / task.num_supports
    return jnp.where(unit > 0, unit, 1), jnp.max(jnp.concatenate([on, at_queries]))


def computable(kernel: Kernel, task: Task) -> bool:
    """Whether no kernel value is above `LARGEST`."""
    return float(sizes(kernel, task.replace(y_query=None))[1]) <= LARGEST


def choose_ridge(kernel: Kernel, task: Task, centred: bool = False) -> float:
    """The ridge with the least squared leave-one-out error; see `leave_one_out_errors`."""
    return regress(kernel, task, None, centred).ridge


def regress(kernel: Kernel, task: Task, ridge: float | None, centred: bool = False) -> Regression:
    """Regression with the given ridge, or with the best one."""
    with jax.enable_x64(True):
        few = subsample(task, "regression", *(["ridge"] if ridge is None else []))
        axis, grid, errors = sweep(kernel, few, task.x.dtype, ridge, centred)
    _, (_, step) = search(FIXED, axis, lambda _: squared(errors))
    best = step - axis.low
    y = np.asarray(few.y).reshape(few.num_supports, -1)
    regression = Regression(float(grid[best]), errors[best], y)
    if ridge is None and not np.all(np.isfinite(regression.errors)):
        raise ValueError(unknown("ridge"))
    return regression


def sweep(
    kernel: Kernel, task: Task, dtype: Any, ridge: float | None, centred: bool
) -> tuple[LogGrid, np.ndarray, np.ndarray]:
    """All ridges that can be tried for this dtype, and their leave-one-out errors [g, n, r]."""
    axis = RIDGES[str(dtype)] if ridge is None else FIXED
    unit, most = map(float, sizes(kernel, task))
    grid = axis.values(unit if ridge is None else ridge)
    if not most <= LARGEST:
        return axis, grid, np.full((len(grid), task.num_supports, task.num_outputs), np.inf)
    return axis, grid, np.asarray(leave_one_out_errors(kernel, task, jnp.asarray(grid), centred))


class Choice(NamedTuple):
    """A kernel, and its root mean squared leave-one-out error; infinite if it is not finite."""

    kernel: Kernel
    error: float


def choose_smoother(
    family: type[Kernel], task: Task, bandwidth: Any = None, progress: Progress = silent
) -> Choice:
    """The kernel of the given bandwidth, or of that with the least error of Nadaraya-Watson."""

    def losses(kernel: Kernel, few: Task) -> np.ndarray:
        return np.asarray(_held_out.smoothing_loss(kernel, few))[None]

    return choose(family, task, bandwidth, FIXED, losses, "Nadaraya-Watson", progress)


def choose_kernel(
    family: type[Kernel],
    task: Task,
    ridge: float | None,
    bandwidth: Any = None,
    progress: Progress = silent,
    centred: bool = False,
) -> Choice:
    """The kernel of the given bandwidth, or that of least error, each at its best ridge."""

    def losses(kernel: Kernel, few: Task) -> np.ndarray:
        return squared(sweep(kernel, few, task.x.dtype, ridge, centred)[2])

    inner = RIDGES[str(task.x.dtype)] if ridge is None else FIXED
    return choose(family, task, bandwidth, inner, losses, "regression", progress)


def choose(
    family: type[Kernel],
    task: Task,
    bandwidth: Any,
    inner: LogGrid,
    losses: Callable[[Kernel, Task], np.ndarray],
    method: str,
    progress: Progress,
) -> Choice:
    fixed = family.bandwidth is None or bandwidth is not None
    outer, tried = FIXED if fixed else BANDWIDTHS[str(task.x.dtype)], []
    with jax.enable_x64(True):
        free = {str(family.bandwidth): not fixed, "ridge": inner is not FIXED}
        few = subsample(task, method, *[name for name, is_free in free.items() if is_free])
        grid = [bandwidth] if fixed else outer.values(typical_bandwidth(family, few)).tolist()

        def at(step: int) -> np.ndarray:
            tried.append(step)
            count = f"{len(tried)} of {max(len(tried), 2 * outer.reach + 1)}"
            what = f"{family.bandwidth} {count}" if family.bandwidth else "ridge"
            progress(f"{method}, leave-one-out: {family.__name__.lower()} kernel, {what}")
            grid_losses = losses(family.of_bandwidth(grid[step - outer.low]), few)
            return np.where(np.isfinite(grid_losses), grid_losses, np.inf)

        loss, (step, _) = search(outer, inner, at)
    return Choice(family.of_bandwidth(grid[step - outer.low]), math.sqrt(loss / few.y.size))


def typical_bandwidth(family: type[Kernel], task: Task) -> float:
    return float(np.asarray(bandwidths(family, task))[BANDWIDTHS["float64"].reach])


def edges(kernel: Kernel, ridge: float, task: Task) -> dict[str, str]:
    """Which of the hyperparameters are the "smallest" or the "largest" that were tried."""
    with jax.enable_x64(True):
        few, dtype = subsample(task, "regression"), str(task.x.dtype)
        edges_reached = {"ridge": RIDGES[dtype].edge(float(sizes(kernel, few)[0]), ridge)}
        if name := kernel.bandwidth:
            unit = typical_bandwidth(type(kernel), few)
            edges_reached[name] = BANDWIDTHS[dtype].edge(unit, float(getattr(kernel, name)))
    return {name: edge for name, edge in edges_reached.items() if edge}


def search(
    outer: LogGrid, inner: LogGrid, losses: Callable[[int], np.ndarray]
) -> tuple[float, tuple[int, int]]:
    """The least loss and its steps on two axes, on a grid that grows while they are at an edge."""
    losses_at: dict[int, np.ndarray] = {}

    def least(spans: list[tuple[int, int]]) -> tuple[float, tuple[int, int]]:
        (low, high), (first, last) = spans
        for step in range(low, high + 1):
            if step not in losses_at:
                losses_at[step] = losses(step)
        columns = slice(first - inner.low, last - inner.low + 1)
        table = np.stack([losses_at[step][columns] for step in range(low, high + 1)])
        i, j = divmod(int(np.argmin(table)), table.shape[1])
        return float(table[i, j]), (low + i, first + j)

    spans = [(-axis.reach, axis.reach) for axis in (outer, inner)]
    loss, best = least(spans)
    while True:
        spans = [
            (max(axis.low, low - (step == low)), min(axis.high, high + (step == high)))
            for axis, (low, high), step in zip((outer, inner), spans, best, strict=True)
        ]
        minimum, beyond = least(spans)
        if not minimum < loss:
            return loss, best
        loss, best = minimum, beyond
