"""A sweep as a study: the gap to exact KRR at every value and depth, for each line and seed."""

from dataclasses import asdict, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import Task, run_with_cache, solvers, theory
from ..._core.devices import shard_over_tasks
from ..._core.rounding import cast
from ...catalogue import SOLVERS
from ...training._reference import average
from .._shared.rows import Rows, tidy
from .._study import Study
from .config import SweepConfig, axis_of
from .trial import Trial, draw

BASELINES = ("zero", "mean", "nadaraya_watson", "exact")
"""Predictions that the table of a sweep compares its models with."""

FROM_THEORY = ("bound", "expected", "d_eff", "tail")
"""Columns from the fields of a setting."""

GRID = ("lines", "seed", "seeds")
"""Settings on which a cell does not depend, as they choose the cells."""


def study(config: SweepConfig) -> Study:
    """A cell has a line and a seed: all values and all depths on one task."""
    settings = {name: value for name, value in asdict(config).items() if name not in GRID}
    return Study(
        "sweep",
        {**settings, "dtype": str(jnp.result_type(float))},
        {"line": config.lines, "seed": range(config.seed, config.seed + config.seeds)},
        lambda cell: run_cell(config, **cell),
        lambda cell: SOLVERS[cell["line"]].source if cell["line"] in SOLVERS else "",
        ("results.csv",),
    )


def run_cell(config: SweepConfig, line: str, seed: int) -> Rows:
    """One row for every value and step: the gap to exact KRR and its bound."""
    # the cache of the deepest model holds all depths
    values = (config.steps,) if config.axis == "depth" else config.values
    wide = config.axis in ("precision", "rounding") or jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    with jax.enable_x64(wide):
        key = jax.random.key(seed)
        if axis_of(config.axis).traced:
            # other seeds and lines do not make it another program
            alike = replace(config, lines=(line,), seeds=1, seed=0)
            measured = measure_all(key, jnp.asarray(values), line, alike)
        else:
            each = [measure(key, value, line, config) for value in values]
            measured = jax.tree.map(lambda *parts: jnp.stack(parts), *each)
    measured = {name: np.asarray(part, float) for name, part in measured.items()}
    axes = {"axis": [config.axis], "line": [line], "seed": [seed], "value": values}
    rows = tidy(axes | {"step": range(measured["gap"].shape[1])}, **measured)
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
    return shard_over_tasks(jax.vmap(lambda value: measure(key, value, line, config)), values)


def measure(key: jax.Array, value: Any, line: str, config: SweepConfig) -> dict[str, jax.Array]:
    """Blocks, gap |f - f*| / |f*|, RMSE, error and `FROM_THEORY` after every step, or NaN."""
    setting_key, at = jax.random.split(key)
    trial = axis_of(config.axis).build(line, value, draw(at, config), config, setting_key)
    model, task, exact = trial.model, trial.task, trial.exact
    names = ("prediction",) if trial.alpha is None else ("prediction", "alpha")
    _, cache = run_with_cache(model, task, names=names, hooks=trial.hooks)
    path = cache["prediction"].astype(exact.dtype)
    steps = len(path)
    error = missing = jnp.full(steps, jnp.nan)
    if trial.alpha is not None and trial.A is not None:
        size = theory.energy_norm(trial.A, trial.alpha)
        error = theory.energy_norm(trial.A, cache["alpha"] - trial.alpha[None]) / size
    first = len(model.weights.prologue)
    return {
        "blocks": first + model.blocks_per_step * jnp.arange(steps),
        "gap": or_infinite(jnp.linalg.norm(path - exact[None], axis=1) / jnp.linalg.norm(exact)),
        "rmse": or_infinite(jnp.sqrt(jnp.mean((path - task.y_query[None]) ** 2, axis=1))),
        "exact rmse": jnp.full(steps, jnp.sqrt(jnp.mean((exact - task.y_query) ** 2))),
        "zero rmse": jnp.full(steps, jnp.sqrt(jnp.mean(task.y_query**2))),
        "error": error,
        **{
            name: missing if value is None else jnp.broadcast_to(value, steps)
            for name, value in trial._asdict().items()
            if name in FROM_THEORY
        },
        **{
            f"{name} gap": jnp.full(steps, jnp.linalg.norm(f - exact) / jnp.linalg.norm(exact))
            for name, f in baselines(trial).items()
        },
    }


def or_infinite(error: jax.Array) -> jax.Array:
    """Infinity where a prediction is not a number, so that medians count it."""
    return jnp.where(jnp.isnan(error), jnp.inf, error)


def baselines(trial: Trial) -> dict[str, jax.Array]:
    """The predictions of the baselines [q], on the inputs of the model in the dtype of `exact`."""
    exact = trial.exact
    task: Task = cast(trial.task, exact.dtype)
    smooth = jnp.full_like(exact, jnp.nan)
    if trial.smoother is not None:
        smooth = solvers.nadaraya_watson(trial.smoother, task).prediction
    return dict(zip(BASELINES, (jnp.zeros_like(exact), average(task), smooth, exact), strict=True))
