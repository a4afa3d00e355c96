"""`python -m benchmarks.shapes`: solvers of many shapes beside plain code, on one core and on two.

Each shape is that of a batch of 256 tasks with one size changed.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import records
from benchmarks.contests import Contest
from benchmarks.speed_solvers import against_plain, exponential, linear
from icl_krr.experiments import to_markdown

SIZES = {
    "n": (16, 17, 64, 65, 100, 128, 129, 256),
    "q": (1, 7, 8, 9, 16, 17, 64),
    "p": (2, 3, 8, 9, 16, 17, 64),
    "outputs": (1, 2, 3),
}
"""Sizes of a task: supports, queries, features and outputs."""

SOLVERS = {"CG": "conjugate_gradient", "Chebyshev": "chebyshev"}

SETTINGS = [*product((1, 2), ("AVX512", "AVX2"))]
"""The number of cores, and the instructions that XLA may use."""

ABOUT = """{processor}, {versions}; `{command}`.

256 tasks in float32, 16 steps; n = 64, q = 1, one output, and p = 8 for linear attention, 2 for
softmax attention, but for the size of the row. A ratio is our median time over that of the best
plain program (ten lines of jnp: vmap, or chunks). A jump is the largest ratio of our times at two
sizes that differ by one, from 7 on.

"""


def contests(quick: bool, seed: int) -> Iterator[Contest]:
    """16 steps of CG and of the Chebyshev iteration, for tasks of many shapes."""
    for route, name, axis in product((linear, exponential), SOLVERS, SIZES):
        for value in SIZES[axis][: 1 if quick else None]:
            start = {"n": 64, "q": 1, "p": 8 if route is linear else 2, "outputs": 1}
            size = start | {axis: value}
            n, p = size["n"], size["p"]
            kernel, config, ridge = route(n, p)
            outputs = None if size["outputs"] == 1 else size["outputs"]
            config = replace(config, num_queries=size["q"], num_outputs=outputs)
            ridge *= n / 64
            largest = 8 * n if route is exponential else 2 * (n + p)  # eigenvalue of any task
            options = {"spectrum": (ridge, ridge + largest)} if name == "Chebyshev" else {}
            title = f"{'linear' if route is linear else 'softmax'} {name}, {axis} = {value}"
            sized = (kernel, config, ridge), SOLVERS[name], options
            yield against_plain("shapes", title, *sized, 256, 16, seed)


def measured(setting: tuple[int, str], options: list[str]) -> dict[str, Any]:
    """The record of `python -m benchmarks speed --suite shapes` in a process with this setting."""
    cores, instructions = setting
    allowed = [*os.sched_getaffinity(0)][:cores]
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks", "speed", "--suite", "shapes", *options]
        subprocess.run(
            [*command, "--out", folder],
            env={**os.environ, "XLA_FLAGS": f"--xla_cpu_max_isa={instructions}"},
            preexec_fn=lambda: os.sched_setaffinity(0, allowed),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return json.loads((Path(folder) / "bench.json").read_text())


def rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Our time for each shape, and its ratio to that of the best competitor."""
    found = []
    for row in record["rows"]:
        if row["program"] == "icl_krr":
            solver, axis, value = re.split(", | = ", row["contest"])
            times = {"ms": row["median_ms"], "ratio": row["ratio"]}
            found.append({"solver": solver, "axis": axis, "size": int(value), **times})
    return found


def jump(shapes: list[dict[str, Any]]) -> float:
    """The largest ratio of our times at two sizes that differ by one."""
    near = [
        (a["ms"], b["ms"])
        for a, b in pairwise(shapes)
        if a["axis"] == b["axis"] and 7 <= a["size"] == b["size"] - 1
    ]
    return max((max(pair) / min(pair) for pair in near), default=1.0)


def document(record: dict[str, Any]) -> str:
    """A line for each solver and setting, then a line for each shape."""
    summary, lines = [], {}
    for setting in record["settings"]:
        for solver, shapes in records.grouped(setting["rows"], lambda row: row["solver"]).items():
            ratios = {f"{row['axis']} = {row['size']}": row["ratio"] for row in shapes}
            worst = max(ratios, key=lambda at: ratios[at])
            middle = f"{statistics.median(ratios.values()):.2f}"
            cells = [middle, f"{ratios[worst]:.2f} ({worst})", f"{jump(shapes):.2f}"]
            summary.append([solver, setting["name"], *cells])
            for at, ratio in ratios.items():
                lines.setdefault(f"{solver}, {at}", []).append(f"{ratio:.2f}")
    header = ["solver", "instructions", "median ratio", "worst ratio", "largest jump"]
    names = [setting["name"] for setting in record["settings"]]
    every = to_markdown((["shape", *names], [[at, *cells] for at, cells in lines.items()]))
    about = records.caption(ABOUT, record["meta"])
    return f"{about}{to_markdown((header, sorted(summary)))}\n{every}"


def main() -> None:
    args = records.options(
        __doc__, quick="the smallest shapes, once; writes no files", seed="tasks"
    )
    options = ["--seed", str(args.seed), *(["--quick"] if args.quick else ["--repeats", "5"])]
    settings = []
    for cores, instructions in SETTINGS:
        name = f"{instructions}, cores: {cores}"
        print(name, flush=True)
        settings.append({"name": name, "rows": rows(measured((cores, instructions), options))})
    record = {"meta": records.meta("shapes", seed=args.seed), "settings": settings}
    records.finish("shapes", record, document, args.quick)


if __name__ == "__main__":
    main()
