"""A board: charts and tables that follow sliders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from .chart import Chart


class Axis(NamedTuple):
    """One slider: its label, its values as text and its first place."""

    label: str
    values: tuple[str, ...]
    start: int = 0


NO_AXES: Mapping[str, Any] = {}


class Cell(NamedTuple):
    """A number at the places of the sliders, as text.

    The path begins with the name of an array. Every further step is the name of a slider or an
    index.
    """

    path: tuple[str | int, ...]


class Board(NamedTuple):
    """Charts and tables over nested arrays, at the places of the sliders.

    The sliders set one index each. `words` is a sentence in which numbers follow the sliders.
    """

    charts: tuple[Chart, ...] = ()
    axes: Mapping[str, Axis] = NO_AXES
    data: Mapping[str, Any] = NO_AXES
    words: tuple[str | Cell, ...] = ()
    caption: str = ""
    tables: tuple[tuple[str, list[str], list[list[str | Cell]]], ...] = ()

    def at(self) -> dict[str, int]:
        return {name: axis.start for name, axis in self.axes.items()}

    def show(self, cell: Cell) -> str:
        """The number where the sliders start."""
        first, *steps = (self.at().get(step, step) for step in cell.path)  # pyright: ignore
        return reduce(lambda found, step: found[step], steps, self.data[first])

    def svg(self, chart: Chart, name: str) -> str:
        return chart.svg(name, self.at() | {name: self.data[name] for name in chart.reads})

    def json(self) -> str:
        """The data of the script, as JSON that is safe inside HTML."""
        record = {
            "axes": {name: axis.values for name, axis in self.axes.items()},
            "data": self.data,
            "charts": [{"spec": chart.complete(), "reads": chart.reads} for chart in self.charts],
        }
        text = json.dumps(record, separators=(",", ":"), allow_nan=False)
        return text.replace("<", "\\u003c")


def three_digits(value: Any) -> str:
    """A number as text with three digits."""
    return f"{float(value):.3g}"


def numbers(values: np.ndarray) -> Any:
    """A nested list of numbers as text, so that the page shows the digits that Python prints."""
    return three_digits(values) if np.ndim(values) == 0 else [numbers(part) for part in values]


def thousandths(values: np.ndarray) -> Any:
    """A nested list of whole numbers of 1/1000, which takes half of the space of decimals."""
    return np.rint(1000 * np.asarray(values)).astype(int).tolist()


def shares(values: np.ndarray, axes: int | tuple[int, ...]) -> tuple[Any, Any]:
    """Thousandths of the largest entry along the last axes, and this entry as text."""
    largest = np.max(np.abs(values), axis=axes, keepdims=True)
    scaled = values / np.where(largest > 0, largest, 1)
    return thousandths(scaled), numbers(np.squeeze(largest, axes))
