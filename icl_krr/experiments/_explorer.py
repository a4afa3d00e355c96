"""Data for the report's sliders: one task, solved at every temperature, ridge, width and depth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import Exponential, Gaussian, Kernel, Softmax, constructions, solvers, theory
from .._core import checks
from ..sketches import nystrom_features, sketched
from ..tabular import _model_selection
from ..tasks import GaussianProcess, Task, sample, system
from ..transformer import Transformer, run_with_cache
from ._shared.rows import Show

SLOTS = ("alpha", "r", "p")
TRUE_TEMPERATURE = 0.5


@dataclass(frozen=True)
class ExplorerConfig:
    """A grid of transformers that run conjugate gradient on one task with x on the unit circle.

    The outputs are a draw of a Gaussian process with temperature 0.5 and k(x, x) = 1, plus noise.
    """

    # temperatures > 0 of the exponential kernel
    temperatures: tuple[float, ...] = (0.1, 0.2, 0.5, 1.0, 2.0)
    # ridges > 0 in units of k(x, x) = e^(1 / temperature)
    ridges: tuple[float, ...] = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)
    # numbers of Nystrom features that linear attention uses in place of the kernel, at most
    # `num_supports`; None means softmax attention, which uses the kernel itself
    widths: tuple[int | None, ...] = (2, 4, 8, 16, None)
    steps: int = 16  # number of steps of conjugate gradient, >= 1
    num_supports: int = 24  # number of supports, >= 1
    num_queries: int = 96  # number of queries, >= 1
    noise: float = 0.1  # variance of the noise on the supports' outputs
    seed: int = 0  # seed of the task

    def __post_init__(self):
        for name in ("steps", "num_supports", "num_queries"):
            checks.count(name, getattr(self, name))
        checks.nonnegative_scalar("noise", self.noise)
        checks.count("seed", self.seed, minimum=0)
        for name in ("temperatures", "ridges", "widths"):
            checks.instance(name, getattr(self, name), (tuple, list), "a tuple")
        for name, values in (("temperature", self.temperatures), ("ridge", self.ridges)):
            for value in values:
                checks.positive_scalar(name, value)
        for width in self.widths:
            if width is not None:
                checks.count("width", width)
                if width > self.num_supports:
                    raise ValueError(
                        f"width must be <= num_supports = {self.num_supports}, got {width}"
                    )


class Explored(NamedTuple):
    """The task, and arrays over the grid by name."""

    config: ExplorerConfig
    task: Task
    arrays: dict[str, np.ndarray]  # the first axes of an array are its grid axes
    # grid axes of each array, some of "temperature", "ridge", "width" and "depth"
    over: dict[str, tuple[str, ...]]
    dtype: str


Number = float | jax.Array
GRID_AXES: tuple[str, ...] = ("temperature", "ridge", "width", "depth")


def draw_task(config: ExplorerConfig) -> Task:
    """A task with supports and queries sorted by angle; `y_query` has no noise."""
    # on the sphere the Gaussian kernel equals the exponential kernel with temperature l^2, scaled
    # to k(x, x) = 1
    sizes = {name: getattr(config, name) for name in ("noise", "num_supports", "num_queries")}
    process = GaussianProcess(Gaussian(TRUE_TEMPERATURE**0.5), inputs="sphere", **sizes)
    return sorted_task(sample(jax.random.key(config.seed), process), angle)


def sorted_task(task: Task, place: Callable[[np.ndarray], np.ndarray]) -> Task:
    """The task with supports and queries sorted by `place(x)` [rows]."""
    task = jax.tree.map(np.asarray, task)
    order, queries = (np.argsort(place(x)) for x in (task.x, task.x_query))
    return Task(task.x[order], task.y[order], task.x_query[queries], y_query=task.y_query[queries])


def angle(x: np.ndarray) -> np.ndarray:
    return np.arctan2(x[:, 1], x[:, 0])


def build_cell(
    task: Task, temperature: Number, ridge: Number, width: int | None, steps: int
) -> tuple[Transformer, Kernel]:
    """The transformer of one cell and its regression kernel; `ridge` is in units of k(x, x)."""
    kernel = Exponential(temperature)
    options = {"num_features": 2, "ridge": ridge * jnp.exp(1 / temperature), "steps": steps}
    if width is None:
        attention = Softmax(log_sink=theory.log_sink(kernel, task))
        return constructions.conjugate_gradient(kernel, attention=attention, **options), kernel
    phi = nystrom_features(kernel, task.x, width=width)
    return constructions.conjugate_gradient(kernel, sketch=phi, **options), sketched(kernel, phi)


def explore(config: ExplorerConfig, progress: Show = lambda _: None) -> Explored:
    """Compute every cell of the grid, with one compiled program per width."""
    task = draw_task(config)
    at = [jnp.asarray(values, float) for values in (config.temperatures, config.ridges)]
    arrays: dict[str, np.ndarray] = {}
    over = dict.fromkeys(MEASURED, GRID_AXES)
    by_width = []
    for width in config.widths:
        model = "softmax attention" if width is None else f"{width} Nystrom features"
        progress(f"{model}: all temperatures, ridges and depths")
        cell = partial(transformer_cell, width=width, steps=config.steps)
        by_width.append(jax.tree.map(np.asarray, over_grid(cell)(task, *at)))
    arrays |= {name: np.stack([one[name] for one in by_width], axis=2) for name in MEASURED}
    progress("exact KRR and baselines")
    for name, values in over_grid(exact_cell)(task, *at).items():
        arrays[name], over[name] = np.asarray(values), GRID_AXES[:2]
    smoother = lambda task, t: solvers.nadaraya_watson(Exponential(t), task).prediction  # noqa: E731
    smooth = jax.jit(jax.vmap(smoother, (None, 0)))(task, at[0])
    smoother = _model_selection.choose_smoother(Exponential, task).kernel
    tuned = solvers.nadaraya_watson(smoother, task).prediction
    arrays["smoother"], over["smoother"] = np.asarray(smooth), GRID_AXES[:1]
    constant = {
        "tuned smoother": np.asarray(tuned),
        "mean": np.full(config.num_queries, float(jnp.mean(task.y))),
        "zero": np.zeros(config.num_queries),
    }
    arrays |= constant
    over |= dict.fromkeys(constant, ())
    truth, exact = np.asarray(task.y_query), arrays["exact"]
    for name in ("exact", "smoother", *constant):
        arrays[f"{name} rmse"] = np.sqrt(np.mean((arrays[name] - truth) ** 2, axis=-1))
        over[f"{name} rmse"] = over[name]
    for name in ("smoother", *constant):
        f = arrays[name][:, None] if over[name] else arrays[name]
        arrays[f"{name} gap"] = np.linalg.norm(f - exact, axis=-1) / np.linalg.norm(exact, axis=-1)
        over[f"{name} gap"] = GRID_AXES[:2]
    return Explored(config, task, arrays, over, str(task.x.dtype))


def over_grid(cell: Callable) -> Callable:
    """A compiled function of the task and all temperatures and ridges, from that of one cell."""
    return jax.jit(jax.vmap(jax.vmap(cell, (None, None, 0)), (None, 0, None)))


MEASURED: tuple[str, ...] = ("prediction", "gap", "bound", "rmse", *SLOTS)


def transformer_cell(
    task: Task, temperature: jax.Array, ridge: jax.Array, *, width: int | None, steps: int
) -> dict[str, jax.Array]:
    """Predictions [q], gap to exact KRR, bound on the gap and slots [n], at every depth.

    With exact KRR f^ on the Nystrom features, the bound adds that on |f_t - f^| (C4) to that on
    |f^ - f*| (C18).
    """
    model, approximation = build_cell(task, temperature, ridge, width, steps)
    _, cache = run_with_cache(model, task, names=("prediction", *SLOTS))
    kernel, absolute = Exponential(temperature), ridge * jnp.exp(1 / temperature)
    exact = solvers.exact(kernel, task, ridge=absolute).prediction
    low, high = theory.spectral_bounds(approximation, task, ridge=absolute)
    rate = theory.conjugate_gradient_rate(low, high, jnp.arange(steps + 1.0))
    start = theory.prediction_bound(approximation, task, jnp.zeros_like(task.y), ridge=absolute)
    bound = rate[:, None] * start[None]
    if width is not None:
        sigma = theory.eigenvalues(kernel, task)
        lost = theory.inverse_error_best(sigma, width, absolute)
        cross = system(kernel, task).cross
        gap = cross - system(approximation, task).cross
        bound += theory.query_error_dual(cross, task.y, lost)[None]
        bound += theory.query_error_features(gap, task.y, absolute)[None]
    f, size = cache["prediction"], jnp.linalg.norm(exact)
    return {
        "prediction": f,
        "gap": jnp.linalg.norm(f - exact[None], axis=-1) / size,
        "bound": jnp.linalg.norm(bound, axis=-1) / size,
        "rmse": jnp.sqrt(jnp.mean((f - task.y_query[None]) ** 2, axis=-1)),
        **{slot: cache[slot] for slot in SLOTS},
    }


def exact_cell(task: Task, temperature: jax.Array, ridge: jax.Array) -> dict[str, jax.Array]:
    """Exact KRR at the queries, and the condition number and effective dimension of its system."""
    kernel, absolute = Exponential(temperature), ridge * jnp.exp(1 / temperature)
    low, high = theory.spectral_bounds(kernel, task, ridge=absolute)
    sigma = theory.eigenvalues(kernel, task)
    return {
        "exact": solvers.exact(kernel, task, ridge=absolute).prediction,
        "condition": high / low,
        "dimension": theory.effective_dimension(sigma, absolute),
    }
