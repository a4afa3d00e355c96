"""What training makes of gradient descent that was written down, and of too few blocks of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ...files import Lines
from ...kernels import Linear
from ...probes import drift, linear_maps
from ...training.reference import loss, regression
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
    """`losses` of every method at every depth and seed; the `path` of training, update by update
    and block by block; and what had `moved` at its end, slot by slot."""

    losses: Rows
    path: Rows
    moved: Rows


def compare(config: FinetuneConfig, show: Show = lambda words: None) -> Comparison:
    """Train textbook gradient descent of every depth, beside rivals whose scalars are tuned.

    "its own weights" are those of the construction, untied; "all weights" are every entry of its
    dense matrices, from there or from GD++ as it was tuned. The path is that of all weights from
    the textbook at `config.depth`.

    `gain` is (textbook loss - exact) / (loss - exact).
    """
    losses: Rows = []
    path: Rows = []
    moved: Rows = []
    for seed in range(config.seed, config.seed + config.seeds):
        problem = draw_problem(config, seed)
        least = exact_loss(problem)
        for depth in config.depths:
            show(f"seed {seed}, {depth} blocks: rivals")
            models = rivals(problem, depth)
            first = textbook_gradient_descent(problem, depth)
            rates: dict[str, float] = {}
            starts = {
                OWN_WEIGHTS: untie(first),
                ALL_WEIGHTS: dense(first),
                ALL_WEIGHTS_FROM_GD_PLUS_PLUS: dense(models["GD++, tuned"]),
            }
            for name, start in starts.items():
                show(f"seed {seed}, {depth} blocks, {name}")
                followed = depth == config.depth and name == ALL_WEIGHTS
                observe = (
                    partial(observe_blocks, problem, start, seed) if followed else observe_nothing
                )
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


def observe_nothing(update: int, model: Transformer, error: float) -> Rows:
    return []


def exact_loss(problem: FinetuneProblem) -> float:
    return float(loss(lambda task: regression(Linear(), task, problem.ridge), problem.scored))


def observe_blocks(
    problem: FinetuneProblem,
    start: Transformer,
    seed: int,
    update: int,
    model: Transformer,
    error: float,
) -> Rows:
    """A row for every block: its step size and curvature, and how far its maps have moved."""
    rows, high = [], problem.spectrum[1]
    changes = drift(model, start)
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
    """What every block adds to the prediction, eta <x, X^T r>, and takes from x, c X^T X x.

    Read from its weights: the mean over the features of what its heads compare, times what they
    move from r to the prediction and from x to x, through the MLP after them.
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
    """Loss over the exact one, and the gain on the textbook step, at every depth."""
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
    """The mean, and half the range over seeds."""
    return f"{values.mean():.3g} +- {np.ptp(values) / 2:.1g}"


def most_moved_table(found: Comparison, count: int = 12) -> Lines:
    """The slot pairs that moved most, mean over seeds."""
    each: dict[Any, list[float]] = {}
    for row in found.moved:
        pair = (row["block"], row["part"], row["from"], row["to"])
        each.setdefault(pair, []).append(row["change"])
    means = sorted(((float(np.mean(v)), pair) for pair, v in each.items()), reverse=True)
    lines = [[*map(str, pair), f"{mean:.2g}"] for mean, pair in means[:count]]
    return ["block", "part", "from", "to", "change"], lines
