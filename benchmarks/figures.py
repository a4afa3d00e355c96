"""`python -m benchmarks.figures`: measure the numbers that the README states.

Each function sets its own seeds and sizes. The output states dtypes. `python -m benchmarks
speed` compares times with other libraries.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

import icl_krr as ik
from icl_krr.residual import embed, visible
from icl_krr.transformer import forward

from . import records
from .claims import costs, emulation, route_a, tables
from .features import crossover, one_query

LINEAR = ik.Linear()


def draw(seed: int, p: int, n: int, r: int | None = None, q: int = 3) -> ik.Task:
    config = ik.tasks.LinearRegression(
        num_features=p, num_supports=n, num_outputs=r, num_queries=q, noise=0.1
    )
    return ik.tasks.sample(jax.random.key(seed), config)


def build(task: ik.Task, ridge: float, steps: int) -> ik.Transformer:
    return ik.constructions.conjugate_gradient(
        LINEAR,
        num_features=task.num_features,
        num_outputs=task.num_outputs,
        ridge=ridge,
        steps=steps,
    )


def worst(a: jax.Array, b: jax.Array) -> float:
    size = float(jnp.max(jnp.abs(b)))
    return float(jnp.max(jnp.abs(a - b))) / (size or 1.0)


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
    """Errors of d prediction / d y against the hat matrix of exact KRR, and of d loss / d ridge."""
    task = draw(0, 4, 20)
    model = build(task, 2.0, 8)
    jacobian = jax.jacobian(lambda y: ik.predict(model, task.replace(y=y)))(task.y)
    inverse = jnp.linalg.inv(task.x @ task.x.T + 2.0 * jnp.eye(20))
    loss = lambda ridge: jnp.sum(ik.predict(build(task, ridge, 8), task) ** 2)  # noqa: E731
    finite = (loss(2.0 + 1e-5) - loss(2.0 - 1e-5)) / 2e-5
    slope = jax.grad(loss)(2.0)
    return {
        "jacobian - hat matrix": worst(jacobian, task.x_query @ task.x.T @ inverse),
        "gradient - finite difference": float(abs(slope - finite) / abs(slope)),
    }


def compilation(quick: bool) -> dict[str, float]:
    """Seconds to compile the forward pass and lines of its program, for 8 and 256 steps."""
    task = draw(0, 8, 64)
    seconds: dict[int, list[float]] = {8: [], 256: []}
    lines = {}
    for steps in (8, 256) * (1 if quick else 5):
        jax.clear_caches()
        model = build(task, 0.1, steps)
        stream = embed(model.weights.embedding, task)
        lowered = jax.jit(lambda m, h: forward(m, h, visible(task)).stream).lower(model, stream)
        lines[steps] = len(lowered.as_text().splitlines())
        start = time.perf_counter()
        lowered.compile()
        seconds[steps].append(time.perf_counter() - start)
    return {
        **{f"compile seconds, {steps} steps": median(times) for steps, times in seconds.items()},
        **{f"program lines, {steps} steps": float(count) for steps, count in lines.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="smoke test; its figures are not meaningful"
    )
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    args = parser.parse_args()
    report = records.meta("figures", "numpy", matmul_precision="highest")
    print(json.dumps(report))
    with jax.enable_x64(True):
        doubles = (keystone, hat_matrix, route_a, tables, emulation)
        report["float64"] = {f.__name__: f(args.quick) for f in doubles}
    again = () if args.quick else (route_a, emulation)
    singles = (costs, *again, compilation, crossover, one_query)
    report["float32"] = {f.__name__: f(args.quick) for f in singles}
    for dtype in ("float64", "float32"):
        for name, figures in report[dtype].items():
            for figure, value in figures.items():
                print(f"{dtype}  {name:12}  {figure:32}  {value:.3g}")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        records.write(args.out, report)


if __name__ == "__main__":
    main()
