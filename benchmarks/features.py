"""The number of supports above which random features are faster than softmax attention."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import icl_krr as ik
from benchmarks.contests import Contest, compete
from icl_krr.experiments.claims.c46_cost_of_a_query import attention, projections

KERNEL, P, STEPS = ik.Exponential(1.0), 8, 8


def crossover(quick: bool) -> dict[str, float]:
    """Time and accuracy of linear attention on m positive features against softmax attention.

    Both run 8 steps of conjugate gradient on one task with 8 features, inputs on the sphere and
    ridge n / 10. Times are medians of 7 runs, measured alternately. "n where they meet" is the n at
    which both take the same time, interpolated in logarithms; NaN if it lies beyond the largest n.
    """
    grid = (64,) if quick else (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    figures: dict[str, float] = {}
    for m in (16,) if quick else (16, 64, 256, 1024):
        ratios, gap = [], 0.0
        for n in grid:
            ours, exact = (run(draw(n), sketch) for sketch in (features(m), None))
            contest = Contest(
                "features", f"m = {m}, n = {n}", ours, {"softmax": exact}, tolerance=None
            )
            times = compete(contest, 1 if quick else 7)
            ratios.append(times[0].median_ms / times[1].median_ms)
            gap = float(jnp.linalg.norm(ours() - exact()) / jnp.linalg.norm(exact()))
            figures[f"time over softmax, m = {m}, n = {n}"] = ratios[-1]
        figures[f"gap to softmax, m = {m}, n = {grid[-1]}"] = gap
        figures[f"n where they meet, m = {m}"] = meeting(grid, ratios)
    return figures


def one_query(quick: bool) -> dict[str, float]:
    """Microseconds that one more query takes: a softmax head and m = d log d positive features.

    The sums over n supports are known by then. A query's time is the difference between 1000 and
    200 queries, divided by 800; "n where they meet" is as in `crossover`.
    """
    grid = (16, 64) if quick else (16, 32, 64, 128, 256, 512, 1000)
    figures: dict[str, float] = {}
    for d in (8,) if quick else (8, 16, 32, 64):
        m, ratios = projections(d), []
        for n in grid:
            medians = []
            for queries in (200, 1000):
                ours, exact = (of_queries(d, n, queries, kind) for kind in ("positive", ""))
                contest = Contest("queries", f"d = {d}", ours, {"softmax": exact}, tolerance=None)
                medians.append([row.median_ms for row in compete(contest, 1 if quick else 25)])
            times = (np.array(medians[1]) - medians[0]) / 0.8
            ratios.append(times[0] / times[1])
            for name, value in zip((f"m = {m} features", "softmax"), times, strict=True):
                figures[f"us for a query, {name}, d = {d}, n = {n}"] = float(value)
        figures[f"n where queries cost the same, d = {d}, m = {m}"] = meeting(grid, ratios)
    return figures


def of_queries(d: int, n: int, queries: int, kind: str) -> Callable[[], jax.Array]:
    model, forward = attention(d, kind), jax.jit(ik.predict)
    task = ik.Task(*normal((n, d), (n, model.spec.num_outputs), (queries, d)))
    return lambda: forward(model, task)


def normal(*shapes: tuple[int, ...]) -> list[jax.Array]:
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return [jax.random.normal(*pair) for pair in zip(keys, shapes, strict=True)]


def features(m: int) -> ik.sketches.RandomFeatures:
    return ik.sketches.positive_features(jax.random.key(1), KERNEL, num_features=P, width=m)


def run(task: ik.Task, sketch: ik.sketches.RandomFeatures | None) -> Callable[[], jax.Array]:
    model = ik.constructions.conjugate_gradient(
        KERNEL, num_features=P, ridge=task.num_supports / 10, steps=STEPS, sketch=sketch
    )
    forward = jax.jit(ik.predict)
    return lambda: forward(model, task)


def draw(n: int) -> ik.Task:
    x, queries, y = normal((n, P), (16, P), (n,))
    x, queries = (v / jnp.linalg.norm(v, axis=1, keepdims=True) for v in (x, queries))
    # y is a function of x plus noise
    return ik.Task(x=x, y=jnp.sin(3 * x[:, 0]) + x[:, 1] + 0.3 * y, x_query=queries)


def meeting(grid: tuple[int, ...], ratios: list[float]) -> float:
    """The n above which the ratio stays below 1; NaN if the last ratio is above 1."""
    logs, last = np.log(ratios), len(ratios) - 1
    if logs[last] > 0:
        return float("nan")
    above = [i for i in range(len(logs)) if logs[i] > 0]
    if not above:
        return float(grid[0])
    i = above[-1]
    share = logs[i] / (logs[i] - logs[i + 1])
    return float(grid[i] * (grid[i + 1] / grid[i]) ** share)
