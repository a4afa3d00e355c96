"""`python -m benchmarks.operations`: operations of one step in the compiled program."""

from collections import Counter
from typing import Any

import jax

import icl_krr as ik
from benchmarks import records
from benchmarks.compiled import called, operations as operations_of, parse
from icl_krr.experiments import to_markdown

LINEAR, EXPONENTIAL, GAUSSIAN = (ik.Linear(), 8), (ik.Exponential(0.5), 2), (ik.Gaussian(0.7), 2)
KNOWN = {"ridge": 0.1, "spectrum": (0.7, 300.0), "num_supports": 64}
CASES: dict[str, tuple[tuple[Any, int], ik.catalogue.SolverEntry]] = {
    f"{attention}, {name}": (
        LINEAR if attention == "linear" else EXPONENTIAL if row.kernels == "any" else GAUSSIAN,
        row,
    )
    for name, row in ik.catalogue.SOLVERS.items()
    for attention in row.blocks
    if row.iterates and not row.causal and not row.one_task
}
"""Kernel and number of features, and row of the catalogue, of every solver of a batch of tasks."""

HEADER = ["construction", "operations", "of these: fusions", "products", "copies"]
TASKS, SUPPORTS = 31, 64
RESULT = records.RESULTS / "operations.json"
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}
"""Instructions that name or place values, and compute nothing."""


def operations(name: str) -> dict[str, int]:
    """Count the operations of one step, by kind, for a chunk of tasks with one query each."""
    (kernel, features), row = CASES[name]
    kwargs = {part: KNOWN[part] for part in row.keywords} | dict(row.options)
    model = ik.constructions.lookup(row)(kernel, num_features=features, steps=16, **kwargs)
    config = ik.tasks.LinearRegression(num_features=features, num_supports=SUPPORTS)
    keys = jax.random.split(jax.random.key(0), TASKS)
    tasks = jax.eval_shape(jax.vmap(ik.tasks.sample, in_axes=(0, None)), keys, config)
    forward = jax.jit(jax.vmap(ik.predict, in_axes=(None, 0)))
    program = parse(forward.lower(model, tasks).compile().as_text() or "")
    (loop,) = {called("body", one) for one in operations_of(program) if one.kind == "while"}
    return dict(Counter(one.kind for one in program[loop].values() if one.kind not in FREE))


def main() -> None:
    records.options(__doc__, quick="")
    counts = {case: operations(case) for case in CASES}
    seed = "no numbers are drawn: the programs are only compiled"
    meta = records.meta("operations", seed=seed, dtype="float32", tasks=TASKS, supports=SUPPORTS)
    lines = [
        [case, str(sum(kinds.values()))]
        + [str(kinds.get(kind, 0)) for kind in ("fusion", "dot", "copy")]
        for case, kinds in counts.items()
    ]
    table = to_markdown((HEADER, lines))
    records.save(RESULT.stem, {"meta": meta, "now": counts}, table)
    print(table, end="")


if __name__ == "__main__":
    main()
