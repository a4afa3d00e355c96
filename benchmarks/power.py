"""`python -m benchmarks.power`: how often `identify` is right, against noise on the weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any

import jax
from matplotlib.figure import Figure

from benchmarks import records
from icl_krr import experiments as lab
from icl_krr.files import to_markdown
from icl_krr.plots.style import BLUE, RED

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
    candidates: tuple[str, ...] = (*solvers, "heavy_ball")
    families: tuple[str, ...] = (lab.LINEAR, lab.PROCESS)
    sizes: lab.BenchConfig = field(default_factory=lab.BenchConfig)


POWER_QUICK: dict[str, Any] = {
    **{"levels": (0.0, 1e-2), "seeds": 1, "families": (lab.LINEAR,)},
    **{"solvers": ("gradient_descent",), "candidates": ("gradient_descent", "conjugate_gradient")},
    "sizes": lab.BenchConfig(**lab.QUICK, quick=True),
}
"""Settings of `--quick`."""


def measure(config: PowerConfig) -> Iterator[list[dict[str, Any]]]:
    """Yield two rows for every cell, one for each way to read the model."""
    for seed, family in product(range(config.seed, config.seed + config.seeds), config.families):
        one = lab.setting(family, replace(config.sizes, seed=seed))
        kernel = lab.KERNELS[family][0]
        for (i, solver), (j, level) in product(enumerate(config.solvers), enumerate(config.levels)):
            model = lab.exact(solver, kernel, one)
            assert model.weights is not None
            noise = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), i), j)
            weights = lab.perturbed(model.weights, noise, level)
            turned = lab.rotated(weights, jax.random.fold_in(noise, 1))
            ways = {
                SLOT: model._replace(weights=weights),
                PROBE: model._replace(weights=turned, probed=True),
            }
            rows = []
            for reading, way in ways.items():
                names, answers = config.candidates, lab.answers_of(way)
                found = lab.identify_answers(
                    one.tasks, answers, candidates=names, kernels=(kernel,), seed=seed
                )
                said = lab.outcome({"names": model.truth.names}, lab.verdict_of(found))
                cell = {"tasks": family, "seed": seed, "solver": solver, "level": level}
                rows.append({**cell, "reading": reading, **lab.row_of(found), "outcome": said})
            yield rows


def curves(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Shares of the outcomes over seeds, for every family, solver, reading and level."""
    names, cells = ("tasks", "solver", "reading", "level"), {}
    for row in rows:
        cells.setdefault(tuple(row[name] for name in names), []).append(row["outcome"])
    return [
        dict(zip(names, cell, strict=True))
        | {
            kind: lab.Share.of(sum(map(among.__contains__, found)), len(found))
            for kind, among in KINDS.items()
        }
        for cell, found in cells.items()
    ]


def document(record: dict[str, Any]) -> str:
    """A line for every family, solver, reading and level."""
    columns = {"tasks": "tasks", "solver": "solver", "reading": "reading"}
    columns |= {"noise on weights": lambda row: f"{row['level']:g}"} | {
        kind: kind for kind in KINDS
    }
    return to_markdown(records.table(curves(record["rows"]), columns))


OUTCOMES = dict(zip(KINDS, (BLUE, "#56B4E9", "#999999", "#E69F00", RED), strict=True))


def power_figure(record: dict[str, Any]) -> Figure:
    """Shares of the outcomes against the noise on the weights, a panel for every way to read."""
    found = curves(record["rows"])
    panels = list(dict.fromkeys((row["tasks"], row["reading"]) for row in found))
    solvers = list(dict.fromkeys(row["solver"] for row in found))
    levels = list(dict.fromkeys(row["level"] for row in found))
    figure = Figure(figsize=(2.6 * len(solvers) + 1.2, 1.7 * len(panels) + 1), layout="constrained")
    axes = figure.subplots(len(panels), len(solvers), squeeze=False, sharex=True, sharey=True)
    for line, (tasks, reading) in zip(axes, panels, strict=True):
        for axis, solver in zip(line, solvers, strict=True):
            cell = [
                row
                for row in found
                if (row["tasks"], row["reading"], row["solver"]) == (tasks, reading, solver)
            ]
            below = [0.0] * len(cell)
            for kind, color in OUTCOMES.items():
                shares = [row[kind].share for row in cell]
                axis.bar(range(len(cell)), shares, 0.85, below, color=color, label=kind)
                below = [low + share for low, share in zip(below, shares, strict=True)]
            axis.set_title(f"{solver}\n{tasks} tasks, {reading}", fontsize=7)
            axis.set_xticks(range(len(levels)), [f"{level:g}" for level in levels], fontsize=6)
            axis.tick_params(axis="y", labelsize=6)
    for axis in axes[-1]:
        axis.set_xlabel("relative noise on every weight", fontsize=7)
    figure.supylabel("share of seeds", fontsize=8)
    title = f"identify on constructions with noise, seeds from {record['meta']['seed']}, float64"
    figure.suptitle(title, fontsize=9)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(KINDS), fontsize=7)
    return figure


def main() -> None:
    asked = records.options(__doc__, seed="first seed of tasks and noise")
    jax.config.update("jax_enable_x64", True)
    config, rows = PowerConfig(seed=asked.seed, **(POWER_QUICK if asked.quick else {})), []
    for found in measure(config):
        rows += found
        print(f"{len(rows) // 2} models", flush=True)
    facts = records.meta("power", dtype="float64", seed=asked.seed, config=asdict(config))
    record, figures = {"meta": facts, "rows": rows}, {"solverbench-power": power_figure}
    records.finish("solverbench-power", record, document, asked.quick, figures)


if __name__ == "__main__":
    main()
