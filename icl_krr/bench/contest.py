"""Programs with the same result: check the results, time them in turns, and tell who is best."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import jax
import numpy as np

LEAST_SECONDS, MORE = 0.1, 15
"""Turns are added up to this time for each repeat, and up to this number for each repeat."""


@dataclass(frozen=True)
class Contest:
    """Our program against rivals that compute the same result.

    Programs take no argument and return an array of JAX, NumPy or PyTorch, or a pytree of arrays.

    Args:
        suite: suite that the contest belongs to.
        name: name of the contest in tables.
        ours: our program.
        rivals: the other programs, by name.
        target: goal for our time / time of the best rival; default: no goal.
        limit_ms: goal for our time in ms; default: no goal.
        tolerance: largest difference to the first rival in any array, relative to the largest entry
            of this array, or to 1 % of the largest entry of all arrays if that is larger; 1e-3 by
            default. None skips the check, for example between a function and its gradient.
        like_rivals: function that gives our result the structure of the rivals' results, before
            they are compared; default: the result is not changed. It is not timed.
        dtype: dtype of the computation, float32 by default.
        scratch: returns the bytes of our temporary buffers; default: not measured.
        size: sizes of the problem, by name; empty by default.
    """

    suite: str
    name: str
    ours: Callable[[], Any]
    rivals: dict[str, Callable[[], Any]]
    target: float | None = None
    limit_ms: float | None = None
    tolerance: float | None = 1e-3
    like_rivals: Callable[[Any], Any] = lambda result: result
    dtype: str = "float32"
    scratch: Callable[[], int] | None = None
    size: dict[str, int] = field(default_factory=dict)


class Disagreement(ValueError):
    """Programs that should return the same result return different results."""


class Row(NamedTuple):
    """Times of a program in ms: `first_ms` of the first call with compilation, then quartiles.

    `ratio` is the median divided by the median of the best rival, so it is 1 for the best rival.
    `rss_mb` is the peak resident memory of the process since its start.
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
    limit_ms: float | None
    met: bool | None
    error: float | None
    scratch_mb: float | None
    rss_mb: float
    dtype: str
    size: dict[str, int]


def compete(contest: Contest, repeats: int) -> list[Row]:
    """Check that all programs agree, then time them in turns; raise Disagreement if one differs.

    Every program has `repeats` turns, and up to 15 times as many if they last milliseconds.
    """
    programs = {"icl_krr": contest.ours, **contest.rivals}
    firsts, results = {}, {}
    for name, program in programs.items():
        firsts[name], results[name] = timed(program)
    results["icl_krr"] = contest.like_rivals(results["icl_krr"])
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
    best = min(quartiles[name][1] for name in contest.rivals)
    held = None if contest.scratch is None else contest.scratch() / 1e6
    return list(rows(contest, firsts, quartiles, best, errors, held))


def rows(contest, firsts, quartiles, best, errors, held) -> Iterator[Row]:
    rss = peak_rss()
    for name, (lower, middle, upper) in quartiles.items():
        ours, ratio = name == "icl_krr", float(middle / best)
        target, limit = (contest.target, contest.limit_ms) if ours else (None, None)
        goals = [ratio <= target] if target is not None else []
        goals += [bool(middle <= limit)] if limit is not None else []
        yield Row(
            contest.suite,
            contest.name,
            name,
            firsts[name],
            float(lower),
            float(middle),
            float(upper),
            ratio,
            target,
            limit,
            all(goals) if goals else None,
            errors[name],
            held if ours else None,
            rss,
            contest.dtype,
            contest.size,
        )


def scratch(jitted: Any, *arguments: Any) -> int:
    """Bytes of the temporary buffers of a jitted function."""
    return jitted.lower(*arguments).compile().memory_analysis().temp_size_in_bytes


def timed(program: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = jax.block_until_ready(program())
    return 1e3 * (time.perf_counter() - start), result


def disagreement(contest: Contest, name: str, results: dict[str, Any]) -> float | None:
    if contest.tolerance is None:
        return None
    truths, found = (
        [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(results[which])]
        for which in (next(iter(contest.rivals)), name)
    )
    sizes = [np.max(np.abs(truth)) for truth in truths]
    errors = [
        np.max(np.abs(array.reshape(truth.shape) - truth)) / max(size, 0.01 * max(sizes))
        for array, truth, size in zip(found, truths, sizes, strict=True)
    ]
    relative = float(np.max(errors))
    if not relative <= contest.tolerance:
        raise Disagreement(
            f"{name} must agree with {next(iter(contest.rivals))} on {contest.name} to "
            f"a relative error of {contest.tolerance:g}, got {relative:.2g}; no program of this "
            "comparison was timed"
        )
    return relative


def peak_rss() -> float:
    """Peak resident memory in MB; Linux reports KiB, macOS reports bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


COLUMNS = (
    *("what", "icl_krr, ms", "best rival", "its ms", "ratio", "goal", "met"),
    *("compile, s", "scratch, MB"),
)


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """One line per contest, with the columns `COLUMNS`: medians, and quartiles of our program.

    The time to compile is that of the first call minus the median; it is shorter if the cache on
    disk has the program. The profile has one line per rival, because there the rivals are parts of
    our program.
    """
    lines = []
    for contest, group in groupby(rows, lambda row: row.contest):
        ours, *rivals = group
        best = min(rivals, key=lambda row: row.median_ms)
        goal = f"{ours.target:g}x" if ours.target is not None else ""
        if ours.limit_ms is not None:
            goal = f"{ours.limit_ms:g} ms"
        compiling = max(ours.first_ms - ours.median_ms, 0) / 1e3
        for rival in rivals if ours.suite == "profile" else [best]:
            lines.append(
                (
                    contest,
                    f"{ours.median_ms:.3g} ({ours.lower_ms:.3g}-{ours.upper_ms:.3g})",
                    rival.program,
                    f"{rival.median_ms:.3g}",
                    f"{ours.median_ms / rival.median_ms:.2f}",
                    goal,
                    {True: "yes", False: "no", None: ""}[ours.met],
                    "" if ours.suite == "startup" else f"{compiling:.2g}",
                    "" if ours.scratch_mb is None else f"{ours.scratch_mb:.3g}",
                )
            )
    return lines


def markdown(rows: list[Row]) -> str:
    """The summary as Markdown, without the suites scaling (shown as a figure) and profile."""
    shown = [COLUMNS, ["---"] * len(COLUMNS)]
    shown += summary([row for row in rows if row.suite not in ("scaling", "profile")])
    return "".join(f"| {' | '.join(line)} |\n" for line in shown)
