"""Excess errors over exact regression of trained models of many sizes, beside those of solvers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import linregress, t as student

from .. import Gaussian, theory
from .._core.files import from_csv
from .._core.linalg import eigenvalues
from ..probes._resampling import INTERVAL_QUANTILES
from ..tasks import GaussianProcess
from ..tasks._samplers import draw_inputs
from ._curves import Curves
from ._shared.recipe import RUNS
from ._shared.rows import Rows

FILE = RUNS / "scaling.csv"
TASK_SETTINGS = ("lengthscale", "noise", "num_features", "num_supports")
"""What the tasks of two models may differ in."""
AXIS_SETTINGS = {
    "depth": ("depth",),
    "width": ("width",),
    "supports": ("num_supports",),
    "effective dimension": TASK_SETTINGS,
}
"""The settings that may vary along an axis, while the others are the most common ones."""
FEWEST_VALUES = 3
"""Fewest values of an axis to which a slope is fitted."""
VALIDATION = 2048
"""Validation tasks behind the error of a trained model."""


def read_models(path: Path = FILE) -> Rows:
    r"""One row for each trained model, with its excess error and the `dimension` of its tasks.

    Its `sampling` is about 1.96 standard deviations of the sampling noise of the excess $e$. Given
    the supports, an error minus that of exact regression is $(f - f^*)^2 + 2 (f - f^*)(f^* - y)$,
    and the mean of the second term over b tasks has about $4 e / b$ as its variance, in units of
    the error of exact regression.
    """
    rows = from_csv(path)
    keys = dict.fromkeys(map(task_settings, rows))
    dimensions = {key: dimension_of(family_of(key), jax.random.key(0)) for key in keys}
    for row in rows:
        row["dimension"] = float(dimensions[task_settings(row)])
        row["excess"] = row["validation"] / row["exact"] - 1
        row["sampling"] = 1.96 * 2 * (max(row["excess"], 0) / VALIDATION) ** 0.5
        row["group"] = f"trained {row['style']}, {row['attention']} attention"
        row["converged"] = str(row["converged"]) == "True"
    return rows


def task_settings(row: dict[str, Any]) -> tuple:
    """The settings of a model's tasks; models with the same key have the same tasks."""
    return tuple(row[name] for name in TASK_SETTINGS)


def family_of(key: tuple, queries: int = 1) -> GaussianProcess:
    lengthscale, noise, p, n = key
    sizes: Any = {"num_features": p, "num_supports": n, "num_queries": queries}
    return GaussianProcess(Gaussian(lengthscale), noise=noise, inputs="uniform", **sizes)


@partial(jax.jit, static_argnames="tasks")
def dimension_of(family: GaussianProcess, key: jax.Array, tasks: int = 256) -> jax.Array:
    """The effective dimension of the tasks of a family, averaged over the inputs of tasks."""

    def of_task(key: jax.Array) -> jax.Array:
        x = draw_inputs(key, family, None)[: family.num_supports]
        return theory.effective_dimension(eigenvalues(family.kernel(x, x)), family.noise)

    return jnp.mean(jax.lax.map(of_task, jax.random.split(key, tasks)))


def equivalent_steps(curve: np.ndarray, excess: float) -> int | None:
    """The least t after which the excess [T + 1] of a solver is at most `excess`, or None."""
    reached = np.flatnonzero(curve <= excess)
    return int(reached[0]) if len(reached) else None


def equivalents(solver_curves: Curves, row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The steps of each solver that reach a model's excess, with the range of both intervals.

    `most` is the largest number of steps that was tried; None means more.
    """
    excess, noise, every = row["excess"], row["sampling"], {}
    for name in solver_curves.squares:
        curve, (low, high) = solver_curves.excess(name), solver_curves.interval(name)
        every[name] = {
            "steps": equivalent_steps(curve, excess),
            "from": equivalent_steps(low, excess + noise),
            "to": equivalent_steps(high, excess - noise),
            "most": len(curve) - 1,
        }
    return every


def format_steps(one: dict[str, Any]) -> str:
    """The steps of `equivalents` as a cell of a table, such as "5 (4 to 6)".

    >>> format_steps({"steps": 5, "from": 4, "to": None, "most": 64})
    '5 (4 to > 64)'
    """
    best, low, high = (
        f"> {one['most']}" if one[part] is None else str(one[part])
        for part in ("steps", "from", "to")
    )
    return best if best == low == high else f"{best} ({low} to {high})"


def by_architecture(models: Rows) -> dict[str, Rows]:
    """The models by their architecture."""
    groups: dict[str, Rows] = {}
    for row in models:
        groups.setdefault(row["group"], []).append(row)
    return groups


def most_common(models: Rows) -> tuple:
    """The key of the tasks of most models."""
    return Counter(map(task_settings, models)).most_common(1)[0][0]


def along_axis(rows: Rows, axis: str) -> Rows:
    """The rows of one group that differ in an axis; their other settings are the most common."""
    fixed = [name for name in (*TASK_SETTINGS, "depth", "width") if name not in AXIS_SETTINGS[axis]]
    of_row = lambda row: tuple(row[name] for name in fixed)  # noqa: E731
    centre = [key for key, _ in Counter(map(of_row, rows)).most_common(1)]
    return [row for row in rows if of_row(row) in centre]


def axis_value(axis: str, row: dict[str, Any]) -> float:
    """The place of a model on an axis."""
    return row["dimension" if axis == "effective dimension" else AXIS_SETTINGS[axis][0]]


class Slope(NamedTuple):
    """The slope of log excess against the log of an axis, with its 95 % interval."""

    slope: float
    low: float
    high: float


def fit_slope(values: Sequence[float], excess: Sequence[float]) -> Slope | None:
    """Fit a power law; None for fewer than three values of the axis, whatever the seeds."""
    x, y = (np.asarray(part, float) for part in (values, excess))
    x, y = x[y > 0], y[y > 0]
    if len(set(x.tolist())) < FEWEST_VALUES:
        return None
    fit: Any = linregress(np.log(x), np.log(y))
    half = student.ppf(INTERVAL_QUANTILES[1], len(x) - 2) * fit.stderr
    return Slope(float(fit.slope), float(fit.slope - half), float(fit.slope + half))
