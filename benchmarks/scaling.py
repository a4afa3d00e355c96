"""`python -m benchmarks.scaling`: excess errors of trained models beside those of tuned solvers.

The errors of the models are those of `icl_krr/runs/scaling.csv`; this script trains nothing.
"""

from typing import Any

import jax.numpy as jnp
from matplotlib.figure import Figure

from benchmarks import records
from benchmarks.records import Row as Record
from icl_krr import experiments as lab
from icl_krr.catalogue import SOLVERS
from icl_krr.experiments import TASK_SETTINGS, along_axis, axis_value, format_number, task_settings
from icl_krr.plots import curves_figure

SEEDS = (0, 1, 2)
SIZES = {"steps": 64, "tasks": 512, "points": 128, "queries": 8}
QUICK = {"steps": 2, "tasks": 4, "points": 2, "queries": 2}
MARKS = {"": True, ", still falling": False}
"""What the figure says of models that converged, and of those that did not."""
LEAST = 1e-3
"""The least excess that the figure shows."""


def measured(models: list[Record], sizes: Record, seeds: tuple[int, ...]) -> Record:
    """The curves of every family of tasks, the models beside them, and slopes."""
    options = dict(sizes)
    queries, families = options.pop("queries"), []
    for key in dict.fromkeys(map(task_settings, models)):
        print(f"solvers on the tasks {dict(zip(TASK_SETTINGS, key, strict=True))}", flush=True)
        solved = lab.curves(lab.family_of(key, queries), seeds=seeds, **options)
        parts = {name: (solved.excess(name), *solved.interval(name)) for name in solved.squares}
        names = ("excess", "low", "high")
        curve_points = {
            name: {part: values.tolist() for part, values in zip(names, three, strict=True)}
            for name, three in parts.items()
        }
        here = [row for row in models if task_settings(row) == key]
        facts = {name: here[0][name] for name in (*TASK_SETTINGS, "dimension")}
        families.append(facts | {"curves": curve_points})
        for row in here:
            row["equivalents"] = lab.equivalents(solved, row)
    return {"families": families, "models": models, "slopes": slopes(models)}


def slopes(models: list[Record]) -> list[Record]:
    """A slope along each axis, of all models of an architecture and of those that converged."""
    fits = []
    for group, rows in lab.by_architecture(models).items():
        converged = [row for row in rows if row["converged"]]
        for axis in lab.AXIS_SETTINGS:
            for which, here in (("all", rows), ("converged", converged)):
                here = [row for row in along_axis(here, axis) if row["excess"] > 0]
                values = [axis_value(axis, row) for row in here]
                fit = lab.fit_slope(values, [row["excess"] for row in here])
                counts = {"count": len(here), "values": len({*values})}
                facts = {"group": group, "axis": axis, "models": which, **counts}
                fits.append(facts | {"fit": fit and fit._asdict()})
    return fits


def document(record: Record) -> str:
    """The tables: models with equivalent steps, slopes, and curves."""
    solvers = [*record["families"][0]["curves"]]
    sizes, models = ("num_features", "num_supports", "depth", "width", "seed"), []
    for row in sorted(record["models"], key=lambda row: (row["group"], task_settings(row))):
        cells = [str(row[name]) for name in sizes] + [format_number(row["dimension"])]
        cells += [f"{row['updates']}{'' if row['converged'] else ', still falling'}"]
        cells += [f"{row['excess']:.3g} ± {row['sampling']:.1g}"]
        cells += [format_number(row["nadaraya_watson"] / row["exact"] - 1)]
        cells += [lab.format_steps(row["equivalents"][name]) for name in solvers]
        models.append([row["model"], row["group"].removeprefix("trained "), *cells])
    header = ["model", "architecture", "p", "N", "depth", "width", "seed", "effective dimension"]
    header += ["updates", "excess", "excess of one head"]
    for name in solvers:
        blocks = SOLVERS[name].blocks.get("softmax")  # of a step
        cost = f"{blocks} block{'s' if blocks > 1 else ''} a step" if blocks else "by features only"
        header.append(f"{name} ({cost})")
    lines = []
    for row in record["slopes"]:
        fit = row["fit"]
        said = f"too few points ({row['values']} of {lab.FEWEST_VALUES} values)"
        if fit:
            said = f"{fit['slope']:.2f} ({fit['low']:.2f} to {fit['high']:.2f})"
        lines.append([row["group"], row["axis"], row["models"], str(row["count"]), said])
    slopes_header = ["group", "log excess against log", "models", "number of models", "slope"]
    times = [t for t in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64) if t <= record["meta"]["steps"]]
    steps = [
        [
            *(str(family[name]) for name in TASK_SETTINGS),
            format_number(family["dimension"]),
            name,
            *(format_number(one["excess"][t]) if t < len(one["excess"]) else "-" for t in times),
        ]
        for family in record["families"]
        for name, one in family["curves"].items()
    ]
    steps_header = ["lengthscale", "noise", "p", "N", "effective dimension", "solver"]
    steps_header += [f"t = {t}" for t in times]
    tables = ((header, models), (slopes_header, lines), (steps_header, steps))
    return "\n".join(map(lab.to_markdown, tables))


