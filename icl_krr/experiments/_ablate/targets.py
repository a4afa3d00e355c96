"""The model to ablate, a construction or a run, with its tasks and its expectations."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ... import Transformer, spectral_bounds
from ...catalogue import KERNELS, SOLVERS, taken
from ...kernels import make_kernel
from ...tabular._build import build_model, solver_keywords
from ...tasks import GaussianProcess, LinearRegression, Task, map_tasks
from ...training import reference
from .._shared.draws import draw_tasks
from .._shared.runs import load
from ..identify._probe_controls import in_dtype_of_tasks
from .config import AblateConfig
from .expected import EXPECTED


class Subject(NamedTuple):
    """The model to ablate, its tasks, and expectations."""

    model: Transformer
    tasks: Task
    losses: dict[str, float]  # losses of known predictors on the tasks
    words: dict[str, str]  # as in `Expectation`
    expected: dict[str, jax.Array]  # expected predictions without each part [b, q]


def trained(config: AblateConfig) -> Subject:
    run = load(config.model)
    family: Any = dataclasses.replace(run.family, num_queries=config.num_queries)  # pyright: ignore
    key = jax.random.key(config.seed)
    tasks = draw_tasks(key, config.tasks, family)
    losses = reference(family, jax.random.fold_in(key, 1)).losses(tasks)
    return Subject(in_dtype_of_tasks(run.model, tasks), tasks, losses, {}, {})


def construct(config: AblateConfig) -> Subject:
    entry = SOLVERS[config.model]
    expectation = EXPECTED.get(entry.name)
    name = config.kernel or (taken(entry.name)[0] if expectation is None else expectation.kernel)
    family = family_of(name, config.num_queries)
    key = jax.random.key(config.seed)
    tasks = draw_tasks(key, config.tasks, family)
    kernel, ridge = family.optimal()
    bounds = jax.jit(lambda t: map_tasks(lambda t: spectral_bounds(kernel, t, ridge=ridge), t))
    hardest = int(jnp.argmax(bounds(tasks)[1]))
    task = jax.tree.map(lambda field: field[hardest], tasks)
    default_steps = task.num_supports if entry.sequential else 12
    steps = default_steps if config.steps is None else config.steps
    model = build_model(entry.name, kernel, task, ridge, steps)
    losses = reference(family, jax.random.fold_in(key, 1)).losses(tasks)
    words, expected = {}, {}
    if expectation is not None and name == expectation.kernel:
        needs = solver_keywords(entry, kernel, task, ridge) | {"steps": steps}
        words, expected = expectation.words, expectation.predictions(kernel, tasks, **needs)
    return Subject(model, tasks, losses, words, expected)


def family_of(kernel: str, num_queries: int) -> Any:
    if KERNELS[kernel].kind == "featured":
        return LinearRegression(num_features=8, num_supports=16, num_queries=num_queries, noise=0.1)
    kernel_object = make_kernel(kernel, {"temperature": 0.5, "lengthscale": 0.7})
    stationary = all(term.function == "one" for term in kernel_object.diagonal_terms(float))
    # noise 0.1 k(x, x): on the sphere k(x, x) = e^2 for the exponential kernel, 1 for the others
    inputs, noise = ("normal", 0.1) if stationary else ("sphere", 0.74)
    return GaussianProcess(kernel_object, noise=noise, num_queries=num_queries, inputs=inputs)
