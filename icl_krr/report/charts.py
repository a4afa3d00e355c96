"""Charts as Vega-Lite specifications that follow the sliders and the theme of the page."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import vl_convert

Spec = dict[str, Any]
Points = Sequence[Mapping[str, Any]]

INK, ACCENT = "currentColor", "var(--accent)"
BLUE, RED, GREEN, ORANGE = (f"var(--{name})" for name in ("blue", "red", "green", "orange"))
PALETTE = (BLUE, RED, GREEN, ORANGE, "var(--purple)", "var(--sky)", "var(--olive)")
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
    "line": {"clip": True},
    "axisXBand": {"labelAngle": 0},
}
"""Colours are CSS variables, so that one drawing serves both themes."""

ZOOM: Spec = {
    "name": "zoom",
    "bind": "scales",
    "select": {
        "type": "interval",
        "encodings": ["x"],
        "zoom": "wheel![event.shiftKey]",
        "translate": "[mousedown, window:mouseup] > window:mousemove!",
    },
}
"""The wheel alone and the finger still scroll the page."""


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


def curves(
    points: Points,
    x: Spec,
    y: Spec,
    lines: Lines,
    *,
    shown: Sequence[str] = (),
    transform: Sequence[Spec] = (),
    below: Sequence[Spec] = (),
    zoom: bool = False,
    marked: bool = False,
) -> Spec:
    """Curves of `value` against x, one for each `line`.

    `shown` are the columns in the words of a point, by default its line, x and value.
    """
    names = list(lines)
    style = lambda values: {  # noqa: E731
        "field": "line",
        "type": "ordinal",
        "legend": None,
        "scale": {"type": "ordinal", "domain": names, "range": values},
    }
    words = ["line", x["field"], "value"] if not shown else [x["field"], *shown]
    return {
        "height": 165,
        "data": {"values": [finite(point) for point in points]},
        "encoding": {"x": x},
        "layer": [
            *below,
            {
                "transform": list(transform),
                "params": [ZOOM] if zoom else [],
                "mark": {"type": "line", "point": True if marked else "transparent"},
                "encoding": {
                    "y": {"field": "value", "type": "quantitative", "title": None} | y,
                    "color": style([line.color for line in lines.values()]),
                    "strokeDash": style(
                        [[*map(int, line.dashes.split())] for line in lines.values()]
                    ),
                    "strokeWidth": style([line.width for line in lines.values()]),
                    "tooltip": [worded(name, x) for name in words],
                },
            },
        ],
    }


STEPS = {"axis": {"tickMinStep": 1, "format": "d"}, "scale": {"nice": False}}
"""An axis of whole numbers."""


def log_axis(values: Iterable[float], *limits: float) -> Spec:
    """A log axis over the positive values, or over the given limits, with round labels."""
    shown = limits or [value for value in values if 0 < value < math.inf] or (1,)
    low, high = math.floor(math.log10(min(shown))), math.ceil(math.log10(max(shown)))
    each = (1, 2, 5) if high - low < 3 else (1,)
    apart = -(-(high - low) // 6) or 1
    ticks = [digit * 10.0**power for power in range(low, high + 1, apart) for digit in each]
    small = "datum.value < 0.001 || datum.value > 1000"
    short = "replace(format(datum.value, '.0e'), '+', '')"
    domain = limits or (10.0**low, max(10.0**high, 10 * 10.0**low))
    return {
        "scale": {"type": "log", "domain": domain, "nice": False, "clamp": True},
        "axis": {
            "values": [tick for tick in ticks if domain[0] <= tick <= domain[1]],
            "labelExpr": f"{small} ? {short} : format(datum.value, '~g')",
        },
    }


def worded(name: str, x: Spec) -> Spec:
    """How a point says one of its columns."""
    if name == "line" or (name == x["field"] and x["type"] != "quantitative"):
        return {"field": name, "type": "nominal"}
    return {"field": name, "type": "quantitative", "format": ".3~g"}


def heatmap(
    points: Points,
    x: Spec,
    y: Spec,
    *,
    scale: Spec,
    tooltip: Sequence[Spec],
    transform: Sequence[Spec] = (),
    height: int = 160,
    layer: Sequence[Spec] = (),
) -> Spec:
    """Cells whose colour is stronger where `size` is larger, and red where `sign` < 0.

    The background shines through the colour, so a cell of size 0 is invisible in both themes.
    """
    return {
        "height": height,
        "data": {"values": [finite(point) for point in points]},
        "transform": list(transform),
        "encoding": {"x": x, "y": y},
        "layer": [
            {
                "mark": "rect",
                "encoding": {
                    "color": {"condition": {"test": "datum.sign < 0", "value": RED}, "value": BLUE},
                    "fillOpacity": {
                        "field": "size",
                        "type": "quantitative",
                        "scale": {"range": [0, 1], "clamp": True, "nice": False} | scale,
                        "legend": None,
                    },
                    "tooltip": list(tooltip),
                },
            },
            *layer,
        ],
    }


def finite(point: Mapping[str, Any]) -> dict[str, Any]:
    """A point that JSON can hold: a number that is not finite is missing."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in point.items()
    }
