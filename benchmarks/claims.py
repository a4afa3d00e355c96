"""Measured figures: errors of constructions, ReLU tables and emulated kernels, and costs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import icl_krr as ik
from icl_krr import theory

SIZES: dict[str, Any] = {"num_features": 2}


def gap(f: jax.Array, best: jax.Array) -> float:
    return float(jnp.linalg.norm(f - best) / jnp.linalg.norm(best))


def default_task(seed: int) -> tuple[ik.Kernel, ik.Task, float]:
    """Kernel, task and ridge: n = 64 on the unit circle, exponential kernel, temperature 0.5."""
    config = ik.tasks.GaussianProcess(ik.Exponential(0.5), inputs="sphere", num_queries=64)
    return config.kernel, ik.tasks.sample(jax.random.key(seed), config), 0.1 * np.exp(2.0)


def route_a(quick: bool) -> dict[str, float]:
    """Largest gap of softmax constructions to exact KRR over five seeds, after 32 steps.

    The task is `default_task`, with ridge 0.1 e^2.
    """
    figures: dict[str, float] = {}
    for seed in range(1 if quick else 5):
        kernel, task, ridge = default_task(seed)
        best = ik.solvers.exact(kernel, task, ridge=ridge).prediction
        smooth = ik.solvers.nadaraya_watson(kernel, task).prediction
        bounds = ik.spectral_bounds(kernel, task, ridge=ridge)
        route = {"attention": ik.Softmax(log_sink=theory.log_sink(kernel, task))}
        build = ik.constructions
        needs: dict[str, tuple[Any, dict[str, Any]]] = {
            "conjugate gradient": (build.conjugate_gradient, {}),
            "fused": (build.conjugate_gradient, {"form": "fused"}),
            "pipelined": (build.conjugate_gradient, {"form": "pipelined"}),
            "chebyshev": (build.chebyshev, {"spectrum": bounds}),
            "gradient descent": (build.gradient_descent, {"spectrum": bounds}),
        }
        gaps = {"Nadaraya-Watson": gap(smooth, best)}
        for name, (construct, options) in [*needs.items()][: 1 if quick else None]:
            model = construct(kernel, ridge=ridge, steps=32, **SIZES, **route, **options)
            gaps[name] = gap(ik.predict(model, task), best)
        for name, value in gaps.items():
            figures[f"gap, {name}"] = max(figures.get(f"gap, {name}", 0.0), value)
    return figures


def twin(kernel: ik.Kernel, task: ik.Task, steps: int, **options: Any) -> ik.Transformer:
    sink = ik.Softmax(log_sink=theory.log_sink(kernel, task))
    return ik.constructions.richardson(
        kernel, ridge=1.0, steps=steps, step_size=1.9, attention=sink, **SIZES, **options
    )


def tables(quick: bool) -> dict[str, float]:
    """Errors of Richardson with ReLU tables against exact arithmetic, after 100 steps.

    Tasks are draws of a Gaussian process on the unit circle, with lengthscale 0.7 and ridge 1. Each
    figure is the geometric mean over three seeds of the largest error at 64 queries, relative to
    the largest prediction.
    """
    widths, sizes = (64, 128, 256, 512), (16, 64, 256)[: 1 if quick else 3]
    errors = np.zeros((len(sizes), len(widths)))
    for i, n in enumerate(sizes):
        config = ik.tasks.GaussianProcess(
            ik.Gaussian(0.7), num_supports=n, num_queries=64, inputs="sphere"
        )
        for seed in range(1 if quick else 3):
            task = ik.tasks.sample(jax.random.key(seed), config)
            exact = twin(config.kernel, task, 100)
            bounds, target = ik.operand_bounds(exact, task), ik.predict(exact, task)
            for j, width in enumerate(widths[:1] if quick else widths):
                model = twin(config.kernel, task, 100, arithmetic=ik.ReLU(width, bounds))
                prediction, cache = ik.run_with_cache(model, task)
                assert not np.any(cache["overrun"])
                error = jnp.max(jnp.abs(prediction - target)) / jnp.max(jnp.abs(target))
                errors[i, j] += float(jnp.log(error))
    if quick:
        return {}
    errors /= 3
    figures = {
        f"error, n = {n}, width {w}": float(np.exp(errors[i, j]))
        for i, n in enumerate(sizes)
        for j, w in enumerate(widths)
    }
    slopes = [np.polyfit(np.log(widths), row, 1) for row in errors]
    figures |= {f"slope in width, n = {n}": s[0] for n, s in zip(sizes, slopes, strict=True)}
    needed = [np.exp((np.log(1e-3) - offset) / slope) for slope, offset in slopes]
    figures |= {f"width for 1e-3, n = {n}": w for n, w in zip(sizes, needed, strict=True)}
    figures["power of n in needed width"] = float(np.polyfit(np.log(sizes), np.log(needed), 1)[0])
    figures["power of 1/e in needed width"] = float(-1 / np.mean([s[0] for s in slopes]))
    return figures


def emulation(quick: bool) -> dict[str, float]:
    """Error floor of conjugate gradient if softmax heads emulate the linear kernel.

    The figures are gaps to exact KRR at 0.1, 1 and 10 times the best epsilon.
    """
    config = ik.tasks.LinearRegression(num_features=2, num_supports=32, num_queries=16)
    task = ik.tasks.sample(jax.random.key(0), config)
    best = ik.solvers.exact(ik.Linear(), task, ridge=1.0).prediction
    points = jnp.concatenate([task.x, task.x_query])
    bound = float(jnp.max(jnp.abs(points @ task.x.T)))
    figures = {}
    for symmetric in (False, True):
        epsilon = theory.best_epsilon(bound, symmetric=symmetric, dtype=task.x.dtype)
        for factor in (1.0,) if quick else (0.1, 1.0, 10.0):
            model = ik.constructions.conjugate_gradient(
                ik.Linear(),
                ridge=1.0,
                steps=8,
                attention=ik.Softmax(epsilon=factor * epsilon, symmetric=symmetric),
                **SIZES,
            )
            name = f"floor, {'pair' if symmetric else 'one-sided'}, {factor:g} e*"
            figures[name] = gap(ik.predict(model, task), best)
    return figures


def costs(quick: bool) -> dict[str, float]:
    """Blocks per step, blocks before the first step, heads, MLP units and channels besides x.

    All constructions have p = 8 features and one output.
    """
    build, gaussian = ik.constructions, ik.Gaussian()
    spectrum: tuple[float, float] = (0.1, 9.0)
    common: dict[str, Any] = {"num_features": 8, "ridge": 0.1, "steps": 4}
    softmax = {"attention": ik.Softmax(epsilon=0.01)}
    rank = ik.nystrom(ik.Linear(), jnp.eye(8), ridge=0.1, rank=4)
    models = {
        "Nadaraya-Watson, exponential": build.nadaraya_watson(ik.Exponential(), num_features=8)
    }
    for route, kernel in (("linear", ik.Linear()), ("Gaussian", gaussian)):
        for form in ("textbook", "fused", "pipelined"):
            models[f"CG {form}, {route}"] = build.conjugate_gradient(kernel, form=form, **common)
        models[f"PCG Jacobi, {route}"] = build.preconditioned_conjugate_gradient(kernel, **common)
        for name in ("chebyshev", "heavy_ball", "gradient_descent", "gradient_descent_in_alpha"):
            construct = getattr(build, name)
            models[f"{name}, {route}"] = construct(kernel, spectrum=spectrum, **common)
    models["PCG Nystrom 4, linear"] = build.preconditioned_conjugate_gradient(
        ik.Linear(), preconditioner=rank, **common
    )
    models["CG textbook, linear by softmax"] = build.conjugate_gradient(
        ik.Linear(), **softmax, **common
    )
    models["richardson, Gaussian"] = build.richardson(gaussian, **common)
    models["richardson, Gaussian, ReLU 256"] = build.richardson(
        gaussian, arithmetic=ik.ReLU(256, 8.0), **common
    )
    models["newton_schulz, linear"] = build.newton_schulz(ik.Linear(), spectrum=spectrum, **common)
    models["gd++, linear"] = build.gradient_descent_plus_plus(
        ik.Linear(), num_features=8, steps=4, step_size=0.1, curvature=0.1
    )
    figures = {}
    for name, model in models.items():
        for what, value in (
            ("blocks a step", model.blocks_per_step),
            ("blocks before", len(model.weights.prologue)),
            ("heads", model.num_heads),
            ("MLP units", model.mlp_width),
            ("c", model.overhead),
        ):
            figures[f"{name}: {what}"] = float(value)
    return figures
