"""`python -m benchmarks.figures`: measure the numbers that the README states."""

import itertools
import json
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import icl_krr as ik
from benchmarks import records
from benchmarks.contests import Contest, compete
from icl_krr.residual import embed, key_mask
from icl_krr.transformer import forward

LINEAR, FEATURED = ik.Linear(), ik.Exponential(1.0)


def draw(seed: int, p: int, n: int, r: int | None = None) -> ik.Task:
    config = ik.tasks.LinearRegression(num_features=p, num_supports=n, num_outputs=r, num_queries=3)
    return ik.tasks.sample(jax.random.key(seed), config)


def build(task: ik.Task, ridge: float, steps: int) -> ik.Transformer:
    sizes: Any = {"num_features": task.num_features, "num_outputs": task.num_outputs}
    return ik.constructions.conjugate_gradient(LINEAR, ridge=ridge, steps=steps, **sizes)


def worst(a: Any, b: Any) -> float:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.max(np.abs(a - b)) / (np.max(np.abs(b)) or 1.0))


def keystone(quick: bool) -> dict[str, float]:
    """Errors of alpha, r and p against the oracle over 16 steps, relative to the largest entry.

    "prediction - exact" is the error of a deep model against exact KRR.
    """
    grid = list(itertools.product((1, 4, 16), (1, 7, 64), (1, 3), ((0, 1e-2), (1, 0.1), (2, 3.0))))
    figures = {"alpha": 0.0, "r": 0.0, "p": 0.0, "prediction - exact": 0.0}
    for p, n, r, (seed, ridge) in grid[27:28] if quick else grid:
        task = draw(seed, p, n, r)
        oracle = ik.solvers.conjugate_gradient(LINEAR, task, ridge=ridge, steps=16)
        _, cache = ik.run_with_cache(build(task, ridge, 16), task)
        norms = np.linalg.norm(oracle.r, axis=1).max(axis=1)
        going = norms > 1e-8 * norms[0]
        for slot in ("alpha", "r", "p"):
            gap = worst(cache[slot][going], getattr(oracle, slot)[going])
            figures[slot] = max(figures[slot], gap)
        deep = ik.predict(build(task, ridge, p + 65), task)
        exact = ik.solvers.exact(LINEAR, task, ridge=ridge).prediction
        figures["prediction - exact"] = max(figures["prediction - exact"], worst(deep, exact))
    return figures


def hat_matrix(quick: bool) -> dict[str, float]:
    """Errors of d prediction / d y against the hat matrix of exact KRR."""
    task = draw(0, 4, 20)
    model = build(task, 2.0, 8)
    jacobian = jax.jacobian(lambda y: ik.predict(model, task.replace(y=y)))(task.y)
    inverse = jnp.linalg.inv(task.x @ task.x.T + 2.0 * jnp.eye(20))
    return {"jacobian - hat matrix": worst(jacobian, task.x_query @ task.x.T @ inverse)}


def compilation(quick: bool) -> dict[str, float]:
    """Seconds to compile the forward pass, for 8 and 256 steps."""
    task = draw(0, 8, 64)
    seconds: dict[int, list[float]] = {8: [], 256: []}
    for steps in (8, 256) * (1 if quick else 5):
        jax.clear_caches()
        model = build(task, 0.1, steps)
        stream = embed(model.weights.embedding, task)
        lowered = jax.jit(lambda m, h: forward(m, h, key_mask(task)).stream).lower(model, stream)
        start = time.perf_counter()
        lowered.compile()
        seconds[steps].append(time.perf_counter() - start)
    return {f"compile seconds, {steps} steps": median(times) for steps, times in seconds.items()}


SIZES: dict[str, Any] = {"num_features": 2}


def gap(f: jax.Array, best: jax.Array) -> float:
    return float(jnp.linalg.norm(f - best) / jnp.linalg.norm(best))


def route_a(quick: bool) -> dict[str, float]:
    """Largest gap of softmax constructions to exact KRR over five seeds, after 32 steps.

    n = 64 on the unit circle, exponential kernel with temperature 0.5, ridge 0.1 e^2.
    """
    gaps: dict[str, list[float]] = {}
    kernel, ridge = ik.Exponential(0.5), 0.1 * np.exp(2.0)
    config = ik.tasks.GaussianProcess(kernel, inputs="sphere", num_queries=64)
    for seed in range(1 if quick else 5):
        task = ik.tasks.sample(jax.random.key(seed), config)
        best = ik.solvers.exact(kernel, task, ridge=ridge).prediction
        smooth = ik.solvers.nadaraya_watson(kernel, task).prediction
        bounds = ik.spectral_bounds(kernel, task, ridge=ridge)
        route = {"attention": ik.Softmax(log_sink=ik.theory.log_sink(kernel, task))}
        build = ik.constructions
        needs: dict[str, tuple[Any, dict[str, Any]]] = {
            "conjugate gradient": (build.conjugate_gradient, {}),
            "fused": (build.conjugate_gradient, {"form": "fused"}),
            "pipelined": (build.conjugate_gradient, {"form": "pipelined"}),
            "chebyshev": (build.chebyshev, {"spectrum": bounds}),
            "gradient descent": (build.gradient_descent, {"spectrum": bounds}),
        }
        gaps.setdefault("Nadaraya-Watson", []).append(gap(smooth, best))
        for name, (construct, options) in [*needs.items()][: 1 if quick else None]:
            model = construct(kernel, ridge=ridge, steps=32, **SIZES, **route, **options)
            gaps.setdefault(name, []).append(gap(ik.predict(model, task), best))
    return {f"gap, {name}": max(each) for name, each in gaps.items()}


