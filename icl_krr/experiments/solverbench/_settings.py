"""The families of tasks of SolverBench, and constructions of known solvers that suit them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ... import Kernel, Softmax, Transformer, constructions
from ..._core import checks
from ...catalogue import SolverEntry, candidate
from ...kernels import make_kernel, name_of
from ...tasks import GaussianProcess, LinearRegression, Sampler, Task, map_tasks, system
from ...tasks._batches import unstack
from ...theory import log_sink
from .._shared.draws import draw_batches
from .._shared.recipe import Recipe
from .._shared.runs import family

LINEAR, PROCESS = "linear", "process"
"""Names of the families: linear regression, and the tasks of the trained run gp-encoder."""


@dataclass(frozen=True)
class BenchConfig:
    """Sizes of SolverBench."""

    seed: int = 0  # seed of every random choice, >= 0
    tasks: int = 16  # number of tasks to fit, >= 2. As many other tasks are to be scored.
    probe_tasks: int = 256  # number of tasks that the linear probes are fitted to, >= 2
    steps: int = 6  # number of layers of every model, >= 2
    num_queries: int = 6  # number of queries of a task, >= 1
    condition: float = 100.0  # condition number of K + ridge I, averaged over tasks, > 1
    quick: bool = False  # whether to make one model of each variant, in smaller sizes

    def __post_init__(self):
        checks.count("seed", self.seed, minimum=0)
        for name, least in (("tasks", 2), ("probe_tasks", 2), ("steps", 2), ("num_queries", 1)):
            checks.count(name, getattr(self, name), least)
        checks.at_least("condition", self.condition, 1)


QUICK = {"tasks": 12, "probe_tasks": 32, "steps": 3, "num_queries": 4}
"""Sizes of `--quick`."""


@dataclass(frozen=True)
class BenchFamily:
    """A family of tasks, with kernels and parameters of solvers that suit its drawn tasks."""

    name: str
    sampler: Sampler
    tasks: Task  # half to fit and half to score
    probing: Task  # tasks that the linear probes are fitted to, a batch with y_query
    config: BenchConfig

    def kernel(self, name: str) -> Kernel:
        """The kernel of the family, or one with a typical bandwidth of the tasks."""
        family_kernel = getattr(self.sampler, "kernel", None)
        if family_kernel is not None and name_of(family_kernel) == name:
            return family_kernel
        size = float(jnp.mean(jnp.sum(self.tasks.x**2, axis=-1)))
        return make_kernel(name, {"temperature": size, "lengthscale": size**0.5})

    def ridge(self, kernel: Kernel) -> float:
        """The largest eigenvalue of K, averaged over tasks, over the condition number."""
        return float(jnp.mean(largest_eigenvalues(kernel, self.tasks))) / self.config.condition

    def largest_eigenvalue(self, kernel: Kernel) -> float:
        """The largest eigenvalue of K + ridge I over all tasks."""
        return float(jnp.max(largest_eigenvalues(kernel, self.tasks))) + self.ridge(kernel)

    def attention(self, kernel: Kernel) -> dict[str, Any]:
        """The keyword of a construction for the weight of its sink, if it has one."""
        if kernel.featured:
            return {}
        sinks = (int(log_sink(kernel, task)) for task in unstack(self.tasks))
        return {"attention": Softmax(log_sink=max(sinks))}

    def solver_keywords(self, entry: SolverEntry, kernel: Kernel) -> dict[str, Any]:
        """The keywords that construction and oracle of a candidate take."""
        if not entry.iterates:
            return {}
        ridge, supports = self.ridge(kernel), self.tasks.num_supports
        keywords = {
            "ridge": ridge,
            "spectrum": (ridge, self.largest_eigenvalue(kernel)),
            "num_supports": supports,
            "step_size": 0.5 / float(jnp.mean(diagonals(kernel, self.tasks))),
            "momentum": 0.5,
        }
        kwargs = {name: keywords[name] for name in entry.keywords}
        return kwargs | {"steps": supports if entry.sequential else self.config.steps}

    def build(self, solver: str, kernel: Kernel) -> Transformer:
        """The construction of a candidate."""
        entry = candidate(solver)
        return constructions.lookup(entry)(
            kernel,
            num_features=self.tasks.num_features,
            **self.solver_keywords(entry, kernel),
            **(self.attention(kernel) if entry.iterates else {}),
        )

    def compile_keywords(self, kernel: Kernel) -> dict[str, Any]:
        """Keywords of a solver that is no candidate, without its step sizes."""
        p = self.tasks.num_features
        return {"num_features": p, "ridge": self.ridge(kernel), **self.attention(kernel)}


Families = dict[str, BenchFamily]


@jax.jit
def diagonals(kernel: Kernel, tasks: Task) -> jax.Array:
    """All values k(x, x) at the supports [tasks, n]."""
    return map_tasks(lambda task: kernel.diagonal(task.x), tasks)


@jax.jit
def largest_eigenvalues(kernel: Kernel, tasks: Task) -> jax.Array:
    """The largest eigenvalue of K of every task."""
    return map_tasks(lambda t: jnp.linalg.eigvalsh(system(kernel, t).gram)[-1], tasks, chunk=1)


def sampler(name: str, config: BenchConfig) -> Sampler:
    """The sampler of a family of tasks."""
    if name == LINEAR:
        p, n = (4, 8) if config.quick else (8, 16)
        sizes: Any = {"num_features": p, "num_supports": n, "num_queries": config.num_queries}
        return LinearRegression(condition=30.0, noise=0.05, **sizes)
    process: Any = family(Recipe.read("gp-encoder").task)
    assert isinstance(process, GaussianProcess)
    return dataclasses.replace(process, num_queries=config.num_queries)


def bench_family(name: str, config: BenchConfig) -> BenchFamily:
    """Draw the tasks of the family "linear" or "process"."""
    task_sampler = sampler(name, config)
    key = jax.random.fold_in(jax.random.key(config.seed), (LINEAR, PROCESS).index(name))
    drawn = draw_batches(key, (2 * config.tasks, config.probe_tasks), task_sampler)
    return BenchFamily(name, task_sampler, drawn[0], drawn[1], config)
