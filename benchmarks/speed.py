"""`python -m benchmarks speed`: time and memory, compared with plain code and other libraries."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from benchmarks import records, shapes, speed_networks, speed_solvers
from benchmarks.contests import Disagreement, compete, markdown

SUITES = {
    "forward": speed_solvers.forwards,
    "task": speed_solvers.one_task,
    "gradient": speed_solvers.gradients,
    "context": speed_solvers.linear_context,
    "exact": speed_solvers.exact,
    "training": speed_networks.training,
    "roofline": speed_networks.roofline,
    "scaling": speed_solvers.scaling,
    "shapes": shapes.contests,
}
"""{name: function (quick, seed) that yields contests}."""

Kind = Literal[
    "forward", "task", "gradient", "context", "exact", "training", "roofline", "scaling", "shapes"
]


def main(
    suite: tuple[Kind, ...] = (),
    *,
    quick: bool = False,
    repeats: int = 7,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Check that programs return the same result, and time them in turns.

    Args:
        suite: groups of comparisons to run; all but `shapes`, if none is given.
        quick: run once on the smallest sizes, as a check: the times judge no goal.
        repeats: number of timed runs of each program; short ones run up to 15 times as often.
        seed: seed of every random choice.
        out: folder for bench.json and bench.md.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be >= 1, got {repeats}")
    rows, failures = [], []
    for name in suite or [name for name in SUITES if name != "shapes"]:
        for contest in SUITES[name](quick, seed):
            contest = replace(contest, target=None if quick else contest.target)
            try:
                rows += compete(contest, 1 if quick else repeats)
            except Disagreement as error:
                failures.append(str(error))
    note = "\n--quick runs each program once: these times judge no goal\n" if quick else ""
    print(text := markdown(rows) + note)
    if out is not None:
        options = f"--suite {' '.join(suite)} " if suite else ""
        options += "--quick " if quick else ""
        packages = ("flax", "numpy", "scipy", *(("torch",) if find_spec("torch") else ()))
        facts = records.meta("speed", *packages, seed=seed, matmul_precision="highest")
        facts["command"] = f"python -m benchmarks speed {options}--repeats {repeats} --seed {seed}"
        records.save("bench", {"meta": facts, "rows": [row._asdict() for row in rows]}, text, out)
    if failures:
        raise SystemExit("; ".join(failures))
