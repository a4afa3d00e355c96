"""The families of tasks, kernels and parameters of SolverBench."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax

from ... import checks
from ...catalogue import name_of
from ...kernels import Kernel
from ...tasks import GaussianProcess, LinearRegression, Sampler, Task
from ..identify.constructed import Suited
from ..shared.draws import draw_tasks
from ..shared.families import family
from ..shared.recipe import Recipe

LINEAR, PROCESS = "linear", "process"
"""Names of the families: linear regression, and the tasks of the trained run gp-encoder."""


@dataclass(frozen=True)
class BenchConfig:
    """Sizes of SolverBench.

    Args:
        seed: seed of every random choice, >= 0; default 0.
        tasks: number of tasks to fit, >= 2; default 16. As many other tasks are to be scored.
        probe_tasks: number of tasks that the linear probes are fitted to, >= 2; default 256.
        steps: number of layers of every model, >= 2; default 6.
        num_queries: number of queries of a task, >= 1; default 6.
        condition: condition number of K + ridge I, averaged over tasks, > 1; default 100.
        quick: whether to make one model of each variant, in smaller sizes; default False.

    Raises:
        ValueError: a number is out of range.
    """

    seed: int = 0
    tasks: int = 16
    probe_tasks: int = 256
    steps: int = 6
    num_queries: int = 6
    condition: float = 100.0
    quick: bool = False

    def __post_init__(self):
        checks.count("seed", self.seed, minimum=0)
        for name, least in (("tasks", 2), ("probe_tasks", 2), ("steps", 2), ("num_queries", 1)):
            checks.count(name, getattr(self, name), least)
        checks.at_least("condition", self.condition, 1)


QUICK = {"tasks": 12, "probe_tasks": 32, "steps": 3, "num_queries": 4}
"""Sizes of `--quick`."""


def sampler(name: str, config: BenchConfig) -> Sampler:
    """The sampler of a family of tasks."""
    if name == LINEAR:
        p, n = (4, 8) if config.quick else (8, 16)
        return LinearRegression(
            num_features=p,
            num_supports=n,
            num_queries=config.num_queries,
            condition=30.0,
            noise=0.05,
        )
    made: Any = family(Recipe.read("gp-encoder").task)
    assert isinstance(made, GaussianProcess)
    return dataclasses.replace(made, num_queries=config.num_queries)


@dataclass(frozen=True)
class Setting(Suited):
    """A family of tasks with its drawn tasks, and the parameters of its models.

    Half of `tasks` is to fit, half to score.

    Args:
        name: name of the family.
        family: sampler of the tasks.
        probing: tasks that the linear probes are fitted to, a batch with y_query.
        config: sizes.
    """

    name: str
    family: Sampler
    probing: Task
    config: BenchConfig

    def kernel(self, name: str) -> Kernel:
        """The kernel of the family, or one with a typical bandwidth of the tasks."""
        own = getattr(self.family, "kernel", None)
        return own if own is not None and name_of(own) == name else super().kernel(name)

    def shared(self, kernel: Kernel) -> dict[str, Any]:
        """Keywords of a solver that is no candidate, without its step sizes."""
        return {
            "num_features": self.tasks.num_features,
            "ridge": self.ridge(kernel),
            **self.attention(kernel),
        }


def setting(name: str, config: BenchConfig) -> Setting:
    """Draw the tasks of the family "linear" or "process"."""
    made = sampler(name, config)
    key = jax.random.fold_in(jax.random.key(config.seed), (LINEAR, PROCESS).index(name))
    counts = (2 * config.tasks, config.probe_tasks)
    drawn = [draw_tasks(jax.random.fold_in(key, i), count, made) for i, count in enumerate(counts)]
    return Setting(drawn[0], (), config.condition, config.steps, name, made, drawn[1], config)
