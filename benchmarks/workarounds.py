"""`python -m benchmarks.workarounds`: what each workaround of XLA on a CPU gains, shape by shape.

A workaround stays if it gains 10 % at the median of the shapes whose program it changes. The exit
status is 1 if one gains nothing: a newer XLA may make it superfluous. Times are CPU times of this
process.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp

import icl_krr as ik
from benchmarks import records
from benchmarks.speed_solvers import Route, draw, exponential, linear
from icl_krr._core.numerics import matmul
from icl_krr.experiments import to_markdown
from icl_krr.transformer import _attention, _full_softmax, _heads

PLAIN: dict[str, tuple[Any, str, Any]] = {
    "softmax of few values: column by column": (_full_softmax, "matmul_by_columns", matmul),
    "softmax: times the inverse": (_full_softmax, "quotient", lambda a, b, inverse: a / b),
    "sums as products with ones": (_attention, "sum_of_rows", partial(jnp.sum, keepdims=True)),
    "few values: head by head": (_heads, "NARROW", 0),
}
"""{workaround: (module, name, what replaces it)}."""

SHAPES: dict[str, tuple[Route, str, int | None]] = {
    "linear CG": (linear(), "textbook", None),
    "linear CG, n = 129": (linear(129), "textbook", None),
    "linear fused CG": (linear(), "fused", None),
    "softmax CG": (exponential(), "textbook", None),
    "softmax CG, n = 129": (exponential(129), "textbook", None),
    "softmax CG, n = 17": (exponential(17), "textbook", None),
    "softmax CG, p = 3, 3 outputs": (exponential(p=3), "textbook", 3),
    "softmax pipelined CG, p = 7": (exponential(p=7), "pipelined", None),
}
"""{name: (kernel, tasks and ridge; form of CG; outputs)}."""

TEXT = """{processor}, {versions}; `{command}`. The time of the plain program over ours, for 256
tasks and 16 steps, for the shapes whose program the workaround changes.

"""


def program(shape: tuple[Route, str, int | None]) -> tuple[str, Callable[[], Any]]:
    """The text of the program of a batch of 256 tasks before XLA compiles it, and the program."""
    (kernel, config, ridge), form, outputs = shape
    tasks = draw(dataclasses.replace(config, num_outputs=outputs), 256, seed=0)
    sizes: dict[str, Any] = {"num_features": config.num_features, "num_outputs": outputs or 1}
    build = ik.constructions.conjugate_gradient
    model = build(kernel, ridge=ridge, steps=16, form=form, **sizes)
    jax.clear_caches()  # of what was traced with another operation
    lowered = jax.jit(ik.predict_batch).lower(model, tasks)
    return lowered.as_text(), partial(lowered.compile(), model, tasks)


def gains(shape: str, turns: int) -> dict[str, float]:
    """The time of each plain program that differs from ours, over the time of ours."""
    text, run = program(SHAPES[shape])
    programs = {"ours": run}
    for workaround, replacement in PLAIN.items():
        with patch.object(*replacement):
            plain, run = program(SHAPES[shape])
        if plain != text:
            programs[workaround] = run
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(turns):
        for name, run in programs.items():
            start = time.process_time()
            jax.block_until_ready(run())
            times[name].append(time.process_time() - start)
    middle = {name: statistics.median(values) for name, values in times.items()}
    return {name: middle[name] / middle["ours"] for name in programs if name != "ours"}


def document(record: dict[str, Any]) -> str:
    def each(row: dict[str, Any]) -> str:
        return ", ".join(f"{gain:.2f} ({shape})" for shape, gain in row["by shape"].items())

    columns = {"workaround": "workaround", "median": records.digits("median"), "by shape": each}
    lines = to_markdown(records.table(record["rows"], columns))
    return records.caption(TEXT, record["meta"]) + lines


def main() -> None:
    args = records.options(__doc__, quick="few turns; writes no files")
    found: dict[str, dict[str, float]] = {name: {} for name in PLAIN}
    for shape in SHAPES:
        print(shape, flush=True)
        for workaround, gain in gains(shape, 5 if args.quick else 15).items():
            found[workaround][shape] = gain
    rows = [
        {"workaround": name, "median": statistics.median(of.values()), "by shape": of}
        for name, of in found.items()
    ]
    record = {"meta": records.meta("workarounds", seed=0), "rows": rows}
    records.finish("workarounds", record, document, args.quick)
    if superfluous := [row["workaround"] for row in rows if row["median"] < 1.02]:
        raise SystemExit(f"superfluous: {'; '.join(superfluous)}")


if __name__ == "__main__":
    main()
