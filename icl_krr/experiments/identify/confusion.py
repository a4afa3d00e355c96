"""The confusion matrix: run `identify` on constructed models, whose solver is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ... import checks
from ...catalogue import KERNELS, SOLVERS, candidate, candidates, find, taken
from ...probes import Identification, identify, layerwise
from ...probes.reading.derivatives import LayerAnswers
from ...tasks import LinearRegression, Task
from ...transformer import Transformer
from ..shared.draws import draw_tasks
from ..shared.rows import Rows
from .constructed import Suited

LOOKED_AT = ("linear", "exponential")
"""Kernels of the constructions and of the candidates."""

SIZES = ("num_features", "num_supports", "num_queries")


@dataclass(frozen=True)
class ConfusionConfig:
    """Every solver on every kernel that it takes, at every condition number and seed.

    A cell is a solver, a kernel, a condition number and a seed. Tasks are linear regression. The
    covariance of the inputs has the condition number of the cell. The ridge is the largest
    eigenvalue of K, averaged over tasks, divided by this condition number. So K + ridge I has
    about the same condition number. There are many more features than steps, so no solver converges
    before the last layer. A solver that accepts none of the kernels has the first that it accepts.
    """

    # If empty, all candidates that take one of the kernels and are not causal. All are fitted.
    solvers: tuple[str, ...] = ()
    kernels: tuple[str, ...] = LOOKED_AT
    conditions: tuple[float, ...] = (1e2, 1e4)  # condition numbers, >= 1
    seeds: int = 3  # number of seeds, >= 1
    seed: int = 0  # first seed
    steps: int = 8  # number of steps of every construction, >= 1
    tasks: int = 24  # number of tasks that fit the candidates, >= 1; as many others score them
    num_features: int = 40  # number of features p, >= 1
    num_supports: int = 64  # number of supports n, >= 1
    num_queries: int = 8  # number of queries q, >= 1

    def __post_init__(self):
        known = {name: SOLVERS[name] for name in candidates()}
        for name in self.kernels:
            checks.choice("kernel", name, LOOKED_AT)
        usual = [n for n, row in known.items() if {*taken(n)} & {*self.kernels} and not row.causal]
        solvers = [find("solver", known, name).name for name in self.solvers or usual]
        object.__setattr__(self, "solvers", tuple(solvers))
        for condition in self.conditions:
            checks.at_least("condition", condition, 1)
        for name in ("seeds", "steps"):
            checks.stored(name, getattr(self, name))
        for name in ("tasks", *SIZES):
            checks.count(name, getattr(self, name))


Cell = tuple[str, str, float, int]
"""Solver, kernel, condition number, seed."""


def cells(config: ConfusionConfig) -> list[Cell]:
    return [
        (solver, kernel, condition, config.seed + seed)
        for condition in config.conditions
        for seed in range(config.seeds)
        for kernel in KERNELS
        for solver in config.solvers
        if kernel in kernels_of(solver, config)
    ]


def kernels_of(solver: str, config: ConfusionConfig) -> tuple[str, ...]:
    accepted = taken(solver)
    return tuple(name for name in config.kernels if name in accepted) or accepted[:1]


class Constructed(NamedTuple):
    """A construction with its true parameters, and the tasks to fit and to score candidates."""

    model: Transformer
    truth: dict[str, float]
    fitted: Task
    scored: Task


def run(
    config: ConfusionConfig, done: frozenset[Cell] = frozenset()
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Yield a row for every cell that is not in `done`."""
    for cell in cells(config):
        if cell in done:
            continue
        made = construct(cell, config)
        answers, kernels = answers_of(cell[0], made.model), (*LOOKED_AT, cell[1])
        found = identify(answers, made.fitted, made.scored, kernels=kernels)
        yield cell, row(cell, made, found)


def answers_of(solver: str, model: Transformer) -> LayerAnswers:
    """The predictions before the first layer and after every layer of a constructed model.

    For a sequential solver, these are the first and the last. Its other layers do not know the
    later supports yet, while a layer that runs the solver, such as DeltaNet's, has seen them all.
    """
    if candidate(solver).sequential:
        return lambda task: layerwise(model, task)[jnp.array([0, -1])]
    return partial(layerwise, model)


def row(cell: Cell, made: Constructed, found: Identification) -> dict[str, Any]:
    """The result of `identify`, and distances of the true solver and of the nearest other one.

    Candidates that contain the true solver as a special case do not count as others.
    """
    solver, kernel, condition, seed = cell
    by_name = {suspect.fit.candidate: suspect for suspect in found.suspects}
    own = by_name[solver]
    others = [by_name[name] for name in by_name if solver not in (name, *candidate(name).contains)]
    other = min(others, key=lambda suspect: suspect.distances["prediction"].mean)
    errors = {
        f"fitted {name} / true": own.fit.values[name] / value for name, value in made.truth.items()
    }
    return {
        "solver": solver,
        "kernel": kernel,
        "condition": condition,
        "seed": seed,
        "status": found.status,
        "remain": " ".join(found.remain),
        "right": found.remain == (solver,),
        "distance": own.distances["prediction"].mean,
        "hat distance": own.distances["hat"].mean,
        "nearest other": other.fit.candidate,
        "its distance": other.distances["prediction"].mean,
        "its hat distance": other.distances["hat"].mean,
        **errors,
    }


def construct(cell: Cell, config: ConfusionConfig) -> Constructed:
    solver, name, condition, seed = cell
    sizes = {name: getattr(config, name) for name in SIZES}
    family = LinearRegression(condition=condition, noise=0.01, **sizes)
    key = jax.random.key(seed)
    fitted, scored = (
        draw_tasks(jax.random.fold_in(key, i), config.tasks, family) for i in range(2)
    )
    suited = Suited(fitted, (scored,), condition, config.steps)
    kernel, row = suited.kernel(name), candidate(solver)
    needs, width = suited.needs(row, kernel), kernel.bandwidth
    truth = {} if width is None else {width: getattr(kernel, width)}
    truth |= {name: needs[name] for name in row.keywords if name in (row.fitted or {})}
    return Constructed(suited.build(solver, kernel), truth, fitted, scored)


def matrix(rows: Rows) -> dict[tuple[str, str], dict[str, int]]:
    """Count, for each solver and kernel, the runs and how often each candidate remained."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for entry in rows:
        counts = found.setdefault(
            (entry["solver"], entry["kernel"]), dict.fromkeys(candidates(), 0)
        )
        for name in entry["remain"].split():
            counts[name] += 1
        counts["runs"] = counts.get("runs", 0) + 1
    return found


def markdown(rows: Rows) -> str:
    """The matrix as a table: rows are constructed solvers, columns are candidates that remained."""
    table = matrix(rows)
    found = {name for r in rows for name in (r["solver"], *r["remain"].split())}
    short = {name: candidate(name).label for name in candidates() if name in found}
    lines = [
        "| constructed, kernel | " + " | ".join(short.values()) + " | told apart by |",
        "| --- |" + " ---: |" * len(short) + " --- |",
    ]
    for (solver, kernel), counts in table.items():
        here = [r for r in rows if (r["solver"], r["kernel"]) == (solver, kernel)]
        shown = [f"{counts[name]}/{counts['runs']}" if counts[name] else "" for name in short]
        apart = min(
            max(r["its distance"] - r["distance"], r["its hat distance"] - r["hat distance"])
            for r in here
        )
        lines.append(f"| {short[solver]}: {solver}, {kernel} | {' | '.join(shown)} | {apart:.2g} |")
    return "\n".join(lines) + "\n"
