"""What the charts of the page have in common: curves, heatmaps and axes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from ._chart import BLUE, RED, Chart, Lines

Points = Sequence[Mapping[str, Any]]

STEPS: dict[str, Any] = {"axis": {"tickMinStep": 1, "format": "d"}, "scale": {"nice": False}}
"""An axis of whole numbers."""


def curves(
    title: str,
    description: str,
    points: Points,
    x: alt.X,
    y: Mapping[str, Any],
    lines: Lines,
    *,
    tooltips: Sequence[str] = (),
    base: alt.Chart | None = None,
    below: Sequence[alt.Chart] = (),
    zoom: bool = False,
    marked: bool = False,
    height: int = 165,
    reads: tuple[str, ...] = (),
    span: int = 6,
) -> Chart:
    """Curves of `value` against x, one for each `line`, after the transforms of `base`.

    `tooltips` are the numbers that a point says beside its x, by default its line and value.
    """
    place = x["shorthand"]
    if marked and place.endswith(":Q"):  # no point is cut at the ends of the axis
        x = x.scale(**x["scale"] | {"padding": 8})
    style = lambda values: {  # noqa: E731
        "legend": None,
        "scale": alt.Scale(type="ordinal", domain=[*lines], range=values),
    }
    height_of: dict[str, Any] = {"title": None, **y}
    words = [place, *(f"{key}:Q" for key in tooltips)] if tooltips else ["line:N", place, "value:Q"]
    dashes = [[*map(int, line.dashes.split())] for line in lines.values()]
    drawn = (
        (base or alt.Chart())
        .mark_line(clip=True, point=marked or "transparent")
        .encode(
            y=alt.Y("value:Q", **height_of),
            color=alt.Color("line:O", **style([line.color for line in lines.values()])),
            strokeDash=alt.StrokeDash("line:O", **style(dashes)),
            strokeWidth=alt.StrokeWidth("line:O", **style([line.width for line in lines.values()])),
            tooltip=[*map(tooltip, words)],
        )
    )
    if zoom:  # the wheel alone and the finger still scroll the page
        select = alt.selection_interval(
            name="zoom",
            bind="scales",
            encodings=["x"],
            zoom="wheel![event.shiftKey]",
            translate="[mousedown, window:mouseup] > window:mousemove!",
        )
        drawn = drawn.add_params(select)
    layers = alt.layer(*below, drawn, data=data_of(points), height=height).encode(x=x)
    return Chart(title, description, layers, lines, reads, span)


def tooltip(column: str) -> alt.Tooltip:
    """How a point says one of its columns: a number has three digits."""
    return alt.Tooltip(column, format=".3~g") if column.endswith(":Q") else alt.Tooltip(column)


def heatmap(
    title: str,
    description: str,
    points: Points,
    x: alt.X,
    y: alt.Y,
    *,
    scale: Mapping[str, Any],
    tooltips: Sequence[str],
    calculated: Mapping[str, str] = {},
    height: int = 160,
    layer: Sequence[alt.Chart] = (),
    reads: tuple[str, ...] = (),
    span: int = 6,
) -> Chart:
    """Cells whose colour is stronger where `size` is larger, and red where `sign` < 0.

    The background shines through the colour, so a cell of size 0 is invisible in both themes.
    """
    shades = {"range": [0, 1], "clamp": True, "nice": False} | dict(scale)
    cells = (
        alt.Chart()
        .mark_rect()
        .encode(
            color=alt.condition("datum.sign < 0", alt.value(RED), alt.value(BLUE)),
            fillOpacity=alt.FillOpacity("size:Q", scale=shades, legend=None),
            tooltip=[*map(tooltip, tooltips)],
        )
    )
    whole = alt.layer(cells, *layer, data=data_of(points), height=height).encode(x=x, y=y)
    return Chart(title, description, whole.transform_calculate(**calculated), {}, reads, span)


def log_axis(values: Iterable[float], *limits: float) -> dict[str, Any]:
    """A log axis over the positive values, or over the given limits, with round labels."""
    ends = limits or [value for value in values if 0 < value < math.inf] or (1,)
    low, high = math.floor(math.log10(min(ends))), math.ceil(math.log10(max(ends)))
    each = (1, 2, 5) if high - low < 3 else (1,)
    stride = -(-(high - low) // 6) or 1
    ticks = [digit * 10.0**power for power in range(low, high + 1, stride) for digit in each]
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


def data_of(points: Points) -> alt.Data:
    """Points that JSON can hold: a number that is not finite is missing."""
    finite = lambda value: not isinstance(value, float) or math.isfinite(value)  # noqa: E731
    rows = [{k: v if finite(v) else None for k, v in point.items()} for point in points]
    return alt.Data(values=rows)
