"""The task of `icl-krr predict`, read from files, and sentences on what makes it doubtful."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..experiments.answer import Answer
from ..fields import cut
from ..tasks import Queries, Table, read_queries, read_table
from ..tasks.division import Division, divide, usual_supports
from .commands.predict import Predict

SHOWN = 10
"""The number of rows without some cells that a sentence names."""


def read_task(settings: Predict) -> tuple[Division, list[str]]:
    """The task, and what makes its predictions doubtful."""
    table = read_table(settings.table, settings.target, settings.encode, settings.missing)
    if len(table) < 2:
        raise ValueError(f"{settings.table} must hold at least 2 rows, got {len(table)}")
    queries = None
    if settings.queries is not None:
        queries = read_queries(settings.queries, table, settings.missing)
    supports = settings.supports
    if supports is None:
        supports = usual_supports(table, queries)
    if supports < 2:
        raise ValueError(f"supports must be >= 2, got {supports}; one row does not show a spread")
    division = divide(table, supports, settings.seed, queries)
    doubts = [*about_missing(settings.table, table), *about_missing(settings.queries, queries)]
    doubts += doubts_of(division, table)
    if queries and queries.unseen:
        doubts.append(
            f"{settings.queries} has text that the table does not have, whose features are all 0: "
            f"{cut(', '.join(queries.unseen))}"
        )
    return division, doubts


def about_missing(path: Path | None, part: Table | Queries | None) -> list[str]:
    """Sentences on rows that were left out, and on cells that were filled."""
    words = []
    if part and part.dropped:
        rows = ", ".join(map(str, part.dropped[:SHOWN]))
        more = ", ..." if len(part.dropped) > SHOWN else ""
        words.append(f"{path}: rows left out for missing cells: {len(part.dropped)} ({rows}{more})")
    if part and part.filled:
        words.append(
            f"{path}: missing cells filled: {part.filled} (numbers with their column's median)"
        )
    return words


def doubts_of(division: Division, table: Table) -> list[str]:
    """Sentences on columns that do not vary, and on queries far away from the supports."""
    x, x_query = (np.abs(np.asarray(part)) for part in (division.task.x, division.task.x_query))
    reach, words = x.max(axis=0), []
    names = np.asarray(table.features, object)
    if not np.any(np.asarray(division.task.y)):
        words.append(f"{table.target} is constant in the supports, so that every interval is empty")
    if np.any(reach == 0):
        words.append(f"constant in the supports: {cut(', '.join(names[reach == 0]))}")
    far = x_query > 2 * reach
    if far.any():
        rows = division.rows[far.any(axis=1)]
        one = len(rows) == 1
        words.append(
            f"{'1 query is' if one else f'{len(rows)} queries are'} more than twice as far from "
            f"the mean as any support, {'' if one else 'such as '}row {rows[0]}, "
            f"in {cut(', '.join(names[far.any(axis=0)]))}; do not trust "
            f"{'its prediction' if one else 'their predictions'}"
        )
    return words


def doubts_of_answer(found: Answer) -> list[str]:
    words = []
    if found.wider:
        words.append(f"float64 was used, because {found.wider}")
    if not found.process.ok:
        words.append(
            "the intervals are not written, because float64, too, has too few digits for the "
            "standard deviations; use a larger --ridge"
        )
    if not found.result.facts["exact_ok"]:
        words.append(
            "the predictions of exact KRR are not written, because float64, too, has too few "
            "digits for them; use a larger --ridge"
        )
    facts = found.result.facts
    if facts["exact_ok"] and not np.all(np.isfinite(found.result.predictions["transformer"])):
        words.append(
            "the predictions of the transformer are not written, because they do not come near "
            f"exact KRR within {facts['most_steps']} steps; --steps N writes those after N steps"
        )
    return words
