"""Run a sweep cell by cell, so that an interrupted sweep can be resumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import Task, run_with_cache, solvers, theory
from ...catalogue import AXES, SOLVERS, load
from ...devices import in_parts
from ...training.reference import average
from ..shared.rows import Rows, tidy
from .config import SweepConfig
from .setting import Models, Setting, draw, steps_of

BASELINES = ("zero", "mean", "nadaraya_watson", "exact")
"""Predictions that the table of a sweep compares its models with."""

FROM_THEORY = ("bound", "expected", "d_eff", "tail")
"""Columns from the fields of a setting."""

Cell = tuple[str, int]
"""A line and a seed. The cell has all values and all depths on one task."""


def rows_of_a_cell(config: SweepConfig, line: str) -> int:
    """Number of rows of a finished cell."""
    if config.axis == "depth":
        return len(config.values)
    smooths = line in SOLVERS and not SOLVERS[line].iterates
    return len(config.values) * (2 if smooths else steps_of(config, line) + 1)


def is_whole(row: dict[str, Any]) -> bool:
    """Whether a row has all its numbers; a truncated or edited row does not."""
    return all(
        isinstance(value, (int, float))
        for name, value in row.items()
        if name not in ("axis", "line", "value")
    )


def cells(config: SweepConfig) -> list[Cell]:
    seeds = range(config.seed, config.seed + config.seeds)
    return [(line, seed) for line in config.lines for seed in seeds]


def sweep(config: SweepConfig, done: frozenset[Cell] = frozenset()) -> Iterator[tuple[Cell, Rows]]:
    """Yield the rows of every cell that is not in `done`."""
    wide = config.axis in ("precision", "rounding")
    for line, seed in cells(config):
        if (line, seed) not in done:
            with jax.enable_x64(wide or jax.config.jax_enable_x64):  # pyright: ignore[reportAttributeAccessIssue]
                yield (line, seed), run_cell(config, line, seed)


def models_of(config: SweepConfig) -> Models:
    """How the models of a sweep are built and plotted."""
    return load(AXES[config.axis].made_by)


def run_cell(config: SweepConfig, line: str, seed: int) -> Rows:
    """One row for every value and step: the gap to exact KRR and its bound."""
    key = jax.random.key(seed)
    # the cache of the deepest model holds all depths
    values = (config.steps,) if config.axis == "depth" else config.values
    if models_of(config).traced:
        # other seeds and lines do not make it another program
        alike = replace(config, lines=(line,), seeds=1, seed=0)
        measured = measure_all(key, jnp.asarray(values), line, alike)
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
    """The rows at the last step of every value; along "depth", where values are steps, all."""
    if rows and rows[0]["axis"] == "depth":
        return rows
    steps: dict[tuple, int] = {}
    for row in rows:
        place = row["line"], row["value"]
        steps[place] = max(steps.get(place, 0), row["step"])
    return [row for row in rows if row["step"] == steps[row["line"], row["value"]]]


@partial(jax.jit, static_argnames=("line", "config"))
def measure_all(key: jax.Array, values: jax.Array, line: str, config: SweepConfig) -> dict:
    each = jax.vmap(lambda value: measure(key, value, line, config))
    return in_parts(each, values)


def measure(key: jax.Array, value: Any, line: str, config: SweepConfig) -> dict[str, jax.Array]:
    """Blocks, gap |f - f*| / |f*|, RMSE, error and `FROM_THEORY` after every step, or NaN."""
    own, at = jax.random.split(key)
    setting = models_of(config).build(line, value, draw(at, config), config, own)
    model, task, exact = setting.model, setting.task, setting.exact
    names = ("prediction",) if setting.alpha is None else ("prediction", "alpha")
    _, cache = run_with_cache(model, task, names=names, hooks=setting.hooks)
    path = cache["prediction"].astype(exact.dtype)
    steps = len(path)
    missing = jnp.full(steps, jnp.nan)
    error = missing
    if setting.alpha is not None and setting.A is not None:
        size = theory.energy_norm(setting.A, setting.alpha)
        error = theory.energy_norm(setting.A, cache["alpha"] - setting.alpha[None]) / size
    first = len(model.weights.prologue)
    known = baselines(setting)
    return {
        "blocks": first + model.blocks_per_step * jnp.arange(steps),
        "gap": or_infinite(jnp.linalg.norm(path - exact[None], axis=1) / jnp.linalg.norm(exact)),
        "rmse": or_infinite(jnp.sqrt(jnp.mean((path - task.y_query[None]) ** 2, axis=1))),
        "exact rmse": jnp.full(steps, jnp.sqrt(jnp.mean((exact - task.y_query) ** 2))),
        "zero rmse": jnp.full(steps, jnp.sqrt(jnp.mean(task.y_query**2))),
        "error": error,
        **{
            name: missing if value is None else jnp.broadcast_to(value, steps)
            for name, value in setting._asdict().items()
            if name in FROM_THEORY
        },
        **{
            f"{name} gap": jnp.full(steps, jnp.linalg.norm(f - exact) / jnp.linalg.norm(exact))
            for name, f in known.items()
        },
    }


def or_infinite(error: jax.Array) -> jax.Array:
    """Infinity where a prediction is not a number, so that medians count it."""
    return jnp.where(jnp.isnan(error), jnp.inf, error)


def baselines(setting: Setting) -> dict[str, jax.Array]:
    """The predictions of the baselines [q], on the inputs of the model in the dtype of `exact`."""
    exact = setting.exact
    task: Task = jax.tree.map(
        lambda leaf: leaf.astype(exact.dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf,
        setting.task,
    )
    smooth = jnp.full_like(exact, jnp.nan)
    if setting.smoother is not None:
        smooth = solvers.nadaraya_watson(setting.smoother, task).prediction
    return dict(zip(BASELINES, (jnp.zeros_like(exact), average(task), smooth, exact), strict=True))
