"""The families of tasks of SolverBench, and its models: what each is, its weights and answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import checks
from ...catalogue import candidate, load, name_of
from ...kernels import Kernel
from ...probes import fit_probe, hat_matrix, layerwise
from ...probes.naming.candidates import Values
from ...tasks import GaussianProcess, LinearRegression, Sampler, Task, map_tasks
from ...transformer import Transformer
from ..identify.constructed import Suited
from ..shared.draws import draw_tasks
from ..shared.recipe import Recipe
from ..shared.runs import family

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
class Setting(Suited):
    """A family of tasks, its drawn tasks, half to fit and half to score, and their models."""

    name: str
    family: Sampler
    probing: Task  # tasks that the linear probes are fitted to, a batch with y_query
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


OPEN = "open set"
VARIANTS = ("exact", "causal", "rotated", "superposed", "perturbed", "fine-tuned", OPEN)
"""Kinds of models, in the order of the tables."""


class Truth(NamedTuple):
    """What a model runs."""

    variant: str  # one of `VARIANTS`
    about: str  # the model in words
    solver: str = ""  # name of the candidate that the model runs; empty in the open set
    kernel: str = ""  # the kernel in words; empty if there is none
    # candidates that are the same solver with this kernel, the solver itself included
    names: tuple[str, ...] = ()
    known: Values | None = None  # parameters of the solver


class Model(NamedTuple):
    """A model whose truth is known."""

    truth: Truth  # what the model runs
    setting: Setting  # the family of its tasks
    weights: Transformer | None = None  # the transformer; None for a function of a task
    # function from a task to predictions [L + 1, q], for a model without weights
    function: Callable[[Task], jax.Array] | None = None
    # steps of the transformer that count as layers 0 to L; None: all
    layers: tuple[int, ...] | None = None
    probed: bool = False  # whether a linear probe of the stream at the queries reads the layers
    # the oracle of the solver, function from a task to states {name: [L + 1, ...]}; None in
    # the open set
    solution: Callable[[Task], dict[str, jax.Array]] | None = None


class Answers(NamedTuple):
    """What a participant without JAX needs."""

    answers: np.ndarray  # predictions before the first layer and after every layer [b, L + 1, q]
    hats: np.ndarray  # their derivatives with respect to y [b, L + 1, q, n]


@partial(jax.jit, static_argnames=("layers",))
def read(model, probe, tasks, layers):
    """Answers and hat matrices of weights; models of one structure share the program."""

    def answers(task: Task) -> jax.Array:
        found = layerwise(model, task, probe)
        return found if layers is None else found[jnp.array(layers)]

    return answers_and_hats(answers, tasks)


def answers_and_hats(answers: Callable[[Task], jax.Array], tasks: Task) -> tuple:
    return map_tasks(lambda task: (answers(task), hat_matrix(answers, task)), tasks)


def answers_of(model: Model) -> Answers:
    """Run a model on its tasks."""
    tasks = model.setting.tasks.replace(y_query=None)
    if model.weights is None:
        assert model.function is not None
        found = jax.jit(partial(answers_and_hats, model.function))(tasks)
    else:
        probe = fit_probe(model.weights, model.setting.probing) if model.probed else None
        found = read(model.weights, probe, tasks, model.layers)
    return Answers(*map(np.asarray, found))


def oracle(solver: str, kernel: Kernel, setting: Setting) -> Callable[[Task], dict[str, jax.Array]]:
    """The states of a candidate after every layer, computed without a transformer."""
    row = candidate(solver)
    needs = setting.needs(row, kernel)
    if row.sequential:
        needs.pop("steps")
    layers = setting.config.steps

    def states(task: Task) -> dict[str, jax.Array]:
        found = load(row.oracle)(kernel, task, **needs)
        if not row.iterates:
            return {"prediction": jnp.stack([0 * found.prediction, *[found.prediction] * layers])}
        kept = {name: getattr(found, name, None) for name in ("prediction", "alpha", "r")}
        kept = {name: value for name, value in kept.items() if value is not None}
        if row.sequential:
            at = jnp.array([0, *[task.num_supports] * layers])
            kept = {name: value[at] for name, value in kept.items()}
        return kept

    return states


def sampler(name: str, config: BenchConfig) -> Sampler:
    """The sampler of a family of tasks."""
    if name == LINEAR:
        p, n = (4, 8) if config.quick else (8, 16)
        sizes: Any = {"num_features": p, "num_supports": n, "num_queries": config.num_queries}
        return LinearRegression(condition=30.0, noise=0.05, **sizes)
    made: Any = family(Recipe.read("gp-encoder").task)
    assert isinstance(made, GaussianProcess)
    return dataclasses.replace(made, num_queries=config.num_queries)


def setting(name: str, config: BenchConfig) -> Setting:
    """Draw the tasks of the family "linear" or "process"."""
    made = sampler(name, config)
    key = jax.random.fold_in(jax.random.key(config.seed), (LINEAR, PROCESS).index(name))
    counts = (2 * config.tasks, config.probe_tasks)
    drawn = [draw_tasks(jax.random.fold_in(key, i), count, made) for i, count in enumerate(counts)]
    return Setting(drawn[0], (), config.condition, config.steps, name, made, drawn[1], config)
