"""Causal importance of every part of a model, with what its algorithm lets expect beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..files import Lines
from ..kernels import Kernel
from ..probes import ablate, sites, swap
from ..probes.candidates import make
from ..probes.distances import EDGES, relative, squared
from ..probes.sites import KINDS
from ..residual import map_tasks
from ..tasks import GaussianProcess, LinearRegression, Sampler, Task
from ..theory import spectral_bounds
from ..training import reference
from ..transformer import Transformer, predict_batch
from .claim import Rows, draw_tasks
from .identification import widen
from .omissions import OMISSIONS
from .recipe import folder_of, names
from .registry import SOLVERS, build
from .runs import load

DIVERGED = 1e8
"""The change beyond which a prediction says how rounding grew, and a table no more than that."""


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
        if not self.constructed and not folder_of(self.model).is_dir():
            raise ValueError(
                f"model must be a run's folder or one of {', '.join([*names(), *SOLVERS])}; "
                f"got {self.model!r}"
            )
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


class Ablation(NamedTuple):
    """A row for every site; and what the intact model and known predictors lose."""

    rows: Rows
    known: dict[str, float]


def examine(config: AblateConfig, progress: Callable[[str], None] = lambda name: None) -> Ablation:
    """Take every part out by itself: how far do predictions move, and how far should they?"""
    progress("the model and its tasks")
    subject = construct(config) if config.constructed else trained(config)
    model, tasks = subject.model, subject.tasks
    alone = config.each_step or not config.constructed
    kinds = config.kinds or (("head", "slot") if config.constructed else ("head", "unit"))
    found = sites(model, kinds, each_step=alone)
    if not found:
        raise ValueError(f"kinds must be some that the model has, got {', '.join(kinds)}")
    progress(f"{len(found)} ablations")
    intact = predict_batch(model, tasks)
    changed = ablate(model, tasks, found, replace=config.replace)
    named = [{"site": site.name, "kind": site.kind, "slot": site.slot} for site in found]
    rows = measure(named, intact, changed, tasks, config.seed)
    for site, row, now in zip(found, rows, changed, strict=True):
        part = f"{site.kind} {site.slot}"
        if alone or config.replace != "zero" or part not in subject.words:
            continue
        row["expectation"] = subject.words[part]
        row |= compare(now, subject.expected[part], intact)
    if config.swap is not None:
        rows += swaps(subject, config, progress)
    loss = float(jnp.mean((intact - tasks.y_query) ** 2))
    return Ablation(rows, {"intact": loss, **subject.known})


def measure(named: Rows, intact: jax.Array, changed: jax.Array, tasks: Task, seed: int) -> Rows:
    """Of changed predictions [S, b, q]: `change` |f' - f| / |f| with its interval, and loss.

    The interval has 95 % of bootstrap resamples of the tasks. A prediction that is no number has
    neither.
    """
    count = len(intact)
    squares = squared(changed - intact, 2).T
    sizes = np.repeat(squared(intact, 1)[:, None], len(changed), axis=1)
    resample = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=1000)
    change = relative(squares, sizes, np.ones(count))
    low, high = np.quantile(relative(squares, sizes, resample), EDGES, axis=0)
    losses = np.asarray(jnp.mean((changed - tasks.y_query) ** 2, axis=(1, 2)))
    columns = {"change": change, "low": low, "high": high, "loss": losses}
    return [
        {**row, **{key: float(column[i]) for key, column in columns.items()}}
        if np.isfinite(losses[i])
        else row
        for i, row in enumerate(named)
    ]


def compare(now: jax.Array, expected: jax.Array, intact: jax.Array) -> dict[str, float]:
    """How far the predictions should have moved, and how far they are from where they should be."""
    size = jnp.linalg.norm(intact)
    if not bool(jnp.any(jnp.isfinite(expected))):
        return {"gap to expectation": float("inf" if jnp.any(jnp.isfinite(now)) else 0)}
    largest = jnp.maximum(size, jnp.linalg.norm(expected))
    return {
        "expected change": float(jnp.linalg.norm(expected - intact) / size),
        "gap to expectation": float(jnp.linalg.norm(now - expected) / largest),
    }


def swaps(subject: Subject, config: AblateConfig, progress: Callable[[str], None]) -> Rows:
    """Every block in turn replaced by the constructed step of the same number, and the controls."""
    model, tasks = subject.model, subject.tasks
    key = jax.random.fold_in(jax.random.key(config.seed), 2)
    fitted = draw_tasks(key, 4 * config.tasks, subject.family)
    first = jax.tree.map(lambda field: field[0], tasks)
    assert config.swap is not None
    name, takes = type(subject.kernel).__name__.lower(), SOLVERS[config.swap].kernels
    if name not in takes:
        raise ValueError(
            f"swap must be a solver that takes the {name} kernel of the run's tasks, "
            f"got {config.swap!r}, which takes {', '.join(takes)}"
        )
    if model.spec.tokens != "pairs":
        raise ValueError(
            f"swap must be left to models with a token for each support, got {config.swap!r} and "
            f"{config.model}, whose tokens are {model.spec.tokens}"
        )
    other, _ = build(config.swap, subject.kernel, first, subject.ridge, model.depth)
    rows = []
    for block in range(model.depth):
        progress(f"block {block} replaced by a step of {config.swap}")
        found = swap(model, block, other, block, fitted, tasks)._asdict()
        intact = found.pop("intact")
        named = [
            {"site": f"blocks.{block}", "kind": "swap", "slot": f"{config.swap}: {name}"}
            for name in found
        ]
        rows += measure(named, intact, jnp.stack([*found.values()]), tasks, config.seed)
    return rows


def trained(config: AblateConfig) -> Subject:
    run = load(config.model)
    family: Any = dataclasses.replace(run.family, num_queries=config.num_queries)  # pyright: ignore
    key = jax.random.key(config.seed)
    tasks = draw_tasks(key, config.tasks, family)
    best = reference(family, jax.random.fold_in(key, 1))
    known = best.losses(tasks)
    return Subject(widen(run.model, tasks), family, tasks, best.kernel, best.ridge, known, {}, {})


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


def table(found: Ablation) -> Lines:
    """One line a site."""
    header = ["site", "holds", "change (95 %)", "loss"]
    expects = any("expectation" in row for row in found.rows)
    header += ["without it", "expected change", "gap to it"] if expects else []
    lines = []
    for row in found.rows:
        line = [row["site"], row["slot"], "no number", "-"]
        if row.get("change", 0) > DIVERGED:
            line[2] = f"> {DIVERGED:g}"
        elif "change" in row:
            interval = f"({row['low']:.2g}, {row['high']:.2g})"
            line[2:] = [f"{row['change']:.3g} {interval}", f"{row['loss']:.3g}"]
        if expects:
            shown = [row.get(key) for key in ("expected change", "gap to expectation")]
            line += [row.get("expectation", ""), *("" if x is None else f"{x:.2g}" for x in shown)]
        lines.append(line)
    return header, lines