def figure(record: Record) -> Figure:
    """Excess against steps or depth, and against width, supports and effective dimension.

    An axis on which all models have one value has no panel.
    """
    models, about = record["models"], record["meta"]
    solvers = [*record["families"][0]["curves"]]
    groups, titles = lab.by_architecture(models), {name: name.replace("_", " ") for name in solvers}
    main = max(groups.values(), key=len)
    (key,) = {task_settings(row) for row in along_axis(main, "depth")}
    depth = along_axis(main, "width")[0]["depth"]
    panels: dict[str, dict[str, Any]] = {}
    for axis in lab.AXIS_SETTINGS:
        grid = {axis_value(axis, row) for rows in groups.values() for row in along_axis(rows, axis)}
        if len(grid) < 2:
            continue
        curved = {}
        if axis == "depth":
            (family,) = [one for one in record["families"] if task_settings(one) == key]
            for name, one in family["curves"].items():
                parts = [one[part][1:] for part in ("excess", "low", "high")]
                last = next((t for t, e in enumerate(parts[0], 1) if e < LEAST), len(parts[0]))
                curved[titles[name]] = ([*range(1, last + 1)], *(part[:last] for part in parts))
        elif axis != "width":
            here = {task_settings(row) for row in along_axis(main, axis)}
            chosen = [one for one in record["families"] if task_settings(one) in here]
            chosen.sort(key=lambda one: axis_value(axis, one))
            for name in solvers:
                if depth < len(chosen[0]["curves"][name]["excess"]):
                    height = [one["curves"][name]["excess"][depth] for one in chosen]
                    curved[titles[name]] = ([axis_value(axis, one) for one in chosen], height)
        for group, rows in groups.items():
            for word, done in MARKS.items():
                marked = [row for row in along_axis(rows, axis) if row["converged"] == done]
                marked = [row for row in marked if row["excess"] > LEAST]
                if marked:
                    places = [axis_value(axis, row) for row in marked]
                    curved[group + word] = (places, [row["excess"] for row in marked])
        words = {"depth": "steps of a solver, or blocks of a model"}.get(axis, axis)
        panels[words] = curved
    dots = [group + word for word in MARKS for group in groups]
    dots = [name for name in dots if any(name in curved for curved in panels.values())]
    first, last = about["seeds"][0], about["seeds"][-1]
    facts = ", ".join(f"{name} {value:g}" for name, value in zip(TASK_SETTINGS, key, strict=True))
    title = (
        f"First panel: {facts}. Supports and effective dimension: solvers after {depth} steps. "
        f"Solvers: seeds {first} to {last}, {about['dtype']}"
    )
    words = "excess error over exact KRR"
    return curves_figure(panels, words, title, log="xy", dots=dots, limits=(LEAST, None))


def main() -> None:
    args = records.options(__doc__)
    sizes, seeds, models = SIZES, SEEDS, lab.read_models()
    if args.quick:
        sizes, seeds = QUICK, SEEDS[:1]
        models = [row for row in models if task_settings(row) == task_settings(models[0])]
    about = {"seeds": seeds, "dtype": str(jnp.result_type(float)), **sizes}
    record = {"meta": records.meta("scaling", "scipy") | about} | measured(models, sizes, seeds)
    records.finish("scaling", record, document, args.quick, {"scaling-laws": figure})


if __name__ == "__main__":
    main()
