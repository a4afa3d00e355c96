"""Rows as a Markdown table: ours against the best rival, one line a contest."""

from __future__ import annotations

from itertools import groupby

from .contest import Row


def markdown(rows: list[Row]) -> str:
    """Every contest but those of the scaling suite, which is drawn."""
    lines = [
        "| what | icl_krr, ms | best rival | its ms | ratio | goal | met | scratch, MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    shown = (row for row in rows if row.suite != "scaling")
    for contest, group in groupby(shown, lambda row: row.contest):
        ours, *rivals = group
        best = min(rivals, key=lambda row: row.median_ms)
        goal = f"{ours.target:g}x" if ours.target is not None else ""
        if ours.limit_ms is not None:
            goal = f"{ours.limit_ms:g} ms"
        scratch = "" if ours.scratch_mb is None else f"{ours.scratch_mb:.3g}"
        met = {True: "yes", False: "no", None: ""}[ours.met]
        lines.append(
            f"| {contest} | {ours.median_ms:.3g} | {best.program} | {best.median_ms:.3g} "
            f"| {ours.ratio:.2f} | {goal} | {met} | {scratch} |"
        )
    return "\n".join(lines) + "\n"
