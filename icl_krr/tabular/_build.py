"""Build a solver by name: its construction for a task, its predictions, the keywords of both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import Kernel, Nystrom, Softmax, Task, Transformer, constructions, nystrom, solvers, theory
from .._core import memory_limit
from ..catalogue import SOLVERS, SolverEntry, find


def build(solver: str, kernel: Kernel, task: Task, ridge, steps) -> tuple[Transformer, np.ndarray]:
    """The construction, and the predictions of the solver on arrays after every step."""
    entry = find("solver", SOLVERS, solver)
    needs = keywords(entry, kernel, task, ridge, steps)
    model = with_keywords(entry, kernel, task, needs)
    words = {name: value for name, value in needs.items() if isinstance(value, (int, str))}
    numbers = {name: value for name, value in needs.items() if name not in words}
    function = solvers.lookup(entry)
    path = np.asarray(predictions(function, kernel, task, numbers, tuple(words.items())))
    return model, path if entry.iterates else np.stack([0 * path, path])


@partial(jax.jit, static_argnames=("solver", "words"))
def predictions(solver: Callable, kernel: Kernel, task: Task, numbers: dict, words) -> jax.Array:
    """The predictions of a solver alone: a program without its status compiles in half the time."""
    return solver(kernel, task, **numbers, **dict(words)).prediction


def build_model(solver: str, kernel: Kernel, task: Task, ridge: Any, steps: Any) -> Transformer:
    """The construction alone."""
    entry = find("solver", SOLVERS, solver)
    return with_keywords(entry, kernel, task, keywords(entry, kernel, task, ridge, steps))


def keywords(entry: SolverEntry, kernel: Kernel, task: Task, ridge: Any, steps: Any) -> dict:
    """The keywords of the construction and of the solver; {} for a solver without steps."""
    if not entry.iterates:
        return {}
    numbers = 3 * (steps or 0) * task.num_supports * task.num_outputs  # states of all steps
    memory_limit.check(f"a run of {steps} steps", numbers, task.x, "use fewer steps")
    return {"steps": steps, **solver_keywords(entry, kernel, task, ridge)}


def with_keywords(entry: SolverEntry, kernel: Kernel, task: Task, needs: dict) -> Transformer:
    sink = attention(kernel, task) if needs else {}
    return construct(entry.name, kernel, task, **needs, **sink)


def construct(solver: str, kernel: Kernel, task: Task, **needs: Any) -> Transformer:
    """The construction for tasks with as many features and outputs as this task."""
    sizes = {"num_features": task.num_features, "num_outputs": task.num_outputs}
    return constructions.lookup(solver)(kernel, **sizes, **needs)


def attention(kernel: Kernel, task: Task) -> dict[str, Any]:
    """Softmax attention with a sink chosen from the task; {} if the kernel has a feature map."""
    if kernel.featured:
        return {}
    return {"attention": Softmax(log_sink=theory.log_sink(kernel, task))}


def solver_keywords(
    solver: SolverEntry, kernel: Kernel, task: Task, ridge: Any, but: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The keywords that a solver's `required_inputs` name, without `but`, each by its function."""
    functions = INPUTS | PREFIX_INPUTS if solver.causal else INPUTS
    values = dict(solver.options)
    for name, function in zip(solver.keywords, solver.required_inputs, strict=True):
        if name not in but:
            compute = functions[name] if isinstance(function, str) else function
            values[name] = compute(kernel, task, ridge)
    return values


def ridges(kernel: Kernel, task: Task, ridge: Any) -> Any:
    """The ridges of a family whose noise may be a quarter of the expected one, or four times it."""
    return jnp.asarray(ridge) * jnp.array([0.25, 1.0, 4.0])


def spectrum(kernel: Kernel, task: Task, ridge: Any) -> tuple[Any, Any]:
    return theory.spectral_bounds(kernel, task, ridge=ridge)


def preconditioner(kernel: Kernel, task: Task, ridge: Any) -> Nystrom:
    rank = max(1, min(task.num_supports, task.num_features) // 2)
    return nystrom(kernel, task.x, ridge=ridge, rank=rank)


def step_size(kernel: Kernel, task: Task, ridge: Any) -> Any:
    return 1 / spectrum(kernel, task, ridge)[1]


def curvature(kernel: Kernel, task: Task, ridge: Any) -> Any:
    """A curvature with which GD++ flattens the spectrum step by step."""
    return 0.3 / spectrum(kernel, task, ridge)[1]


def prefix_spectrum(kernel: Kernel, task: Task, ridge: Any) -> tuple[Any, Any]:
    return theory.prefix_bounds(kernel, task, ridge=ridge)


def stable_step_size(kernel: Kernel, task: Task, ridge: Any) -> Any:
    """A step size of the delta rule that is stable at every support."""
    return 1 / (jnp.max(kernel.diagonal(task.x)) + ridge)


def stable_momentum(kernel: Kernel, task: Task, ridge: Any) -> float:
    """A momentum with which that step size stays stable."""
    return 0.5


INPUTS: dict[str, Callable[..., Any]] = {
    "ridge": lambda kernel, task, ridge: ridge,
    "ridges": ridges,
    "spectrum": spectrum,
    "preconditioner": preconditioner,
    "num_supports": lambda kernel, task, ridge: task.num_supports,
    "step_size": step_size,
    "curvature": curvature,
}
"""{keyword of a solver: function of (kernel, task, ridge)}."""

PREFIX_INPUTS = dict(spectrum=prefix_spectrum, step_size=stable_step_size, momentum=stable_momentum)
"""Those of causal solvers, which hold for all prefixes of a task."""
