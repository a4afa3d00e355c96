"""Excess errors over exact regression of trained models, and the steps of solvers with the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .. import Gaussian
from .._core.files import from_csv
from ..tasks import GaussianProcess
from ._curves import Curves
from ._shared.recipe import RUNS
from ._shared.rows import Rows

FILE = RUNS / "scaling.csv"
TASK_SETTINGS = ("lengthscale", "noise", "num_features", "num_supports")
"""What the tasks of two models may differ in."""


def read_models(path: Path = FILE) -> Rows:
    """One row for each stage of the training of each model, the last stage last.

    The excess error is that over exact regression, and `sampling` half of its 95 % interval over
    validation tasks.
    """
    return from_csv(path)


def task_settings(row: dict[str, Any]) -> tuple:
    """The settings of a model's tasks; models with the same key have the same tasks."""
    return tuple(row[name] for name in TASK_SETTINGS)


def family_of(key: tuple, queries: int = 1) -> GaussianProcess:
    lengthscale, noise, p, n = key
    sizes: Any = {"num_features": p, "num_supports": n, "num_queries": queries}
    return GaussianProcess(Gaussian(lengthscale), noise=noise, inputs="uniform", **sizes)


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


def last_stages(models: Rows) -> Rows:
    """The last row of each model."""
    return [*{row["model"]: row for row in models}.values()]
