"""Warnings about the predictions of `icl-krr predict`."""

from pathlib import Path

import numpy as np

from .._core.messages import one_line
from ..tabular._answer import Answer
from ..tasks import Queries, Table
from ..tasks._division import Division

MAX_ROWS = 10
"""Most rows that a warning lists."""


def missing_cell_warnings(path: Path | None, part: Table | Queries | None) -> list[str]:
    """Warn about rows that were left out and cells that were filled."""
    words = []
    if part and part.dropped:
        rows = ", ".join(map(str, part.dropped[:MAX_ROWS]))
        more = ", ..." if len(part.dropped) > MAX_ROWS else ""
        words.append(f"{path}: rows left out for missing cells: {len(part.dropped)} ({rows}{more})")
    if part and part.filled is not None:
        count = part.filled.sum()
        words.append(f"{path}: cells filled: {count} (numbers by their median, texts by none)")
    return words


def task_warnings(division: Division, table: Table) -> list[str]:
    """Warn about constant columns, and about queries far away from the supports."""
    x, x_query = (np.abs(np.asarray(part)) for part in (division.task.x, division.task.x_query))
    reach, words = x.max(axis=0), []
    names = np.asarray(table.features, object)
    if not np.any(np.asarray(division.task.y)):
        words.append(f"{table.target} is constant in the supports, so that every interval is empty")
    if np.any(reach == 0):
        words.append(f"constant in the supports: {one_line(', '.join(names[reach == 0]))}")
    outside = x_query > 2 * reach
    if outside.any():
        rows = division.rows[outside.any(axis=1)]
        one = len(rows) == 1
        words.append(
            f"{'1 query is' if one else f'{len(rows)} queries are'} more than twice as far from "
            f"the mean as any support, {'' if one else 'such as '}row {rows[0]}, "
            f"in {one_line(', '.join(names[outside.any(axis=0)]))}; do not trust "
            f"{'its prediction' if one else 'their predictions'}"
        )
    return words


def answer_warnings(answer: Answer) -> list[str]:
    words = []
    if answer.float64_reason:
        words.append(f"float64 was used, because {answer.float64_reason}")
    if not answer.process.ok:
        words.append(
            "the intervals are not written, because float64, too, has too few digits for the "
            "standard deviations; use a larger --ridge"
        )
    if not answer.result.facts["exact_ok"]:
        words.append(
            "the predictions of exact KRR are not written, because float64, too, has too few "
            "digits for them; use a larger --ridge"
        )
    facts = answer.result.facts
    if facts["exact_ok"] and not np.all(np.isfinite(answer.result.predictions["transformer"])):
        words.append(
            "the predictions of the transformer are not written, because they do not come near "
            f"exact KRR within {facts['most_steps']} steps; --steps N writes those after N steps"
        )
    return words
