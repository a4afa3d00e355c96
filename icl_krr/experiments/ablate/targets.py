"""What is ablated: a construction or a run, with tasks of its family, and what to expect."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ... import checks
from ...kernels import Kernel
from ...probes.candidates import make
from ...probes.sites import KINDS
from ...tasks import GaussianProcess, LinearRegression, Sampler, Task, map_tasks
from ...theory import spectral_bounds
from ...training import reference
from ...transformer import Transformer
from ..identify.trained_model import in_dtype_of_tasks
from ..shared.build import SOLVERS, build
from ..shared.draws import draw_tasks
from ..shared.runs import find, load
from .expected import OMISSIONS


@dataclass(frozen=True)
class AblateConfig:
    """What is taken out of which model, on how many tasks.

    `model` is a run, or a solver whose construction of `steps` steps (by default 12) on the
    `kernel` it is. With `swap` every block of a run is replaced by a step of that solver as well.

    Raises ValueError for unknown names and numbers out of range.
    """

    model: str = "conjugate-gradient"
    kernel: str | None = None
    steps: int | None = None
    kinds: tuple[str, ...] | None = None
    each_step: bool = False
    replace: str = "zero"
    swap: str | None = None
    tasks: int = 64
    num_queries: int = 8
    seed: int = 0

    def __post_init__(self):
        for name, least in (("steps", 1), ("tasks", 2), ("num_queries", 1)):
            if getattr(self, name) is not None:
                checks.count(name, getattr(self, name), least)
        if not self.constructed:
            find(self.model, *SOLVERS)
        for name in ("kernel", "steps"):
            if not self.constructed and getattr(self, name) is not None:
                raise ValueError(
                    f"{name} must be left to constructions, got {getattr(self, name)} and the run "
                    f"{self.model}"
                )
        for kind in self.kinds or ():
            checks.choice("kind", kind, KINDS)
        checks.choice("replace", self.replace, ("zero", "mean"))
        if self.constructed and self.kernel is not None:
            checks.choice(f"kernel of {self.model}", self.kernel, SOLVERS[self.model].kernels)
        if self.swap is not None:
            steps = tuple(name for name in SOLVERS if name != "nadaraya-watson")
            checks.choice("swap", self.swap, steps)
            if self.constructed:
                raise ValueError(
                    f"swap must be left to trained models, got {self.swap} and the construction "
                    f"{self.model}"
                )

    @property
    def constructed(self) -> bool:
        return self.model in SOLVERS


class Subject(NamedTuple):
    """A model, its family and tasks of it, what known predictors lose, and what to expect.

    `words` and `expected` say it of the parts of an algorithm, such as "head p".
    """

    model: Transformer
    family: Sampler
    tasks: Task
    kernel: Kernel
    ridge: float
    known: dict[str, float]
    words: dict[str, str]
    expected: dict[str, jax.Array]


def trained(config: AblateConfig) -> Subject:
    run = load(config.model)
    family: Any = dataclasses.replace(run.family, num_queries=config.num_queries)  # pyright: ignore
    key = jax.random.key(config.seed)
    tasks = draw_tasks(key, config.tasks, family)
    best = reference(family, jax.random.fold_in(key, 1))
    if config.swap is not None:
        check_swap(config.swap, best.kernel, run.model, config.model)
    known = best.losses(tasks)
    return Subject(
        in_dtype_of_tasks(run.model, tasks), family, tasks, best.kernel, best.ridge, known, {}, {}
    )


def check_swap(solver: str, kernel: Kernel, model: Transformer, run: str) -> None:
    """Refuse a solver whose steps cannot take the place of the model's blocks."""
    name, takes = type(kernel).__name__.lower(), SOLVERS[solver].kernels
    if name not in takes:
        raise ValueError(
            f"swap must be a solver that takes the {name} kernel of the run's tasks, "
            f"got {solver!r}, which takes {', '.join(takes)}"
        )
    if model.spec.tokens != "pairs":
        raise ValueError(
            f"swap must be left to models with a token for each support, got {solver!r} and "
            f"{run}, whose tokens are {model.spec.tokens}"
        )


def construct(config: AblateConfig) -> Subject:
    solver, omission = config.model, OMISSIONS.get(config.model)
    name = config.kernel or (omission.kernel if omission else SOLVERS[solver].kernels[0])
    family = family_of(name, config.num_queries)
    key = jax.random.key(config.seed)
    tasks = draw_tasks(key, config.tasks, family)
    kernel, ridge = family.optimal()
    bounds = jax.jit(lambda t: map_tasks(lambda t: spectral_bounds(kernel, t, ridge=ridge), t))
    hardest = int(jnp.argmax(bounds(tasks)[1]))
    task = jax.tree.map(lambda field: field[hardest], tasks)
    steps = 12 if config.steps is None else config.steps
    model, _ = build(solver, kernel, task, ridge, steps)
    known = reference(family, jax.random.fold_in(key, 1)).losses(tasks)
    words, expected = {}, {}
    if omission is not None and name == omission.kernel:
        needs = SOLVERS[solver].needs(kernel, task, ridge) | {"steps": steps}
        words, expected = omission.words, omission.predictions(kernel, tasks, **needs)
    return Subject(model, family, tasks, kernel, ridge, known, words, expected)


def family_of(kernel: str, num_queries: int) -> Any:
    if kernel == "linear":
        return LinearRegression(num_features=8, num_supports=16, num_queries=num_queries, noise=0.1)
    # the exponential kernel is e^2 where the others are 1
    inputs, noise = ("sphere", 0.74) if kernel == "exponential" else ("normal", 0.1)
    made = make(kernel, {"temperature": 0.5, "lengthscale": 0.7})
    return GaussianProcess(made, noise=noise, num_queries=num_queries, inputs=inputs)
