"""Our program against the best rival: one line per contest, also as a Markdown table."""

from __future__ import annotations

from itertools import groupby

from .contest import Row

COLUMNS = (
    "what",
    "icl_krr, ms",
    "best rival",
    "its ms",
    "ratio",
    "goal",
    "met",
    "compile, s",
    "scratch, MB",
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
                    "" if ours.suite == "startup" else compile_seconds(ours),
                    "" if ours.scratch_mb is None else f"{ours.scratch_mb:.3g}",
                )
            )
    return lines


def compile_seconds(row: Row) -> str:
    return f"{max(row.first_ms - row.median_ms, 0) / 1e3:.2g}"


def markdown(rows: list[Row]) -> str:
    """The summary as Markdown, without the suites scaling (shown as a figure) and profile."""
    shown = [COLUMNS, ["---"] * len(COLUMNS)]
    shown += summary([row for row in rows if row.suite not in ("scaling", "profile")])
    return "".join(f"| {' | '.join(line)} |\n" for line in shown)
