"""The charts of the explorer: predictions, gaps along an axis, and slots."""

from __future__ import annotations

from itertools import product
from typing import Any

import altair as alt
import numpy as np

from ..experiments.explorer import Explored
from .chart import ACCENT, BLUE, GREEN, INK, ORANGE, RED, Chart, Line, Lines
from .marks import STEPS, curves, heatmap, log_axis, said

GAPS = {
    "transformer": Line(BLUE),
    "bound": Line(BLUE, "2 3"),
    "one head": Line(RED, "6 3"),
    "mean": Line(ORANGE),
    "zero": Line(INK, "2 3"),
}


def predictions(found: Explored) -> Chart:
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
    points = [
        {"query": i, "angle": round(float(a), 4), "true function": round(float(f), 4)}
        for i, (a, f) in enumerate(zip(asked, truth, strict=True))
    ]
    seen = [
        {"angle": round(float(a), 4), "y of the support": round(float(f), 4)}
        for a, f in zip(angle, y, strict=True)
    ]
    supports = (
        alt.Chart(alt.Data(values=seen))
        .mark_circle(color=INK, size=45, opacity=0.75, clip=True)
        .encode(y="y of the support:Q", tooltip=[said(f"{name}:Q") for name in seen[0]])
    )
    return curves(
        "Predictions",
        "Lines of exact KRR, the true function, one softmax head and the transformer at the "
        "queries, against the angle of x. Dots are the supports.",
        points,
        alt.X("angle:Q", title="angle of x on the circle (radians)").scale(
            domain=[-3.15, 3.15], nice=False
        ),
        {
            "scale": {"domain": [-reach, reach], "nice": False},
            "title": "y (prior standard deviations)",
        },
        lines,
        shown=[*lines],
        base=folded({name: f"{path}[datum.query] / 1000" for name, path in paths.items()}, lines),
        below=[supports],
        zoom=True,
        reads=("exact", "smoother", "prediction"),
    )


def folded(calculated: dict[str, str], lines: Lines) -> alt.Chart:
    """The base of curves whose lines are columns, some of them calculated."""
    return alt.Chart().transform_calculate(**calculated).transform_fold([*lines], ["line", "value"])


def gaps(axis: str, points: list[dict[str, Any]]) -> Chart:
    """The gaps to exact KRR and the bound along an axis, with the place of its slider."""
    here = "[temperature][ridge]"
    along = {"depth": "[channels][datum.depth]", "channels": "[datum.channels][depth]"}[axis]
    paths = {
        "transformer": f"gap{here}{along}",
        "bound": f"bound{here}{along}",
        "one head": f"smoother_gap{here}",
        "mean": f"mean_gap{here}",
        "zero": "1",
    }
    x = alt.X("depth:Q", title="solver steps", **STEPS)
    if axis == "channels":
        x = alt.X("m:O", title="width (channels)", sort=[point["m"] for point in points])
    marker = (
        alt.Chart()
        .mark_rule(color=ACCENT, strokeWidth=8, opacity=0.25)
        .transform_filter(f"datum.{axis} == {axis}")
    )
    word = "depth" if axis == "depth" else "width"
    return curves(
        f"Gap to exact KRR against {word}",
        f"Lines of the gaps of the transformer, one softmax head, the mean of the supports and the "
        f"zero prediction, and the bound on the gap of the transformer, against {word}. Log scale.",
        points,
        x,
        log_axis((), 1e-8, 1e3),
        GAPS,
        shown=[*GAPS],
        base=folded({name: f"toNumber({path})" for name, path in paths.items()}, GAPS),
        below=[marker],
        reads=("gap", "bound", "smoother_gap", "mean_gap"),
        span=3,
    )


def slot_chart(slot: str, found: Explored) -> Chart:
    """A slot at every support after every step; a frame marks the depth of the slider."""
    supports, depths = range(found.config.num_supports), range(found.config.steps + 1)
    frame = (
        alt.Chart()
        .mark_rect(fillOpacity=0, stroke=INK, strokeWidth=1)
        .encode(y=alt.value(0), y2=alt.value("height"))
        .transform_filter("datum.step == depth && datum.support == 1")
    )
    return heatmap(
        f"Slot {slot}",
        "Heatmap of the slot at every support token after every solver step. Blue is positive, "
        "orange is negative.",
        [{"step": step, "support": i + 1} for step, i in product(depths, supports)],
        alt.X("step:O", title="solver steps"),
        alt.Y("support:O", title="support, by angle"),
        scale={"domain": [0, 1]},
        calculated={
            "sign": f"{slot}[temperature][ridge][channels][datum.step][datum.support - 1] / 1000",
            "size": "abs(datum.sign)",
            slot: f"datum.sign * toNumber({slot}_most[temperature][ridge][channels])",
        },
        shown=["step:O", "support:O", f"{slot}:Q"],
        layer=[frame],
        reads=(slot, f"{slot}_most"),
        span=4,
    )
