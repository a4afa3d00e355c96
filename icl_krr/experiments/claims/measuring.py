"""What the experiments of the claims share: tasks, a grid of runs, its rows, and measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..shared.draws import draw_tasks as draw_tasks, project as project
from ..shared.rows import Plot as Plot, Rows as Rows, tidy as tidy


def over(run: Callable[..., Any], *axes: Any) -> Any:
    """Results of a run at every combination of values, with the axes of the values first."""
    first, *others = axes
    if not others:
        return jax.lax.map(run, first)
    return jax.lax.map(lambda value: over(partial(run, value), *others), first)


def fields(found: Mapping[str, Any]) -> SimpleNamespace:
    """What was measured, by name, in arrays of NumPy."""
    return SimpleNamespace(**{name: np.asarray(values) for name, values in found.items()})


def gap(found: jax.Array, expected: jax.Array) -> jax.Array:
    """|found - expected| / |expected| in the Euclidean norm."""
    return jnp.linalg.norm(found - expected) / jnp.linalg.norm(expected)


def largest_gap(found: jax.Array, expected: jax.Array) -> jax.Array:
    """|found - expected| / |expected| in the largest entry."""
    return jnp.max(jnp.abs(found - expected)) / jnp.max(jnp.abs(expected))


def exponent(sizes: Any, values: Any) -> float:
    """The a of the fit values ~ sizes^a."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def first_below(errors: np.ndarray, limit: Any) -> np.ndarray:
    """The first step with an error [..., step] of at most the limit; steps + 1 if there is none."""
    below = errors <= limit
    return np.where(below.any(-1), np.argmax(below, axis=-1), errors.shape[-1])
