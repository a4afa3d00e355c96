"""`python -m benchmarks.drawings`: draw the README's figures from the records in `results`."""

import re
from functools import partial
from importlib import resources
from textwrap import fill
from typing import Any

import jax
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch

from benchmarks import finetune, records
from benchmarks.contests import Row
from icl_krr.catalogue import KERNELS
from icl_krr.experiments import ExplorerConfig, claims, explore, from_csv, replace
from icl_krr.plots import curves_figure
from icl_krr.report import explorer_section

FIGURES = records.RESULTS.parent / "figures"

USE, MODEL, TRUTH, DATA = "#cfe5f4", "#fbe6bd", "#c9ebdf", "#eeeeee"
ROOMS = {  # a module's place (column, row, number of columns), its purpose and its colour
    "solvers": (1, 0, 1, "reference algorithms,\nwithout a transformer", TRUTH),
    "audit": (0, 0, 1, "rounding of any function", USE),
    "theory": (2, 0, 1, "bounds, identities", TRUTH),
    "catalogue": (3, 0, 1, "names of solvers, kernels,\nsweeps and tasks", DATA),
    "kernels": (0, 1, 1, "{kernel_names}", DATA),
    "sketches": (1, 1, 1, "width: sketches,\nfeatures", DATA),
    "constructions": (2, 1, 1, "solvers as weights", MODEL),
    "training": (3, 1, 1, "trained weights", MODEL),
    "tasks": (0, 2, 1, "samplers, tables", DATA),
    "residual": (1, 2, 1, "slots, tokens, reads", MODEL),
    "transformer": (2, 2, 1, "forward pass,\ncapture, hooks", MODEL),
    "probes": (3, 2, 1, "hat matrices, filters,\npatching, identify", USE),
    "tabular": (0, 3, 1, "tables: fit, predict,\nscikit-learn", USE),
    "uncertainty": (1, 3, 1, "predictive distributions", USE),
    "posterior": (2, 3, 1, "mean and variance", USE),
    "export": (3, 3, 1, "safetensors files,\nT5, GPT-2", USE),
    "experiments": (0, 4, 2, "{claims} claims, sweeps, identification, runs", USE),
    "plots": (2, 4, 2, "figures", USE),
    "cli": (0, 5, 2, "icl-krr demo, predict, fit, verify, ...", USE),
    "report": (2, 5, 2, "an HTML page with sliders", USE),
}
ARROWS = (
    ("kernels", "sketches", "k(x, z)"),
    ("kernels", "solvers", ""),
    ("solvers", "constructions", "steps"),
    ("tasks", "residual", "x, y"),
    ("residual", "transformer", "tokens"),
    ("constructions", "transformer", "weights"),
    ("training", "transformer", ""),
    ("transformer", "probes", "streams"),
    ("transformer", "posterior", "predictions"),
    ("transformer", "export", ""),
)


AREAS = {"data and names": DATA, "forward pass": MODEL, "reference": TRUTH, "use and analysis": USE}


def design_rooms() -> dict[str, tuple[int, int, int, str, str]]:
    """`ROOMS` with the names and numbers of the code in their words."""
    facts = {"kernel_names": fill(", ".join(KERNELS), 32), "claims": len(claims())}
    return {
        name: (column, row, columns, words.format(**facts), color)
        for name, (column, row, columns, words, color) in ROOMS.items()
    }


def design() -> Figure:
    """The modules of the package, and the data that they pass on; numbers are those of the code."""
    figure = Figure(figsize=(9.6, 6.5))
    axis = figure.add_axes((0.01, 0.06, 0.98, 0.93))
    width, height, across, up = 2.0, 0.6, 2.6, 1.0
    places: dict[str, tuple[float, float, float]] = {}
    for name, (column, row, columns, words, color) in design_rooms().items():
        x, y, wide = column * across, row * up, width + (columns - 1) * across
        box = FancyBboxPatch((x, y), wide, height, "round,pad=0.06", fc=color, ec="#444444")
        axis.add_patch(box)
        axis.text(x + wide / 2, y + 0.44, name, ha="center", va="center", weight="bold", fontsize=9)
        axis.text(x + wide / 2, y + 0.16, words, ha="center", va="center", fontsize=6.5)
        places[name] = x, y, wide
    for start, end, words in ARROWS:
        (x, y, wide), (u, v, _) = places[start], places[end]
        if y == v:  # a horizontal arrow
            tail, head = (x + wide + 0.06, y + height / 2), (u - 0.06, v + height / 2)
            axis.text((tail[0] + head[0]) / 2, tail[1] + 0.05, words, ha="center", fontsize=6.5)
        else:  # a vertical arrow, towards the nearer corner
            down = v < y
            aside = 0.0 if u == x else 0.4 if u > x else -0.4
            tail = x + wide / 2 + 2 * aside, y + (-0.06 if down else height + 0.06)
            head = u + width / 2 - 2 * aside, v + (height + 0.06 if down else -0.06)
            axis.text(head[0] + 0.08, (tail[1] + head[1]) / 2, words, va="center", fontsize=6.5)
        axis.annotate("", head, tail, arrowprops={"arrowstyle": "-|>", "color": "#222222"})
    axis.set_xlim(-0.15, 3 * across + width + 0.15)
    axis.set_ylim(-0.15, 5 * up + height + 0.15)
    axis.axis("off")
    patches = [Patch(fc=color, ec="#444444", label=name) for name, color in AREAS.items()]
    figure.legend(handles=patches, loc="lower center", ncols=len(patches), fontsize=7)
    return figure


