"""A chart is a Vega-Lite specification that follows the sliders and the theme of the page."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import vl_convert

Spec = dict[str, Any]

INK, ACCENT = "currentColor", "var(--accent)"
BLUE, RED, GREEN, ORANGE, PURPLE, SKY, *_ = PALETTE = tuple(
    f"var(--{name})" for name in ("blue", "red", "green", "orange", "purple", "sky", "olive")
)
CONFIG: Spec = {
    "background": "transparent",
    "padding": 2,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "titleFontWeight": "normal",
        "titleFontSize": 11,
        "titlePadding": 4,
        "labelFontSize": 11,
        "domainColor": "var(--rule)",
        "tickColor": "var(--rule)",
        "gridColor": "var(--grid)",
        "labelOverlap": True,
    },
    "mark": {"aria": False},  # the description of the chart and the tables say it in words
    "axisXBand": {"labelAngle": 0},
}
"""Colours are CSS variables, so that one drawing serves both themes."""


class Line(NamedTuple):
    color: str
    dashes: str = "1 0"
    width: float = 2


Lines = Mapping[str, Line]


class Chart(NamedTuple):
    """A chart that fills `span` of the 12 columns of the page.

    Expressions in `drawn` can use the sliders by name, and the arrays of the board that `reads`
    names. `description` is for readers who do not see the chart. The page explains the `lines`
    above the chart, where they can wrap.
    """

    title: str
    description: str
    drawn: alt.LayerChart
    lines: Lines
    reads: tuple[str, ...]
    span: int

    def complete(self) -> Spec:
        """The specification in Vega-Lite for the page's script, whose theme is `CONFIG`."""
        about = {"width": "container", "description": self.words}
        spec = self.drawn.to_dict(validate=False) | about
        return {name: part for name, part in spec.items() if name not in ("config", "$schema")}

    def svg(self, name: str, signals: Mapping[str, Any]) -> str:
        """The chart as SVG; `signals` holds the values of the sliders and arrays.

        `name` makes its identifiers unique in the page.
        """
        width = min(100 * self.span, 480)  # readable on a narrow screen
        size = {"width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
        params = [{"name": name, "value": value} for name, value in signals.items()]
        spec = self.complete() | size | {"params": params}
        return re.sub(r'(\bid="|url\(#)', rf"\g<1>{name}-", svg_of(json.dumps(spec)))

    @property
    def words(self) -> str:
        return f"{self.title}. {self.description}"


@cache
def svg_of(spec: str) -> str:
    svg = vl_convert.vegalite_to_svg(spec, config=CONFIG)
    rounded = lambda match: f"{float(match[0]):.2f}"  # noqa: E731
    places = r' (?:d|transform|fill-opacity)="[^"]*"'
    return re.sub(places, lambda match: re.sub(r"\d+\.\d{3,}", rounded, match[0]), svg)


def library() -> str:
    """The script of the charting library, which defines `vegaEmbed`."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed")


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


class BoardTable(NamedTuple):
    caption: str
    header: Sequence[str]
    lines: Sequence[Sequence[str | Cell]]


class Board(NamedTuple):
    """Charts and tables over nested arrays, at the places of the sliders.

    The sliders set one index each. `words` is a sentence in which numbers follow the sliders.
    """

    charts: tuple[Chart, ...] = ()
    axes: Mapping[str, Axis] = NO_AXES
    data: Mapping[str, Any] = NO_AXES
    words: tuple[str | Cell, ...] = ()
    caption: str = ""
    tables: tuple[BoardTable, ...] = ()

    def at(self) -> dict[str, int]:
        return {name: axis.start for name, axis in self.axes.items()}

    def show(self, cell: Cell) -> str:
        """The number where the sliders start."""
        first, *steps = (self.at().get(step, step) for step in cell.path)  # pyright: ignore
        return reduce(lambda value, step: value[step], steps, self.data[first])

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
