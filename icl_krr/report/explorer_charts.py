"""The charts of the explorer: predictions, gaps along an axis, and slots."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from ..experiments.explorer import Explored
from .chart import ACCENT, BLUE, GREEN, INK, ORANGE, RED, Chart, Line, Spec
from .marks import STEPS, curves, heatmap, log_axis

GAPS = {
    "transformer": Line(BLUE),
    "bound": Line(BLUE, "2 3"),
    "one head": Line(RED, "6 3"),
    "mean": Line(ORANGE),
    "zero": Line(INK, "2 3"),
}


def predictions(found: Explored) -> Chart:
    """Predictions against the angle of x."""
    task = found.task
    angle, asked = (np.arctan2(x[:, 1], x[:, 0]) for x in map(np.asarray, (task.x, task.x_query)))
    y, truth = np.asarray(task.y, float), np.asarray(task.y_query, float)
    lines = {
        "exact KRR": Line(GREEN, width=5),
        "true function": Line(INK, "2 3"),
        "one head (Nadaraya-Watson)": Line(RED, "6 3"),
        "transformer": Line(BLUE),
    }
    paths = {
        "exact KRR": "exact[temperature][ridge]",
        "one head (Nadaraya-Watson)": "smoother[temperature]",
        "transformer": "prediction[temperature][ridge][channels][depth]",
    }
    reach = round(1.15 * float(np.max(np.abs([*y, *truth]))), 2)
    x = {"field": "angle", "type": "quantitative", "title": "angle of x on the circle (radians)"}
    x |= {"scale": {"domain": [-3.15, 3.15], "nice": False}}
    height = {
        "scale": {"domain": [-reach, reach], "nice": False},
        "title": "y (prior standard deviations)",
    }
    points = [
        {"query": i, "angle": round(float(a), 4), "true function": round(float(f), 4)}
        for i, (a, f) in enumerate(zip(asked, truth, strict=True))
    ]
    seen = [
        {"angle": round(float(a), 4), "y of the support": round(float(f), 4)}
        for a, f in zip(angle, y, strict=True)
    ]
    supports: Spec = {
        "data": {"values": seen},
        "mark": {"type": "circle", "color": INK, "size": 45, "opacity": 0.75, "clip": True},
        "encoding": {
            "y": {"field": "y of the support", "type": "quantitative"},
            "tooltip": [
                {"field": name, "type": "quantitative", "format": ".3~g"} for name in seen[0]
            ],
        },
    }
    spec = curves(
        points,
        x,
        height,
        lines,
        shown=tuple(lines),
        transform=[
            *(
                {"calculate": f"{path}[datum.query] / 1000", "as": name}
                for name, path in paths.items()
            ),
            {"fold": [*lines], "as": ["line", "value"]},
        ],
        below=[supports],
        zoom=True,
    )
    description = (
        "Lines of exact KRR, the true function, one softmax head and the transformer at the "
        "queries, against the angle of x. Dots are the supports."
    )
    return Chart("Predictions", description, spec, lines, ("exact", "smoother", "prediction"), 6)


def gaps(axis: str, points: list[dict[str, Any]]) -> Chart:
    """The gaps to exact KRR and the bound along an axis, with the place of its slider."""
    here = "[temperature][ridge]"
    along = {"depth": "[channels][datum.depth]", "channels": "[datum.channels][depth]"}[axis]
    paths = {
        "transformer": f"gap{here}{along}",
        "bound": f"bound{here}{along}",
        "one head": f"smoother_gap{here}",
        "mean": f"mean_gap{here}",
    }
    x: Spec = {"field": "depth", "type": "quantitative", "title": "solver steps"} | STEPS
    if axis == "channels":
        x = {
            "field": "m",
            "type": "ordinal",
            "sort": [point["m"] for point in points],
            "title": "width (channels)",
        }
    marker: Spec = {
        "transform": [{"filter": f"datum.{axis} == {axis}"}],
        "mark": {"type": "rule", "color": ACCENT, "strokeWidth": 8, "opacity": 0.25},
    }
    y = log_axis((), 1e-8, 1e3)
    spec = curves(
        points,
        x,
        y,
        GAPS,
        shown=tuple(GAPS),
        transform=[
            *({"calculate": f"toNumber({path})", "as": name} for name, path in paths.items()),
            {"calculate": "1", "as": "zero"},
            {"fold": [*GAPS], "as": ["line", "value"]},
        ],
        below=[marker],
    )
    word = "depth" if axis == "depth" else "width"
    description = (
        f"Lines of the gaps of the transformer, one softmax head, the mean of the supports and the "
        f"zero prediction, and the bound on the gap of the transformer, against {word}. Log scale."
    )
    reads = ("gap", "bound", "smoother_gap", "mean_gap")
    return Chart(f"Gap to exact KRR against {word}", description, spec, GAPS, reads, 3)


def slot_chart(slot: str, found: Explored) -> Chart:
    """A slot at every support after every step; a frame marks the depth of the slider."""
    supports, depths = range(found.config.num_supports), range(found.config.steps + 1)
    read = f"{slot}[temperature][ridge][channels][datum.step][datum.support - 1] / 1000"
    frame: Spec = {
        "transform": [{"filter": "datum.step == depth && datum.support == 1"}],
        "mark": {"type": "rect", "fillOpacity": 0, "stroke": INK, "strokeWidth": 1},
        "encoding": {"y": {"value": 0}, "y2": {"value": "height"}},
    }
    spec = heatmap(
        [{"step": step, "support": i + 1} for step, i in product(depths, supports)],
        {"field": "step", "type": "ordinal", "title": "solver steps"},
        {"field": "support", "type": "ordinal", "title": "support, by angle"},
        scale={"domain": [0, 1]},
        transform=[
            {"calculate": read, "as": "sign"},
            {"calculate": "abs(datum.sign)", "as": "size"},
            {
                "calculate": f"datum.sign * toNumber({slot}_most[temperature][ridge][channels])",
                "as": slot,
            },
        ],
        tooltip=[
            {"field": "step", "type": "ordinal"},
            {"field": "support", "type": "ordinal"},
            {"field": slot, "type": "quantitative", "format": ".3~g"},
        ],
        layer=[frame],
    )
    description = (
        "Heatmap of the slot at every support token after every solver step. Blue is positive, "
        "orange is negative."
    )
    return Chart(f"Slot {slot}", description, spec, {}, (slot, f"{slot}_most"))
