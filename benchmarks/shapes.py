"""`python -m benchmarks.shapes`: solvers of many shapes beside plain code, on one core and on two.

Each shape is that of a batch of 256 tasks with one size changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.contests import Contest
from benchmarks.speed_solvers import against_plain, exponential, linear

SIZES = {
    "n": (16, 17, 32, 33, 63, 64, 65, 100, 127, 128, 129, 256),
    "q": (1, 7, 8, 9, 15, 16, 17, 63, 64, 65),
    "p": (2, 3, 4, 7, 8, 9, 15, 16, 17, 63, 64),
    "outputs": (1, 2, 3, 8),
}
"""Sizes of a task: supports, queries, features and outputs."""

SOLVERS = {"CG": "conjugate_gradient", "Chebyshev": "chebyshev"}


def contests(quick: bool, seed: int) -> Iterator[Contest]:
    """16 steps of CG and of the Chebyshev iteration, for tasks of many shapes."""
    for attention, route in (("linear", linear), ("softmax", exponential)):
        for name, solver in SOLVERS.items():
            for axis, values in SIZES.items():
                for value in values[:1] if quick else values:
                    start = {"n": 64, "q": 1, "p": 8 if route is linear else 2, "outputs": 1}
                    size = start | {axis: value}
                    n, p = size["n"], size["p"]
                    kernel, config, ridge = route(n, p)
                    ridge *= n / 64
                    outputs = None if size["outputs"] == 1 else size["outputs"]
                    config = replace(config, num_queries=size["q"], num_outputs=outputs)
                    options = {}
                    if name == "Chebyshev":
                        options["spectrum"] = ridge, ridge + 2 * n + 2 * p
                        if route is exponential:
                            options["spectrum"] = ridge, ridge + 8 * n
                    title = f"{attention} {name}, {axis} = {value}"
                    sized = (kernel, config, ridge), solver, options
                    yield against_plain("shapes", title, *sized, 256, 16, seed)
