"""What the charts of the page have in common: curves, heatmaps and axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .chart import BLUE, RED, Lines, Spec

Points = Sequence[Mapping[str, Any]]

STEPS = {"axis": {"tickMinStep": 1, "format": "d"}, "scale": {"nice": False}}
"""An axis of whole numbers."""
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
    if marked and x["type"] == "quantitative":  # no point is cut at the ends of the axis
        x = x | {"scale": x.get("scale", {}) | {"padding": 8}}
    return {
        "height": 165,
        "data": {"values": [finite(point) for point in points]},
        "encoding": {"x": x},
        "layer": [
            *below,
            {
                "transform": list(transform),
                "params": [ZOOM] if zoom else [],
                "mark": {"type": "line", "clip": True, "point": marked or "transparent"},
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
