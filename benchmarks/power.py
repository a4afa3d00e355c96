"""`python -m benchmarks.power`: how often `identify` is right, against noise on the weights."""

from dataclasses import asdict, replace
from functools import partial
from operator import itemgetter

import jax
from matplotlib.figure import Figure

from benchmarks import records
from icl_krr import experiments
from icl_krr.experiments import solverbench as bench, to_markdown
from icl_krr.plots import BLUE, RED

SLOT, PROBE = "own readout", "linear probe"
"""How the layers are read: with the model's own readout, or with a probe of a rotated stream."""
KINDS = {
    "right": ("right",),
    "close to the right name": ("close", "among"),
    "no name": ("none",),
    "close to a wrong name": ("close to another",),
    "wrong name": ("wrong",),
}
"""Outcomes of a verdict, in groups."""
AXES: dict[str, tuple] = {
    "seed": (0, 1, 2),  # of tasks and noise
    "tasks": (bench.LINEAR, bench.PROCESS),
    "solver": ("gradient_descent", "chebyshev", "conjugate_gradient"),
    "level": (0.0, 1e-3, 1e-2, 1e-1),  # standard deviations of the noise
}
QUICK = {"seed": (0,), "tasks": (bench.LINEAR,), "solver": AXES["solver"][:1], "level": (0, 1e-2)}
CANDIDATES = (*AXES["solver"], "heavy_ball")
"""What `identify` fits, on the kernel of the construction."""
SIZES, QUICK_SIZES = (bench.BenchConfig(), bench.BenchConfig(**bench.QUICK, quick=True))


def measure(cell: experiments.Cell, sizes: bench.BenchConfig) -> list[records.Row]:
    """What `identify` says of a construction with noise, read in both ways."""
    seed, family, solver, level = cell.values()
    one = bench.bench_family(family, replace(sizes, seed=seed))
    kernel, *_ = bench.FAMILY_KERNELS[family]
    model, key = bench.candidate_model(solver, kernel, one), jax.random.key(seed)
    assert model.weights is not None
    for name, value in (("solver", solver), ("level", level)):
        key = jax.random.fold_in(key, AXES[name].index(value))
    weights = bench.perturbed(model.weights, key, level)
    turned = bench.rotated(weights, jax.random.fold_in(key, 1))
    ways = {SLOT: model._replace(weights=weights)}
    ways[PROBE] = model._replace(weights=turned, probed=True)
    rows, kwargs = [], {"candidates": CANDIDATES, "kernels": (kernel,), "seed": seed}
    for reading, way in ways.items():
        result = bench.identify_answers(one.tasks, bench.run_on_tasks(way), **kwargs)
        outcome = bench.outcome({"names": model.truth.names}, bench.verdict_of(result))
        rows.append({**cell, "reading": reading, **bench.verdict_row(result), "outcome": outcome})
    return rows


def curves(rows: list[records.Row]) -> list[records.Row]:
    """Shares of the outcomes over seeds, for every family, solver, reading and level."""
    names = ("tasks", "solver", "reading", "level")
    return [
        dict(zip(names, cell, strict=True))
        | {
            kind: bench.Share.of(sum(row["outcome"] in among for row in cell_rows), len(cell_rows))
            for kind, among in KINDS.items()
        }
        for cell, cell_rows in records.grouped(rows, itemgetter(*names)).items()
    ]


def document(record: records.Row) -> str:
    """A line for every family, solver, reading and level."""
    columns: records.Columns = {
        **{name: name for name in ("tasks", "solver", "reading")},
        "noise on weights": lambda row: f"{row['level']:g}",
        **{kind: kind for kind in KINDS},
    }
    return to_markdown(records.table(curves(record["rows"]), columns))


OUTCOMES = dict(zip(KINDS, (BLUE, "#56B4E9", "#999999", "#E69F00", RED), strict=True))


def power_figure(record: records.Row) -> Figure:
    """Shares of the outcomes against the noise on the weights, a panel for every way to read."""
    curve_rows = curves(record["rows"])
    panels = list(dict.fromkeys((row["tasks"], row["reading"]) for row in curve_rows))
    solvers = list(dict.fromkeys(row["solver"] for row in curve_rows))
    levels = list(dict.fromkeys(row["level"] for row in curve_rows))
    figure = Figure(figsize=(2.6 * len(solvers) + 1.2, 1.7 * len(panels) + 1), layout="constrained")
    axes = figure.subplots(len(panels), len(solvers), squeeze=False, sharex=True, sharey=True)
    cells = records.grouped(curve_rows, itemgetter("tasks", "reading", "solver"))
    for line, (tasks, reading) in zip(axes, panels, strict=True):
        for axis, solver in zip(line, solvers, strict=True):
            cell = cells[tasks, reading, solver]
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
    args = records.options(__doc__, seed="first seed of tasks and noise", folder=True)
    jax.config.update("jax_enable_x64", True)
    axes, sizes = (QUICK, QUICK_SIZES) if args.quick else (AXES, SIZES)
    axes = axes | {"seed": [args.seed + seed for seed in axes["seed"]]}
    study = experiments.Study("power", asdict(sizes), axes, partial(measure, sizes=sizes))
    rows = [row for _, both in records.finished(study, args.folder) for row in both]
    facts = {"dtype": "float64", "seed": args.seed, "axes": axes, "sizes": asdict(sizes)}
    record = {"meta": records.meta("power", candidates=CANDIDATES, **facts), "rows": rows}
    figures = {"solverbench-power": power_figure}
    records.finish("solverbench-power", record, document, args.quick, figures)


if __name__ == "__main__":
    main()
