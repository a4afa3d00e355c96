"""Causal importance of every part of a model, with what its algorithm lets expect beside it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..probes import ablate, sites
from ..probes.candidates import make
from ..probes.distances import Distance, Gaps, distance, squared
from ..probes.sites import KINDS
from ..residual import map_tasks
from ..tasks import GaussianProcess, LinearRegression, Task
from ..theory import spectral_bounds
from ..training import reference
from ..transformer import Transformer, predict_batch
from .claim import Rows, draw_tasks
from .identification import widen
from .omissions import OMISSIONS
from .registry import SOLVERS, build
from .runs import Run, load


@dataclass(frozen=True)
class AblateConfig:
    """What is taken out of which model, on how many tasks.

    `model` is a run, or a solver whose construction of `steps` steps on the `kernel` it is.

    Raises ValueError for unknown names and numbers out of range.
    """

    model: str = "conjugate-gradient"
    kernel: str | None = None
    steps: int = 12
    kinds: tuple[str, ...] = ("head", "slot")
    each_step: bool | None = None
    replace: str = "zero"
    tasks: int = 64
    num_queries: int = 8
    seed: int = 0

    def __post_init__(self):
        for name, least in (("steps", 1), ("tasks", 2), ("num_queries", 1)):
            checks.count(name, getattr(self, name), least)
        for kind in self.kinds:
            checks.choice("kind", kind, KINDS)
        checks.choice("replace", self.replace, ("zero", "mean"))
        if self.model in SOLVERS and self.kernel is not None:
            checks.choice(f"kernel of {self.model}", self.kernel, SOLVERS[self.model].kernels)


class Subject(NamedTuple):
    """A model, tasks of its family, and what it predicts without a part, if that is known."""

    model: Transformer
    tasks: Task
    known: dict[str, float]
    words: dict[str, str] = {}  # noqa: RUF012
    expected: dict[str, jax.Array] = {}  # noqa: RUF012


class Ablation(NamedTuple):
    """A row for every site, and the `Distance` of the changed from the intact predictions.

    Its `by_layer` and `layer_intervals` are those of the sites.
    """

    rows: Rows
    change: Distance
    known: dict[str, float]


def examine(config: AblateConfig) -> Ablation:
    """Take every site out by itself: how far do the predictions move, and how far should they?"""
    subject = construct(config) if config.model in SOLVERS else trained(config)
    model, tasks = subject.model, subject.tasks
    alone = config.each_step
    alone = config.model not in SOLVERS if alone is None else alone
    found = sites(model, config.kinds, each_step=alone)
    intact = predict_batch(model, tasks)
    changed = ablate(model, tasks, found, replace=config.replace)
    change = distances(intact, changed, config.seed)
    size = jnp.sqrt(jnp.sum(intact**2))
    rows = []
    for site, now, own, between in zip(
        found, changed, change.by_layer, change.layer_intervals, strict=True
    ):
        finite = bool(jnp.all(jnp.isfinite(now)))
        loss = float(jnp.mean((now - tasks.y_query) ** 2))
        row: dict[str, Any] = {"site": site.name, "kind": site.kind, "slot": site.slot}
        row |= {"change": own, "low": between[0], "high": between[1]} if finite else {}
        row |= {"loss": loss} if finite else {}
        missing = f"{site.kind} {site.slot}" if not alone and config.replace == "zero" else ""
        row["expectation"] = subject.words.get(missing, "")
        other = subject.expected.get(missing)
        if other is not None and bool(jnp.all(jnp.isfinite(other))) and finite:
            row["expected change"] = float(jnp.sqrt(jnp.sum((other - intact) ** 2)) / size)
            row["gap to expectation"] = float(jnp.sqrt(jnp.sum((now - other) ** 2)) / size)
        elif other is not None:
            row["gap to expectation"] = 0.0 if bool(jnp.all(~jnp.isfinite(other))) else np.inf
        rows.append(row)
    loss = float(jnp.mean((intact - tasks.y_query) ** 2))
    return Ablation(rows, change, {"intact": loss, **subject.known})


def distances(intact: jax.Array, changed: jax.Array, seed: int) -> Distance:
    """Relative distance of every changed prediction [S, b, q] from the intact one [b, q]."""
    squares = jnp.moveaxis(jnp.sum((changed - intact) ** 2, axis=-1), 0, 1)[:, :, None]
    sizes = np.repeat(squared(intact, 1)[:, None], len(changed), axis=1)
    count = len(intact)
    resample = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=1000)
    gaps = Gaps(np.asarray(squares, float), sizes)
    return distance(gaps, (0,) * len(changed), np.zeros(count, int), resample)


def trained(config: AblateConfig) -> Subject:
    run: Run = load(config.model)
    family: Any = dataclasses.replace(run.family, num_queries=config.num_queries)  # pyright: ignore
    key = jax.random.key(config.seed)
    tasks = draw_tasks(key, config.tasks, family)
    known = reference(family, jax.random.fold_in(key, 1)).losses(tasks)
    return Subject(widen(run.model, tasks), tasks, known)


def construct(config: AblateConfig) -> Subject:
    solver, omission = config.model, OMISSIONS.get(config.model)
    kernel_name = config.kernel or (omission.kernel if omission else SOLVERS[solver].kernels[0])
    if kernel_name == "linear":
        family: Any = LinearRegression(
            num_features=8, num_supports=16, num_queries=config.num_queries, noise=0.1
        )
    else:
        kernel = make(kernel_name, {"temperature": 0.5, "lengthscale": 0.7})
        # the exponential kernel is e^2 where the others are 1
        inputs, noise = ("sphere", 0.74) if kernel_name == "exponential" else ("normal", 0.1)
        family = GaussianProcess(
            kernel, noise=noise, num_queries=config.num_queries, inputs=inputs
        )
    key = jax.random.key(config.seed)
    tasks = draw_tasks(key, config.tasks, family)
    kernel, ridge = family.optimal()
    bounds = jax.jit(lambda t: map_tasks(lambda t: spectral_bounds(kernel, t, ridge=ridge), t))
    hardest = int(jnp.argmax(bounds(tasks)[1]))
    task = jax.tree.map(lambda field: field[hardest], tasks)
    model, _ = build(solver, kernel, task, ridge, config.steps)
    known = reference(family, jax.random.fold_in(key, 1)).losses(tasks)
    if omission is None or kernel_name != omission.kernel:
        return Subject(model, tasks, known)
    needs = SOLVERS[solver].needs(kernel, task, ridge) | {"steps": config.steps}
    expected = omission.predictions(kernel, tasks, **needs)
    return Subject(model, tasks, known, omission.words, expected)
