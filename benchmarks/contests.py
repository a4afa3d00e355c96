"""Programs with the same result: check the results, time them in turns, and tell who is best."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import jax
import numpy as np

from icl_krr.experiments import to_markdown

LEAST_SECONDS, MORE = 0.1, 15
"""Turns are added up to this time for each repeat, and up to this number for each repeat."""

Programs = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Contest:
    """Our program against other programs that compute the same result.

    Programs take no argument and return an array of JAX, NumPy or PyTorch, or a pytree of arrays.

    Args:
        target: goal for our time / time of the best competitor.
        tolerance: largest difference to the first competitor in any array, relative to the largest
            entry of this array, or to 1 % of the largest entry of all arrays if that is larger.
        like_competitors: gives our result the structure of the others; it is not timed.
        scratch: returns the bytes of our temporary buffers.
    """

    suite: str
    name: str
    ours: Callable[[], Any]
    competitors: Programs
    target: float | None = None
    tolerance: float | None = 1e-3
    like_competitors: Callable[[Any], Any] = lambda result: result
    dtype: str = "float32"
    scratch: Callable[[], int] | None = None
    size: dict[str, int] = field(default_factory=dict)


class Disagreement(ValueError):
    """Programs that should return the same result return different results."""


class Row(NamedTuple):
    """Times of a program in ms: `first_ms` of the first call with compilation, then quartiles.

    `ratio` is the median divided by the median of the best competitor, for which it is 1.
    """

    suite: str
    contest: str
    program: str
    first_ms: float
    lower_ms: float
    median_ms: float
    upper_ms: float
    ratio: float
    target: float | None
    met: bool | None
    error: float | None
    scratch_mb: float | None
    dtype: str
    size: dict[str, int]


def compete(contest: Contest, repeats: int) -> list[Row]:
    """Check that all programs agree, then time them in turns; raise Disagreement if one differs.

    Every program has `repeats` turns, and up to 15 times as many if they last milliseconds.
    """
    programs = {"icl_krr": contest.ours, **contest.competitors}
    firsts, results = {}, {}
    for name, program in programs.items():
        firsts[name], results[name] = timed(program)
    results["icl_krr"] = contest.like_competitors(results["icl_krr"])
    errors = {name: disagreement(contest, name, results) for name in programs}
    del results
    times: dict[str, list[float]] = {name: [] for name in programs}
    end = time.perf_counter() + LEAST_SECONDS * repeats
    for turn in range(MORE * repeats):
        if turn >= repeats and time.perf_counter() > end:
            break
        # in both orders, so that no program always follows the same one
        for name in [*programs][:: 1 if turn % 2 else -1]:
            times[name].append(timed(programs[name])[0])
    quartiles = {name: np.percentile(values, [25, 50, 75]) for name, values in times.items()}
    best = min(quartiles[name][1] for name in contest.competitors)
    megabytes = None if contest.scratch is None else contest.scratch() / 1e6
    rows = []
    for name, (lower, middle, upper) in quartiles.items():
        ours, ratio = name == "icl_krr", float(middle / best)
        target = contest.target if ours else None
        met = None if target is None else ratio <= target
        quarters = firsts[name], float(lower), float(middle), float(upper)
        outcome = ratio, target, met, errors[name], megabytes if ours else None
        names = contest.suite, contest.name, name
        rows.append(Row(*names, *quarters, *outcome, contest.dtype, contest.size))
    return rows


def scratch(jitted: Any, *arguments: Any) -> int:
    """Bytes of the temporary buffers of a jitted function."""
    return jitted.lower(*arguments).compile().memory_analysis().temp_size_in_bytes


def timed(program: Callable[[], Any]) -> tuple[float, Any]:
    """The time in ms, and the result."""
    start = time.perf_counter()
    result = jax.block_until_ready(program())
    return 1e3 * (time.perf_counter() - start), result


def disagreement(contest: Contest, name: str, results: dict[str, Any]) -> float | None:
    if contest.tolerance is None:
        return None
    first = next(iter(contest.competitors))
    leaves = (jax.tree.leaves(results[which]) for which in (first, name))
    truths, actual = ([np.asarray(leaf, np.float64) for leaf in each] for each in leaves)
    sizes = [np.max(np.abs(truth)) for truth in truths]
    errors = [
        np.max(np.abs(array.reshape(truth.shape) - truth)) / max(size, 0.01 * max(sizes))
        for array, truth, size in zip(actual, truths, sizes, strict=True)
    ]
    relative = float(np.max(errors))
    if not relative <= contest.tolerance:
        raise Disagreement(
            f"{name} must agree with {first} on {contest.name} to a relative error of "
            f"{contest.tolerance:g}, got {relative:.2g}; no program of this comparison was timed"
        )
    return relative


def markdown(rows: list[Row]) -> str:
    """A line for each contest, but for those of the suite scaling, which are shown as a figure.

    Times are medians, with quartiles of our program. The time to compile is that of the first call
    minus the median.
    """
    header = ["what", "icl_krr, ms", "best competitor", "its ms", "ratio", "goal", "met"]
    header += ["compile, s", "scratch, MB"]
    lines = []
    listed = (row for row in rows if row.suite != "scaling")
    for contest, (ours, *competitors) in groupby(listed, lambda row: row.contest):
        best = min(competitors, key=lambda row: row.median_ms)
        line = [contest, f"{ours.median_ms:.3g} ({ours.lower_ms:.3g}-{ours.upper_ms:.3g})"]
        line += [best.program, f"{best.median_ms:.3g}", f"{ours.median_ms / best.median_ms:.2f}"]
        goal = "" if ours.target is None else f"{ours.target:g}x"
        line += [goal, {True: "yes", False: "no", None: ""}[ours.met]]
        line += [f"{max(ours.first_ms - ours.median_ms, 0) / 1e3:.2g}"]
        lines.append([*line, "" if ours.scratch_mb is None else f"{ours.scratch_mb:.3g}"])
    return to_markdown((header, lines))
