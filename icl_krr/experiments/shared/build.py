"""Every solver by name: the kernels it takes, and what it must be told of a task beforehand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ... import constructions, solvers, theory
from ...constructions import Softmax
from ...kernels import Exponential, Gaussian, Kernel, Linear
from ...sketches import nystrom
from ...tasks import Task
from ...transformer import Transformer

KERNELS = {"linear": Linear, "exponential": Exponential, "gaussian": Gaussian}
ANY, POSITIVE, LINEAR = tuple(KERNELS), ("exponential", "gaussian"), ("linear",)


class Entry(NamedTuple):
    """A solver: its name as construction and oracle, its kernels, what it must be told."""

    name: str
    kernels: tuple[str, ...]
    needs: Callable[[Kernel, Task, float], dict[str, Any]]


def nothing(kernel: Kernel, task: Task, ridge: float) -> dict[str, Any]:
    return {}


def ridge_only(kernel: Kernel, task: Task, ridge: float) -> dict[str, Any]:
    return {"ridge": ridge}


def spectrum(kernel: Kernel, task: Task, ridge: float) -> dict[str, Any]:
    return {"ridge": ridge, "spectrum": theory.spectral_bounds(kernel, task, ridge=ridge)}


def form(name: str) -> Callable[[Kernel, Task, float], dict[str, Any]]:
    return lambda kernel, task, ridge: {"ridge": ridge, "form": name}


def landmarks(kernel: Kernel, task: Task, ridge: float) -> dict[str, Any]:
    rank = max(1, min(task.num_supports, task.num_features) // 2)
    return {"ridge": ridge, "preconditioner": nystrom(kernel, task.x, ridge=ridge, rank=rank)}


def flattening(kernel: Kernel, task: Task, ridge: float) -> dict[str, Any]:
    _, high = theory.spectral_bounds(kernel, task, ridge=ridge)
    return {"step_size": 1 / high, "curvature": 0.3 / high}


SOLVERS = {
    "conjugate-gradient": Entry("conjugate_gradient", ANY, ridge_only),
    "fused-conjugate-gradient": Entry("conjugate_gradient", ANY, form("fused")),
    "pipelined-conjugate-gradient": Entry("conjugate_gradient", ANY, form("pipelined")),
    "jacobi-conjugate-gradient": Entry("preconditioned_conjugate_gradient", ANY, ridge_only),
    "nystrom-conjugate-gradient": Entry("preconditioned_conjugate_gradient", LINEAR, landmarks),
    "chebyshev": Entry("chebyshev", ANY, spectrum),
    "heavy-ball": Entry("heavy_ball", ANY, spectrum),
    "gradient-descent": Entry("gradient_descent", ANY, spectrum),
    "gradient-descent-in-alpha": Entry("gradient_descent_in_alpha", ANY, spectrum),
    "richardson": Entry("richardson", POSITIVE, ridge_only),
    "newton-schulz": Entry("newton_schulz", LINEAR, spectrum),
    "gradient-descent-plus-plus": Entry("gradient_descent_plus_plus", LINEAR, flattening),
    "nadaraya-watson": Entry("nadaraya_watson", POSITIVE, nothing),
}


def build(
    solver: str, kernel: Kernel, task: Task, ridge: float, steps: int
) -> tuple[Transformer, np.ndarray]:
    """The construction, and its oracle's predictions step by step.

    The sink of softmax attention is chosen from the data (`theory.log_sink`).
    """
    entry = SOLVERS[solver]
    construct, oracle = getattr(constructions, entry.name), getattr(solvers, entry.name)
    sizes = {"num_features": task.num_features, "num_outputs": task.num_outputs}
    if solver == "nadaraya-watson":
        smooth = np.asarray(oracle(kernel, task).prediction)
        return construct(kernel, **sizes), np.stack([0 * smooth, smooth])
    needs: dict[str, Any] = {"steps": steps, **entry.needs(kernel, task, ridge)}
    route = {} if isinstance(kernel, Linear) else {"attention": softmax(kernel, task)}
    model = construct(kernel, **sizes, **needs, **route)
    return model, np.asarray(oracle(kernel, task, **needs).prediction)


def softmax(kernel: Kernel, task: Task) -> Softmax:
    return Softmax(log_sink=theory.log_sink(kernel, task))
