"""`icl-krr predict`: a table of one's own, as one task."""

from __future__ import annotations

from ...tasks import Task, read_table, split
from ...tasks.tables import usual_supports
from .. import output
from ..depth_tables import compare, depth_config
from ..settings.predict import Predict


def run(settings: Predict) -> int:
    config = depth_config(settings)
    if settings.out is not None:
        output.prepare(settings.out)
    compare(settings, {settings.table.name: (read_task(settings), config)})
    return 0


def read_task(settings: Predict) -> Task:
    table = read_table(settings.table, settings.target)
    if len(table) < 2:
        raise ValueError(f"{settings.table} must hold at least 2 rows, got {len(table)}")
    supports = usual_supports(table) if settings.supports is None else settings.supports
    return split(table, supports, settings.seed)
