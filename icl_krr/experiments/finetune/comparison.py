"""Fine-tune constructed gradient descent, and compare it with algorithms of the same depth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...files import Lines
from ...kernels import Linear
from ...probes import drift, linear_maps
from ...tasks import Task, map_tasks
from ...training.reference import regression
from ...transformer import Transformer, dense, untie
from ..shared.rows import Rows
from .problem import (
    FinetuneConfig,
    FinetuneProblem,
    draw_problem,
    rivals,
    textbook_gradient_descent,
    train_without_divergence,
)

Show = Callable[[str], None]
OWN_WEIGHTS, ALL_WEIGHTS, ALL_WEIGHTS_FROM_GD_PLUS_PLUS = (
    "trained: its own weights",
    "trained: all weights",
    "trained from GD++: all weights",
)


class Comparison(NamedTuple):
    """Results of a comparison."""

    losses: Rows  # a row for every method, depth and seed
    path: Rows  # a row for every observed update and block of one training run per seed
    # a row for every pair of slots, with the change of the weights between them in the
    # training runs of `path`
    moved: Rows


def compare(config: FinetuneConfig, show: Show = lambda words: None) -> Comparison:
    """Train textbook gradient descent at every depth, and compare it with rivals.

    Rivals are algorithms whose scalars are tuned. The method "trained: its own weights" trains the
    weights of the construction, untied. The methods with "all weights" train every entry of the
    dense matrices, starting from textbook gradient descent or from tuned GD++. The path records
    the training of all weights from textbook gradient descent with `config.depth` blocks.

    The column `gain` is (textbook loss - exact loss) / (loss - exact loss).
    """
    losses: Rows = []
    path: Rows = []
    moved: Rows = []
    for seed in range(config.seed, config.seed + config.seeds):
        problem = draw_problem(config, seed)
        least = exact_loss(problem)
        for depth in config.depths:
            show(f"seed {seed}, {depth} blocks: tuning rivals")
            models = rivals(problem, depth)
            first = textbook_gradient_descent(problem, depth)
            rates: dict[str, float] = {}
            starts = {
                OWN_WEIGHTS: untie(first),
                ALL_WEIGHTS: dense(first),
                ALL_WEIGHTS_FROM_GD_PLUS_PLUS: dense(models["GD++, tuned"]),
            }
            for name, start in starts.items():
                show(f"seed {seed}, {depth} blocks: training '{name}'")
                followed = depth == config.depth and name == ALL_WEIGHTS
                blocks = partial(observe_blocks, problem, start, seed)
                observe = blocks if followed else lambda update, model, error: []
                models[name], rates[name], observed = train_without_divergence(
                    problem, start, seed, observe
                )
                path += observed
                if followed:
                    moved += [{"seed": seed, **row} for row in drift(models[name], start)]
            found = {name: problem.loss(model) for name, model in models.items()}
            for name, error in found.items():
                gain = (found["textbook step"] - least) / (error - least)
                row = {"seed": seed, "blocks": depth, "method": name, "loss": error}
                row |= {"exact": least, "gain": gain, "learning rate": rates.get(name)}
                losses.append(row)
    return Comparison(losses, path, moved)


def exact_loss(problem: FinetuneProblem) -> float:
    def square(task: Task) -> jax.Array:
        return jnp.mean((regression(Linear(), task, problem.ridge) - task.y_query) ** 2)

    return float(jnp.mean(jax.jit(partial(map_tasks, square))(problem.scored)))


def observe_blocks(
    problem: FinetuneProblem,
    start: Transformer,
    seed: int,
    update: int,
    model: Transformer,
    error: float,
) -> Rows:
    """A row for every block, with its step size, its curvature and the change of its weights."""
    rows, high, changes = [], problem.spectrum[1], drift(model, start)
    for block, (step, curvature) in enumerate(zip(*block_coefficients(model), strict=True)):
        own = [row["change"] for row in changes if row["block"] == block]
        rows.append(
            {
                "seed": seed,
                "update": update,
                "block": block,
                "loss": error,
                "step x high": step * high,
                "curvature x high": curvature * high,
                "change": float(np.linalg.norm(own)),
            }
        )
    return rows


def block_coefficients(model: Transformer) -> tuple[list[float], list[float]]:
    """The step size eta and the curvature c of every block, read from its weights.

    A block adds eta <x, X^T r> to the prediction and subtracts c X^T X x from x. Each is the
    product of two numbers. The first is the query-key map of x, averaged over the features. The
    second is a map that the head and the MLP after it compute. For eta, it is the map from r to
    the prediction. For c, it is the map from x to x.
    """
    layout = model.layout
    x, r, f = (layout.channels(name) for name in ("x", "r", "prediction"))
    steps, curvatures = [], []
    for maps in linear_maps(model):
        step = curvature = 0.0
        for part, match in maps.items():
            if not part.endswith("query-key"):
                continue
            move = maps[part.replace("query-key", "value-output")]
            at_query, at_support = (move + move @ maps[f"mlp, {at}"] for at in ("query", "support"))
            compared = float(jnp.trace(match[x, x])) / layout["x"].width
            step += compared * float(at_query[r, f][0, 0])
            curvature -= compared * float(jnp.trace(at_support[x, x])) / layout["x"].width
        steps.append(step)
        curvatures.append(curvature)
    return steps, curvatures


def loss_table(found: Comparison) -> Lines:
    """A table of loss / exact loss and of the gain over the textbook step, at every depth."""
    depths = list(dict.fromkeys(row["blocks"] for row in found.losses))
    lines = []
    for name in dict.fromkeys(row["method"] for row in found.losses):
        line = [name]
        for depth in depths:
            here = [r for r in found.losses if (r["method"], r["blocks"]) == (name, depth)]
            ratio, gain = (
                np.array([value(r) for r in here])
                for value in (lambda r: r["loss"] / r["exact"], lambda r: r["gain"])
            )
            bad = np.count_nonzero(~np.isfinite(ratio))
            whole = f"{mean_and_range(ratio)} (x {mean_and_range(gain)})"
            line.append(f"diverged, {bad} of {len(ratio)} seeds" if bad else whole)
        lines.append(line)
    return ["loss / exact (gain)", *(f"{depth} blocks" for depth in depths)], lines


def mean_and_range(values: np.ndarray) -> str:
    """Mean and half the range over seeds, as text."""
    return f"{values.mean():.3g} +- {np.ptp(values) / 2:.1g}"


def most_moved_table(found: Comparison, count: int = 12) -> Lines:
    """A table of the pairs of slots whose weights changed most, averaged over seeds."""
    each: dict[Any, list[float]] = {}
    for row in found.moved:
        pair = (row["block"], row["part"], row["from"], row["to"])
        each.setdefault(pair, []).append(row["change"])
    means = sorted(((float(np.mean(v)), pair) for pair, v in each.items()), reverse=True)
    lines = [[*map(str, pair), f"{mean:.2g}"] for mean, pair in means[:count]]
    return ["block", "part", "from", "to", "change"], lines