def tables(quick: bool) -> dict[str, float]:
    """Errors of Richardson with ReLU tables against exact arithmetic, after 100 steps.

    Tasks are draws of a Gaussian process on the unit circle, with lengthscale 0.7, 64 supports and
    ridge 1. Each figure is the geometric mean over three seeds of the largest error at 64 queries,
    relative to the largest prediction.
    """
    config = ik.tasks.GaussianProcess(ik.Gaussian(0.7), num_queries=64, inputs="sphere")
    errors: dict[str, list[float]] = {}
    for seed in range(1 if quick else 3):
        task = ik.tasks.sample(jax.random.key(seed), config)
        options: dict[str, Any] = {"ridge": 1.0, "steps": 100, "step_size": 1.9, **SIZES}
        options["attention"] = ik.Softmax(log_sink=ik.theory.log_sink(config.kernel, task))
        exact = ik.constructions.richardson(config.kernel, **options)
        bounds, target = ik.operand_bounds(exact, task), ik.predict(exact, task)
        for width in (64,) if quick else (64, 128, 256, 512):
            relu = ik.ReLU(width, bounds)
            model = ik.constructions.richardson(config.kernel, **options, arithmetic=relu)
            prediction, cache = ik.run_with_cache(model, task)
            assert not np.any(cache["overrun"])
            errors.setdefault(f"error, width {width}", []).append(worst(prediction, target))
    return {name: float(np.exp(np.mean(np.log(each)))) for name, each in errors.items()}


def crossover(quick: bool) -> dict[str, float]:
    """Time and accuracy of linear attention on m positive features against softmax attention.

    Both run 8 steps of conjugate gradient on one task with 8 features, inputs on the sphere and
    ridge n / 10. Times are medians of 7 runs, measured alternately. "n where they meet" is the n at
    which both take the same time, interpolated in logarithms; NaN if it lies beyond the largest n.
    """
    grid = (64,) if quick else (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    figures: dict[str, float] = {}
    for m in (16,) if quick else (16, 64, 256, 1024):
        ratios = []
        for n in grid:
            ours, exact = (program(on_sphere(n), width) for width in (m, None))
            contest = Contest("features", f"m = {m}", ours, {"softmax": exact}, tolerance=None)
            times = compete(contest, 1 if quick else 7)
            ratios.append(times[0].median_ms / times[1].median_ms)
            figures[f"time over softmax, m = {m}, n = {n}"] = ratios[-1]
            figures[f"gap to softmax, m = {m}, n = {n}"] = gap(ours(), exact())
        figures[f"n where they meet, m = {m}"] = meeting(grid, ratios)
    return figures


def program(task: ik.Task, m: int | None) -> Callable[[], jax.Array]:
    """Conjugate gradient by linear attention on m features, or by softmax attention."""
    draw = partial(ik.sketches.positive_features, jax.random.key(1), FEATURED, num_features=8)
    sketch = None if m is None else draw(width=m)
    build = ik.constructions.conjugate_gradient
    model = build(FEATURED, num_features=8, ridge=task.num_supports / 10, steps=8, sketch=sketch)
    forward = jax.jit(ik.predict)
    return lambda: forward(model, task)


def on_sphere(n: int) -> ik.Task:
    keys, shapes = jax.random.split(jax.random.key(0), 3), ((n, 8), (16, 8), (n,))
    x, queries, y = map(jax.random.normal, keys, shapes)
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


def main() -> None:
    args = records.options(__doc__, "smoke test; its figures are not meaningful")
    report = records.meta("figures", "numpy", matmul_precision="highest")
    print(json.dumps(report))
    with jax.enable_x64(True):
        doubles = (keystone, hat_matrix, route_a, tables)
        report["float64"] = {f.__name__: f(args.quick) for f in doubles}
    singles = (compilation, crossover) if args.quick else (route_a, compilation, crossover)
    report["float32"] = {f.__name__: f(args.quick) for f in singles}
    for dtype in ("float64", "float32"):
        for name, figures in report[dtype].items():
            for figure, value in figures.items():
                print(f"{dtype}  {name:12}  {figure:32}  {value:.3g}")


if __name__ == "__main__":
    main()