def scaling_figure(rows: list[Row], seed: int, measure: str, label: str) -> Figure:
    """One measure of programs with linear and softmax attention, a panel for each size."""
    panels: dict[str, dict[str, Any]] = {}
    shown = [one for one in rows if one.suite == "scaling" and getattr(one, measure) is not None]
    for size, column in records.grouped(shown, axis_of).items():
        fixed = ", ".join(f"{k} = {v}" for k, v in column[0].size.items() if k != size)
        curves = panels[f"{size} ({fixed})"] = {}
        for name, here in records.grouped(column, program_of).items():
            at = records.grouped(here, lambda row, size=size: row.size[size])
            least = [min(getattr(row, measure) for row in each) for each in at.values()]
            curves[name] = [*at], least
    title = f"conjugate gradient, {rows[0].dtype}, seed {seed}"
    return curves_figure(panels, label, title, log="xy")


def program_of(row: Row) -> str:
    program = "forward pass" if row.program == "icl_krr" else "solver without transformer"
    return f"{row.contest.partition(',')[0]} attention, {program}"


def axis_of(row: Row) -> str:
    """The name of the size in the contest's title: the title `linear, n = 64` gives n."""
    return row.contest.split(", ")[1].split(" = ")[0]


def explorer() -> str:
    """The charts of the page's explorer where its sliders start, with the colours of paper."""
    with jax.enable_x64(True):
        board: Any = explorer_section(explore(ExplorerConfig())).parts[0]
    parts = []
    for i, chart in enumerate(board.charts):
        x, y = ((0, 490, 800), (0, 400, 800))[i // 3][i % 3], 300 * (i // 3)
        parts.append(f'<g transform="translate({x},{y})"><text y="14">{chart.title}</text>')
        for j, (name, line) in enumerate(chart.lines.items()):
            place = f'transform="translate({60 * chart.span * (j % 2)},{30 + 14 * (j // 2)})"'
            style = f'stroke-width="{line.width}" stroke-dasharray="{line.dashes}"'
            parts.append(f'<g {place}><path d="M0-4h22" stroke="{line.color}" {style}/>')
            parts.append(f'<text x="26">{name}</text></g>')
        drawn = re.sub(r'<path [^>]*[^-]opacity="0"/>', "", board.svg(chart, f"chart-{i}"))
        drawn = re.sub(r' (aria-[a-z]+|role|class)="[^"]*"', "", drawn)  # it needs no script
        parts.append(drawn.replace("<svg ", f'<svg y="{75 if chart.lines else 20}" ', 1) + "</g>")
    css = (resources.files("icl_krr.report") / "page" / "page.css").read_text()
    colors = dict(reversed(re.findall(r"--(\w+): (#\w+)", css)))  # the light theme comes first
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="-5 -5 1215 520" font-size="11" '
    text = head + 'font-family="sans-serif">' + "".join(parts) + "</svg>\n"
    return re.sub(r"var\(--(\w+)\)", lambda match: colors[match[1]], text)


def main() -> None:
    records.options(__doc__, quick="")
    path = from_csv(records.RESULTS / "learning-path.csv")
    comparison = finetune.Comparison(records.read("learning")["losses"], path, [])
    timed = records.read("bench")
    scaling = partial(scaling_figure, [Row(**row) for row in timed["rows"]], timed["meta"]["seed"])
    replace(FIGURES / "explorer.svg", explorer().encode())
    drawn = {
        "design": design(),
        **finetune.figures(comparison),
        "scaling": scaling("median_ms", "median time (ms)"),
        "scaling-memory": scaling("scratch_mb", "scratch memory of the forward pass (MB)"),
    }
    for name, figure in drawn.items():
        records.draw(name, figure)


if __name__ == "__main__":
    main()
