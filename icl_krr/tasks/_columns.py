"""Columns of a file: numbers or one-hot encoded texts; and their scaling to mean 0, deviation 1."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._core.messages import one_line, short_repr
from ._cells import NUMBER, TEXT, Cells, Rule, is_missing, number

_DATE = re.compile(
    r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/. ])(\d{1,2}|[A-Za-z]{3,9})\3\d{2}(\d{2})?)([T ].*)?"
)
"""Dates such as 2024-05-31, 31/5/24, 31.5.2024 and 31 May 2024, also with a time of day."""


@dataclass(frozen=True)
class Column:
    """A column of a file: numbers, or texts that are one-hot encoded.

    A text becomes one feature for every text of `texts`, in their order: 1 for the same text, else
    0. A text that is not among them becomes 0 everywhere.

    Args:
        name: name of the column.
        texts: the different texts of the column, or None for a column of numbers; default None.

    >>> Column("city", ("Oslo", "Rome")).features
    ('city=Oslo', 'city=Rome')
    """

    name: str
    texts: tuple[str, ...] | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that the column becomes."""
        if self.texts is None:
            return (self.name,)
        return tuple(f"{self.name}={text}" for text in self.texts)

    @property
    def rule(self) -> Rule:
        """What the cells of the column must be."""
        return NUMBER if self.texts is None else TEXT

    def numbers(self, cells: Cells) -> np.ndarray:
        """The features [rows, number of features] of the cells, float64; NaN for no number."""
        values = cells.columns[self.name]
        if self.texts is not None:
            return np.asarray(values, object)[:, None] == np.asarray(self.texts, object)[None]
        return np.array([number(value) for value in values])[:, None]

    def unseen(self, cells: Cells) -> np.ndarray:
        """Which cells have a text that none of the features has, bool [rows]."""
        values = cells.columns[self.name]
        texts = values if self.texts is None else self.texts
        return np.array([not is_missing(value) and value not in texts for value in values])


def columns_of(cells: Cells, names: list[str], encode: bool) -> tuple[tuple[Column, ...], list]:
    """The columns with these names, and a sentence for each reason why some are refused.

    Columns of text are encoded if they have few different texts, or else refused by name.
    """
    columns = tuple(Column(name, _texts(cells.columns[name])) for name in names)
    rows = {column.name: len(present(cells.columns[column.name])) for column in columns}
    refused = {
        column.name: len(column.texts)
        for column in columns
        if column.texts and not (encode and len(column.texts) <= max(2, rows[column.name] // 2))
    }
    faults = date_faults(cells, refused)
    texts = [name for name in refused if not _has_dates(cells, name)]
    if texts and not encode:
        faults.append(
            f"expected numbers in every column, got text in {one_line(str(texts)[1:-1])}; encode "
            "text as numbers (--encode on the command line, encode=True in Python) or "
            "remove the column"
        )
    faults += [
        f"column {short_repr(name)}: expected few different texts to be encoded, got "
        f"{refused[name]} in {rows[name]} rows; remove the column"
        for name in texts
        if encode
    ]
    return columns, faults


def present(values: Sequence[str]) -> list[str]:
    return [value for value in values if not is_missing(value)]


def _texts(values: Sequence[str]) -> tuple[str, ...] | None:
    """The different texts if most cells are not numbers; a few of them may be typing errors."""
    texts = present(values)
    numbers = sum(not math.isnan(number(value)) for value in texts)
    return tuple(sorted(set(texts))) if numbers < len(texts) / 2 else None


def _has_dates(cells: Cells, name: str) -> bool:
    """Whether most cells of a column are dates."""
    texts = present(cells.columns[name])
    return sum(_DATE.fullmatch(value) is not None for value in texts) > len(texts) / 2


def date_faults(cells: Cells, names: Iterable[str]) -> list[str]:
    """A sentence with the hint for each column of dates."""
    return [
        f"expected numbers in every column, got dates in {short_repr(name)}, such as "
        f"{short_repr(present(cells.columns[name])[0])}; replace each by its number of days, with "
        f"pandas as t[{name!r}] = (pd.to_datetime(t[{name!r}]) - "
        "pd.Timestamp('1970-01-01')).dt.days"
        for name in names
        if _has_dates(cells, name)
    ]


class Scaling(NamedTuple):
    """The map (x - mean) / deviation of columns, and its inverse, in float64."""

    exponent: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, weight: Any = None, centred: bool = True) -> Scaling:
        """The mean and the standard deviation of values; the deviation is 1 if they are equal.

        With `weight` [n], they are those of values of these weights. If not `centred`, the mean
        is 0, and the deviation is the root mean square.
        """
        # a power of two before the squares, which would overflow
        _, exponent = np.frexp(np.max(np.abs(values), axis=0))
        values = np.ldexp(values, -exponent)
        # rounding can move the mean of a constant column, and make its standard deviation > 0
        mean = np.where(np.ptp(values, axis=0) > 0, np.average(values, 0, weight), values[0])
        mean = mean if centred else np.zeros_like(mean)
        deviation = np.sqrt(np.average((values - mean) ** 2, 0, weight))
        return cls(exponent, mean, np.where(deviation > 0, deviation, 1))

    def apply(self, values: np.ndarray) -> np.ndarray:
        return (np.ldexp(values, -self.exponent) - self.mean) / self.deviation

    def undo(self, values: np.ndarray) -> np.ndarray:
        return np.ldexp(np.asarray(values, float) * self.deviation + self.mean, self.exponent)

    def undo_width(self, values: np.ndarray) -> np.ndarray:
        """The width of an interval, such as a standard deviation, in the units of the column."""
        return np.ldexp(np.asarray(values, float) * self.deviation, self.exponent)
