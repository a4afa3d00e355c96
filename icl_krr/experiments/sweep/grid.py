"""Sweeps: a grid of models at every depth, cell by cell, so that a run can be taken up again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import checks, theory
from ...transformer import run_with_cache
from ..shared.rows import Rows, tidy
from .axes import AXES, NOISE, Axis, draw
from .values import bandwidth


@dataclass(frozen=True)
class SweepConfig:
    """A grid: `values` of an `axis`, `lines` to compare, `seeds` from `seed` on; the task.

    Tasks are draws of a Gaussian process on the unit sphere, exponential kernel, noise variance
    0.1; for the width they are linear regression on p features of deviations 1/i. The `ridge`
    is by default 0.1 k(x, x) = 0.1 e^(1 / temperature), or 0.1 p for the width. Along the
    depth the values are steps, by default all; elsewhere every value is run for `steps` steps.

    Raises ValueError for an unknown axis or line and numbers out of range.
    """

    axis: str
    values: tuple[Any, ...] = ()
    lines: tuple[str, ...] = ()
    seeds: int = 5
    seed: int = 0
    steps: int = 32
    num_supports: int = 64
    num_features: Any = None
    num_queries: int = 64
    temperature: float = 0.5
    ridge: Any = None

    def __post_init__(self):
        checks.choice("axis", self.axis, tuple(AXES))
        checks.count("steps", self.steps)
        axis = AXES[self.axis]
        bandwidth("temperature", self.temperature)
        for name in ("seeds", "num_supports", "num_queries"):
            checks.count(name, getattr(self, name))
        if self.num_features is None:
            object.__setattr__(self, "num_features", axis.num_features)
        checks.count("num_features", self.num_features)
        if self.ridge is None:
            linear = self.axis == "width"
            scale: Any = self.num_features if linear else math.exp(1 / self.temperature)
            object.__setattr__(self, "ridge", NOISE * scale)
        checks.positive_scalar("ridge", self.ridge)
        object.__setattr__(self, "lines", tuple(dict.fromkeys(self.lines)) or axis.lines)
        for line in self.lines:
            checks.choice("line", line, axis.lines)
        values = tuple(dict.fromkeys(self.values))
        for value in values:
            axis.check(value, self)
        if not values:
            grid = tuple(range(self.steps + 1)) if self.axis == "depth" else axis.values
            values = tuple(value for value in grid if fits(value, self, axis))
        object.__setattr__(self, "values", values)


Cell = tuple[str, int]
"""A line and a seed: all values, and all depths, of one task."""


def fits(value: Any, config: SweepConfig, axis: Axis) -> bool:
    try:
        axis.check(value, config)
    except ValueError:
        return False
    return True


def rows_of_a_cell(config: SweepConfig, line: str) -> int:
    """How many rows a finished cell has."""
    if config.axis == "depth":
        return len(config.values)
    return len(config.values) * (2 if line == "nadaraya_watson" else config.steps + 1)


def cells(config: SweepConfig) -> list[Cell]:
    seeds = range(config.seed, config.seed + config.seeds)
    return [(line, seed) for line in config.lines for seed in seeds]


def sweep(config: SweepConfig, done: frozenset[Cell] = frozenset()) -> Iterator[tuple[Cell, Rows]]:
    """The rows of every cell that is not done, one cell after the other."""
    wide = config.axis == "precision"
    for line, seed in cells(config):
        if (line, seed) not in done:
            with jax.enable_x64(wide or jax.config.jax_enable_x64):  # pyright: ignore[reportAttributeAccessIssue]
                yield (line, seed), run_cell(config, line, seed)


def run_cell(config: SweepConfig, line: str, seed: int) -> Rows:
    """One row for every value and step: the distance to exact KRR, and what bounds it."""
    key = jax.random.key(seed)
    # one model has all depths
    values = (config.steps,) if config.axis == "depth" else config.values
    if AXES[config.axis].traced:
        measured = measure_all(key, jnp.asarray(values), line, config)
    else:
        each = [measure(key, value, line, config) for value in values]
        measured = jax.tree.map(lambda *parts: jnp.stack(parts), *each)
    measured = {name: np.asarray(part, float) for name, part in measured.items()}
    rows = tidy(
        {
            "axis": [config.axis],
            "line": [line],
            "seed": [seed],
            "value": values,
            "step": range(measured["gap"].shape[1]),
        },
        **measured,
    )
    if config.axis == "depth":
        return [row | {"value": row["step"]} for row in rows if row["step"] in config.values]
    return rows


def last(rows: Rows) -> Rows:
    """The rows at the last step of every value; along the depth each value is a step."""
    if rows and rows[0]["axis"] == "depth":
        return rows
    steps: dict[tuple, int] = {}
    for row in rows:
        place = row["line"], row["value"]
        steps[place] = max(steps.get(place, 0), row["step"])
    return [row for row in rows if row["step"] == steps[row["line"], row["value"]]]


@partial(jax.jit, static_argnames=("line", "config"))
def measure_all(key: jax.Array, values: jax.Array, line: str, config: SweepConfig) -> dict:
    return jax.vmap(lambda value: measure(key, value, line, config))(values)


def measure(key: jax.Array, value: Any, line: str, config: SweepConfig) -> dict[str, jax.Array]:
    """By step: blocks, gap |f - f*| / |f*|, RMSEs; error and bound, expected gap, or NaN."""
    own, at = jax.random.split(key)
    setting = AXES[config.axis].build(line, value, draw(at, config), config, own)
    model, task, exact = setting.model, setting.task, setting.exact
    names = ("prediction",) if setting.alpha is None else ("prediction", "alpha")
    _, cache = run_with_cache(model, task, names=names)
    path = cache["prediction"].astype(exact.dtype)
    steps = len(path)
    missing = jnp.full(steps, jnp.nan)
    error = missing
    if setting.alpha is not None and setting.A is not None:
        size = theory.energy_norm(setting.A, setting.alpha)
        error = theory.energy_norm(setting.A, cache["alpha"] - setting.alpha[None]) / size
    bound, expected = (
        missing if values is None else jnp.broadcast_to(values, steps)
        for values in (setting.bound, setting.expected)
    )
    first = len(model.weights.prologue)
    return {
        "blocks": first + model.blocks_per_step * jnp.arange(steps),
        "gap": jnp.linalg.norm(path - exact[None], axis=1) / jnp.linalg.norm(exact),
        "rmse": jnp.sqrt(jnp.mean((path - task.y_query[None]) ** 2, axis=1)),
        "exact rmse": jnp.full(steps, jnp.sqrt(jnp.mean((exact - task.y_query) ** 2))),
        "zero rmse": jnp.full(steps, jnp.sqrt(jnp.mean(task.y_query**2))),
        "error": error,
        "bound": bound,
        "expected": expected,
    }
