"""Divide a table into supports and queries."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._core import checks
from ._columns import Scaling
from ._tables import Queries, Table
from ._task import Task


class Division(NamedTuple):
    """A table as a task, and what leads from its predictions back to the table.

    Attributes:
        task: the `Task`, with standardised x and y.
        rows: number of every query's row, int [q]; 1 is the first row below the header.
        scaling: the scaling of y.
        filled: features of the queries that were missing and filled, bool [q, p]; None: none.
        filled_columns: names of their columns, for every query.
    """

    task: Task
    rows: np.ndarray
    scaling: Scaling
    filled: np.ndarray | None = None
    filled_columns: tuple[str, ...] = ()


def split(table: Table, num_supports: int, seed: int = 0, queries: Queries | None = None) -> Task:
    """Split a table at random into supports and queries.

    The function centres x and y and scales them to unit variance, with the mean and standard
    deviation of the supports only, so that the scaling does not depend on the queries. A column
    that is constant in the supports is only centred.

    Args:
        queries: rows to predict, such as `read_queries` returns; by default all rows of the table
            that are not supports.

    >>> from icl_krr.tasks import diabetes
    >>> task = split(diabetes(), num_supports=300, seed=0)
    >>> task.x.shape, task.x_query.shape
    ((300, 10), (142, 10))
    """
    return divide(table, num_supports, seed, queries).task


def divide(table: Table, num_supports: int, seed: int = 0, queries: Any = None) -> Division:
    """`split`, and what leads back to the table."""
    checks.instance("table", table, Table, "an icl_krr.tasks.Table")
    checks.instance("queries", queries, (Queries, type(None)), "an icl_krr.tasks.Queries or None")
    checks.count("num_supports", num_supports)
    checks.count("seed", seed, minimum=0)
    if queries is None and num_supports >= len(table):
        raise ValueError(
            f"num_supports must be < {len(table)}, the number of rows of the table, because "
            f"the other rows are the queries, got {num_supports}"
        )
    if num_supports > len(table):
        raise ValueError(
            f"num_supports must be <= {len(table)}, the number of rows of the table, "
            f"got {num_supports}"
        )
    order = np.random.default_rng(seed).permutation(len(table))
    supports, rows = order[:num_supports], order[num_supports:]
    numbers = _row_numbers(len(table), table.dropped)[rows]
    if queries is None:
        filled = None if table.filled is None else table.filled[rows]
        queries = Queries(table.x[rows], table.y[rows], filled=filled)
    else:
        numbers = _row_numbers(len(queries.x), queries.dropped)
    x, y = (Scaling.of(columns[supports]) for columns in (table.x, table.y))
    task = Task(
        x=x.apply(table.x[supports]),
        y=y.apply(table.y[supports]),
        x_query=x.apply(queries.x),
        y_query=None if queries.y is None else y.apply(queries.y),
    )
    if queries.filled is None:
        return Division(task, numbers, y)
    each = (zip(table.columns, flags, strict=True) for flags in queries.filled)
    words = tuple(", ".join(column.name for column, flag in pairs if flag) for pairs in each)
    widths = [len(column.features) for column in table.columns]
    return Division(task, numbers, y, np.repeat(queries.filled, widths, axis=1), words)


def _row_numbers(count: int, dropped: tuple[int, ...]) -> np.ndarray:
    """The numbers in the file of the rows that are left."""
    return np.setdiff1d(np.arange(1, count + len(dropped) + 1), dropped)


def default_num_supports(table: Table, queries: Queries | None = None) -> int:
    """The number of supports if none is given.

    Three quarters of the rows, but at most 512; all rows if queries are given, but at most 1024.
    """
    return min(3 * len(table) // 4, 512) if queries is None else min(len(table), 1024)
