"""Power curves: how often `identify` says the right name, against noise on the weights."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from ... import checks
from ...catalogue import candidate
from ...files import Lines
from .disguise import perturbed, rotated
from .known import KERNELS, exact
from .models import LINEAR, PROCESS, QUICK, BenchConfig, answers_of, setting
from .score import Share, outcome
from .verdicts import identify_answers, row_of, verdict_of

SLOT, PROBE = "own read-out", "linear probe"
"""How the layers are read: with the model's own read-out, or with a probe of a rotated stream."""
KINDS = {
    "right": ("right",),
    "close to the right name": ("close", "among"),
    "no name": ("none",),
    "close to a wrong name": ("close to another",),
    "wrong name": ("wrong",),
}
"""Outcomes of a verdict, in groups."""


@dataclass(frozen=True)
class PowerConfig:
    """Cells of the power curves."""

    levels: tuple[float, ...] = (0.0, 1e-3, 1e-2, 1e-1)  # standard deviations of the noise
    seeds: int = 3  # number of seeds of tasks and noise, >= 1
    seed: int = 0  # first seed
    solvers: tuple[str, ...] = ("gradient_descent", "chebyshev", "conjugate_gradient")
    # what `identify` fits, on the kernel of the construction
    candidates: tuple[str, ...] = (
        "gradient_descent",
        "heavy_ball",
        "chebyshev",
        "conjugate_gradient",
    )
    families: tuple[str, ...] = (LINEAR, PROCESS)
    sizes: BenchConfig = field(default_factory=BenchConfig)

    def __post_init__(self):
        checks.count("seeds", self.seeds)
        for name in (*self.solvers, *self.candidates):
            candidate(name)


POWER_QUICK: dict[str, Any] = {
    "levels": (0.0, 1e-2),
    "seeds": 1,
    "solvers": ("gradient_descent",),
    "candidates": ("gradient_descent", "conjugate_gradient"),
    "families": (LINEAR,),
    "sizes": BenchConfig(**QUICK, quick=True),
}
"""Settings of `--quick`."""


def count_cells(config: PowerConfig) -> int:
    return config.seeds * len(config.levels) * len(config.solvers) * len(config.families)


Cell = tuple[str, int, str, float]
"""Family of tasks, seed, solver, level."""


def measure(config: PowerConfig, done: Collection[Cell] = ()) -> Iterator[list[dict[str, Any]]]:
    """Yield two rows for every cell that is not in `done`, one for each way to read the model."""
    for seed in range(config.seed, config.seed + config.seeds):
        for family in config.families:
            one = setting(family, replace(config.sizes, seed=seed))
            key = jax.random.key(seed)
            for i, solver in enumerate(config.solvers):
                model = exact(solver, KERNELS[family][0], one)
                assert model.weights is not None
                for j, level in enumerate(config.levels):
                    if (family, seed, solver, level) in done:
                        continue
                    rows, cell = (
                        [],
                        {"tasks": family, "seed": seed, "solver": solver, "level": level},
                    )
                    noise = jax.random.fold_in(jax.random.fold_in(key, i), j)
                    weights = perturbed(model.weights, noise, level)
                    turned = rotated(weights, jax.random.fold_in(noise, 1))
                    ways = {
                        SLOT: model._replace(weights=weights),
                        PROBE: model._replace(weights=turned, probed=True),
                    }
                    for reading, read in ways.items():
                        found = identify_answers(
                            one.tasks,
                            answers_of(read),
                            candidates=config.candidates,
                            kernels=(KERNELS[family][0],),
                            seed=seed,
                        )
                        said = outcome({"names": model.truth.names}, verdict_of(found))
                        row = {**cell, "reading": reading, **row_of(found), "outcome": said}
                        rows.append(row)
                    yield rows


def curves(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Shares of the outcomes over seeds, for every family, solver, reading and level."""
    cells: dict[tuple, list[str]] = {}
    for row in rows:
        cell = (row["tasks"], row["solver"], row["reading"], row["level"])
        cells.setdefault(cell, []).append(row["outcome"])
    names = ("tasks", "solver", "reading", "level")
    return [
        dict(zip(names, cell, strict=True))
        | {
            kind: Share.of(sum(one in among for one in found), len(found))
            for kind, among in KINDS.items()
        }
        for cell, found in cells.items()
    ]


def power_table(rows: list[dict[str, Any]]) -> Lines:
    """A line for every family, solver, reading and level."""
    lines = [
        [row["tasks"], row["solver"], row["reading"], f"{row['level']:g}"]
        + [str(row[kind]) for kind in KINDS]
        for row in curves(rows)
    ]
    return ["tasks", "solver", "reading", "noise on weights", *KINDS], lines
