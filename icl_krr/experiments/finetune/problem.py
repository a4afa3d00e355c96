"""Fine-tuning of constructed weights: tasks, rival algorithms and training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ... import constructions
from ...kernels import Linear
from ...tasks import LinearRegression, Task, map_tasks
from ...theory import spectral_bounds
from ...training import Training, adapt, advance, held_out, start
from ...transformer import Transformer, predict_batch, untie
from ..shared.draws import draw_tasks
from ..shared.rows import Rows

DIVERGED_ABOVE = 2
"""Training counts as diverged if its last loss exceeds its first loss times this factor."""


@dataclass(frozen=True)
class FinetuneConfig:
    """Settings of a fine-tuning of gradient descent on ill-conditioned linear tasks."""

    depths: tuple[int, ...] = (1, 2, 4, 6)  # numbers of blocks to train
    depth: int = 4  # number of blocks whose training path is recorded
    condition: float = 30.0  # condition number of the covariance of the inputs
    num_features: int = 8  # number of features p
    num_supports: int = 32  # number of supports n
    noise: float = 0.02  # variance of the noise on the supports' outputs
    updates: int = 3000  # number of updates, each on a fresh batch
    batch: int = 256  # number of tasks in a batch
    # learning rates to try in this order, until training does not diverge
    learning_rates: tuple[float, ...] = (1e-3, 3e-4, 1e-4, 3e-5)
    every: int = 200  # number of updates between records of the path
    tuning: int = 1024  # number of tasks that tune the scalars of rivals
    tasks: int = 4096  # number of other tasks that score all methods
    seeds: int = 3  # number of seeds
    seed: int = 0  # first seed

    @property
    def family(self) -> Any:
        same = ("condition", "noise", "num_features", "num_supports")
        return LinearRegression(num_queries=4, **{name: getattr(self, name) for name in same})


class FinetuneProblem(NamedTuple):
    """The tasks of one seed."""

    config: FinetuneConfig
    ridge: float  # optimal ridge of the tasks
    tuning: Task  # tasks that tune scalars
    scored: Task  # tasks that score models
    # bounds (low, high) on the eigenvalues of K + ridge I over the tuning tasks
    spectrum: tuple[float, float]

    def loss(self, model: Transformer) -> float:
        return float(jnp.mean((predict_batch(model, self.scored) - self.scored.y_query) ** 2))

    def tune_scalars(self, build: Callable[[Any], Transformer], first: dict[str, Any]) -> Any:
        """The positive scalars with the least error, found by Adam on their logarithms."""
        objective = held_out(build, self.tuning)
        return adapt(objective, first, positive=tuple(first), iterations=300).parameters


def draw_problem(config: FinetuneConfig, seed: int) -> FinetuneProblem:
    family = config.family
    kernel, ridge = family.optimal()
    key = jax.random.key(seed)
    tuning, scored = (
        draw_tasks(jax.random.fold_in(key, i), count, family)
        for i, count in enumerate((config.tuning, config.tasks))
    )
    bounds = jax.jit(partial(map_tasks, lambda task: spectral_bounds(kernel, task, ridge=ridge)))
    low, high = bounds(tuning)
    spectrum = float(jnp.min(low)), float(jnp.max(high))
    return FinetuneProblem(config, ridge, tuning, scored, spectrum)


def gradient_descent(problem: FinetuneProblem, depth: int, step_sizes: Any) -> Transformer:
    """Gradient descent with one step size per block, [depth], or one for all blocks."""
    model = constructions.gradient_descent(
        Linear(),
        num_features=problem.config.num_features,
        ridge=problem.ridge,
        steps=depth,
        step_size=1.0,
    )
    (block,) = untie(model).weights.steps
    sizes = jnp.broadcast_to(jnp.asarray(step_sizes), depth)
    scaled = {"alpha", "r", "prediction"}

    def scale(unit: Any) -> Any:
        by = lambda leaf: leaf * sizes.reshape(-1, *[1] * (leaf.ndim - 1))  # noqa: E731
        return unit.replace(up=jax.tree.map(by, unit.up)) if unit.to in scaled else unit

    steps = (block.replace(mlp=tuple(map(scale, block.mlp))),)  # pyright: ignore[reportAttributeAccessIssue]
    return model.replace(weights=model.weights.replace(steps=steps))  # pyright: ignore[reportAttributeAccessIssue]


def textbook_gradient_descent(problem: FinetuneProblem, depth: int) -> Transformer:
    low, high = problem.spectrum
    return gradient_descent(problem, depth, 2 / (low + high))


def chebyshev_step_sizes(low: Any, high: Any, depth: int) -> jax.Array:
    """Reciprocals of Chebyshev nodes: the residual polynomial has the smallest maximum."""
    angles = jnp.pi * (2 * jnp.arange(depth, dtype=float) + 1) / (2 * depth)
    return 1 / ((high + low) / 2 + (high - low) / 2 * jnp.cos(angles))


def rivals(problem: FinetuneProblem, depth: int) -> dict[str, Transformer]:
    """Algorithms with `depth` steps, each with its scalars tuned by the same procedure.

    Each step is one block, except for conjugate gradient. Conjugate gradient has 5 blocks per step
    and one block before the first step, and it has no scalars to tune.
    """
    low, high = problem.spectrum
    sizes: dict[str, Any] = {"num_features": problem.config.num_features, "steps": depth}
    descent = partial(gradient_descent, problem, depth)

    def interval(at: dict[str, Any]) -> tuple[Any, Any]:
        return at["high"] * at["share"] / (1 + at["share"]), at["high"]

    builds: dict[str, tuple[Callable[[Any], Transformer], dict[str, Any]]] = {
        "tuned step": (lambda at: descent(at["step"]), {"step": 2 / (low + high)}),
        "tuned steps": (
            lambda at: descent(at["steps"]),
            {"steps": chebyshev_step_sizes(high / 10, high, depth)},
        ),
        "Chebyshev roots, tuned interval": (
            lambda at: descent(chebyshev_step_sizes(*interval(at), depth)),
            {"share": 0.1, "high": high},
        ),
        "Chebyshev iteration, tuned interval": (
            lambda at: constructions.chebyshev(
                Linear(), ridge=problem.ridge, spectrum=interval(at), **sizes
            ),
            {"share": 0.1, "high": high},
        ),
        "GD++, tuned": (
            lambda at: constructions.gradient_descent_plus_plus(
                Linear(), step_size=at["step"], curvature=at["curvature"], **sizes
            ),
            {"step": 2 / high, "curvature": 0.2 / high},
        ),
    }
    found = {"textbook step": textbook_gradient_descent(problem, depth)}
    for name, (build, first) in builds.items():
        found[name] = build(problem.tune_scalars(build, first))
    found["conjugate gradient, as many steps"] = constructions.conjugate_gradient(
        Linear(), ridge=problem.ridge, **sizes
    )
    return found


Observe = Callable[[int, Transformer, float], Rows]


def train_without_divergence(
    problem: FinetuneProblem, first: Transformer, seed: int, observe: Observe
) -> tuple[Transformer, float, Rows]:
    """The trained model, its learning rate, and the rows of `observe(update, model, loss)`.

    Training diverges if a loss is NaN, or if the last loss exceeds the first loss times
    `DIVERGED_ABOVE`. It then starts again at the next learning rate.
    """
    most = DIVERGED_ABOVE * problem.loss(first)
    for rate in problem.config.learning_rates:
        observed: Rows = []
        for update, model, loss in training_path(problem, first, rate, seed):
            observed += observe(update, model, loss)
            if isnan(loss):
                break
        if loss < most:  # pyright: ignore[reportPossiblyUnboundVariable]
            break
    return model, rate, observed  # pyright: ignore[reportPossiblyUnboundVariable]


def training_path(
    problem: FinetuneProblem, model: Transformer, rate: float, seed: int
) -> Iterator[tuple[int, Transformer, float]]:
    """Train all weights by Adam on fresh tasks.

    Yields the number of updates, the model and its loss at the start, after 10, 50 and 100 updates
    and after every `every` updates.
    """
    c = problem.config
    settings = Training(steps=c.updates, batch=c.batch, learning_rate=rate, warmup=100, seed=seed)
    state = start(model, settings)
    yield 0, model, problem.loss(model)
    for update in range(1, c.updates + 1):
        state, _ = advance(state, c.family, settings)
        if update % c.every == 0 or update in (10, 50, 100):
            yield update, state.model, problem.loss(state.model)
