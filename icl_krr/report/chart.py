"""A chart is a Vega-Lite specification that follows the sliders and the theme of the page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import vl_convert

Spec = dict[str, Any]

INK, ACCENT = "currentColor", "var(--accent)"
BLUE, RED, GREEN, ORANGE, PURPLE, SKY, OLIVE = PALETTE = tuple(
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
    """How a line is drawn."""

    color: str
    dashes: str = "1 0"
    width: float = 2


Lines = Mapping[str, Line]
NO_LINES: Lines = {}


class Chart(NamedTuple):
    """A chart that fills `span` of the 12 columns of the page.

    `spec` is a specification in Vega-Lite without its width. Its expressions can use the sliders
    by name, and the arrays of the board that `reads` names. `description` is for readers who do not
    see the chart. The page explains the `lines` above the chart, where they can wrap.
    """

    title: str
    description: str
    spec: Spec
    lines: Lines = NO_LINES
    reads: tuple[str, ...] = ()
    span: int = 4

    def complete(self) -> Spec:
        """The specification for the page's script."""
        return {"width": "container", "description": self.words} | self.spec

    def svg(self, name: str, known: Mapping[str, Any]) -> str:
        """The chart as SVG; `known` holds the values of the sliders and arrays.

        `name` makes its identifiers unique in the page.
        """
        width = min(100 * self.span, 480)  # readable on a narrow screen
        size = {"width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
        params = [{"name": name, "value": value} for name, value in known.items()]
        spec = self.complete() | size | {"params": params}
        return re.sub(r'(\bid="|url\(#)', rf"\g<1>{name}-", drawn(json.dumps(spec)))

    @property
    def words(self) -> str:
        return f"{self.title}. {self.description}"


@cache
def drawn(spec: str) -> str:
    svg = vl_convert.vegalite_to_svg(spec, config=CONFIG)
    rounded = lambda found: f"{float(found[0]):.2f}"  # noqa: E731
    places = r' (?:d|transform|fill-opacity)="[^"]*"'
    return re.sub(places, lambda found: re.sub(r"\d+\.\d{3,}", rounded, found[0]), svg)


def library() -> str:
    """The script of the charting library, which defines `vegaEmbed`."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed")
