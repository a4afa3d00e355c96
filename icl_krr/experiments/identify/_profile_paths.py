"""The errors of solvers after every step, and of nulls, which take no steps, at their values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ... import Kernel, solvers
from ..._core.numerics import matmul
from ...catalogue import Box, candidate as find_candidate
from ...kernels import make_kernel
from ...probes._naming.candidate_fit import Space
from ...probes._naming.candidates import parameters, solve
from ...probes._naming.nested_models import eigensystem, exact_regression, gradient_flow, ridge_path
from ...tasks import Task, map_tasks

MEASURES = {
    "error": "mean squared error at the queries",
    "gap": "distance to exact kernel ridge regression, over its size",
}
"""What is measured after every layer and every step, in logarithms to base 10."""
ALIGNMENTS = {"1:1": "layer l is compared with step l", "monotone": "later layers, no earlier step"}
FLOOR = 1e-4
"""Smallest `gap`, and smallest error over the error of predicting 0; smaller ones count as this."""
VALUES = 192
"""Number of values that a layer of a null may have."""


class Targets(NamedTuple):
    """A batch of tasks, and what errors are measured against.

    Attributes:
        tasks: batch of b tasks without `y_query`.
        truth: targets [b, q].
        exact: predictions of exact kernel ridge regression [b, q].
    """

    tasks: Task
    truth: Any
    exact: Any


class Null(NamedTuple):
    """A predictor with a value of its own at every layer, which takes no steps.

    Attributes:
        words: what it is, in a sentence.
        fitted: search ranges of what all layers share; `unit` is the unit of the values.
        values: function from m places from 0 to 1 to the values of layers.
        weigh: function from eigenvalues [n], a ridge and values [m, 1] to filters [m, n].
    """

    words: str
    fitted: dict[str, Box]
    values: Callable[[Any, Any], Any]
    weigh: Callable[[Any, Any, Any], Any]


UNIT, RIDGE = {"unit": Box(0, 0, power=1)}, {"ridge": Box(-5, 0.5, power=1)}
NULLS = {
    "gradient flow": Null(
        "gradient flow with a time of its own at every layer",
        RIDGE | UNIT,
        lambda at, unit: 10 ** (9 * at - 3) / unit,
        gradient_flow,
    ),
    "falling ridge": Null(
        "exact kernel ridge regression with a ridge of its own at every layer",
        UNIT,
        lambda at, unit: unit * 10 ** (1.5 - 7.5 * at),
        ridge_path,
    ),
    "growing share": Null(
        "exact kernel ridge regression times a share of its own at every layer",
        RIDGE,
        lambda at, unit: 1 - 10 ** (-4 * at),
        exact_regression,
    ),
}
"""The nulls: later layers have longer times, smaller ridges or larger shares."""


def num_steps(name: str, steps: int) -> int:
    """The largest number of steps of a solver; of a null, the number of its values."""
    return VALUES if name in NULLS else steps


def row_of(name: str) -> Any:
    return NULLS[name] if name in NULLS else find_candidate(name)


def path(name: str, kernel: str, logs: Float[Array, " k"], task: Task, steps: int) -> jax.Array:
    """Predictions [steps + 1, q] of a candidate after every step, or of a null at its values."""
    if name not in NULLS:
        return solve(find_candidate(name), kernel, logs, task, steps)
    null = NULLS[name]
    shared = dict(zip(parameters(null, kernel), jnp.exp(logs), strict=True))
    sigma, _, at_queries, of_y = eigensystem(make_kernel(kernel, shared), task)
    layer_values = null.values(jnp.linspace(0, 1, steps), shared.get("unit"))
    filters = null.weigh(jnp.maximum(sigma, 0)[None], shared.get("ridge"), layer_values[:, None])
    predictions = matmul(filters * of_y.T, at_queries.T)
    return jnp.concatenate([jnp.zeros_like(predictions[:1]), predictions])


def squares(predictions: jax.Array, targets: Targets) -> Float[Array, "2 b T"]:
    """Squared errors and squared distances to exact regression, the mean over queries."""
    against = jnp.stack([targets.truth, targets.exact])[:, :, None]
    return jnp.mean((predictions[None] - against) ** 2, axis=-1)


def sizes(targets: Targets) -> Float[Array, "2 b"]:
    """Squares of the targets and of the exact predictions, the mean over queries."""
    return jnp.mean(jnp.stack([targets.truth, targets.exact]) ** 2, axis=-1)


def logarithms(squared: Any, size: Any, xp: Any = jnp) -> Any:
    """The curves [2, ..., T] in log10 from mean squares [2, ..., T] and mean sizes [2, ...]."""
    error, gap = xp.log10(xp.maximum(squared / size[..., None], FLOOR**2))
    return xp.stack([error + xp.log10(size[0])[..., None], gap / 2])


@partial(jax.jit, static_argnames=("name", "kernel", "steps"))
def squared_errors(name, kernel, logs, targets, steps):
    """Squares [2, b, T + 1] of a candidate after every step."""
    predictions = map_tasks(lambda task: path(name, kernel, logs, task, steps), targets.tasks)
    return squares(predictions, targets)


@jax.jit
def exact_predictions(kernel: Kernel, ridge: Any, tasks: Task) -> jax.Array:
    """Predictions of exact kernel ridge regression [b, q]."""
    return map_tasks(lambda task: solvers.exact(kernel, task, ridge=ridge).prediction, tasks)


class Errors(NamedTuple):
    """Tasks and targets, and the curve of one measure of a model [L]."""

    targets: Targets
    measure: int
    curve: Any

    @property
    def tasks(self) -> Task:
        return self.targets.tasks


def curves(name: str, kernel: str, logs: Any, data: Errors, steps: int) -> jax.Array:
    """The curves [2, T + 1] of a candidate."""
    mean_squares = jnp.mean(squared_errors(name, kernel, logs, data.targets, steps), axis=1)
    return logarithms(mean_squares, jnp.mean(sizes(data.targets), axis=-1))


def differences(path: jax.Array, data: Errors, at: Any) -> jax.Array:
    return path[data.measure][at] - data.curve


ERRORS = Space(curves, lambda path, data: path, differences, rounds=3, enough=1e-4, row=row_of)
"""Errors as a space: one search of the curves serves all models, so it is no search of costs."""


def cost(curve: np.ndarray, model_curve: np.ndarray) -> np.ndarray:
    """Squared differences [L, T + 1] of layers and steps; what diverged is far."""
    return np.nan_to_num((curve[None] - model_curve[:, None]) ** 2, nan=1e4, posinf=1e4)
