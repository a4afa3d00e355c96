"""The section with sliders over constructed transformers: predictions, gaps, bounds and slots."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import altair as alt
import numpy as np

from ..experiments._explorer import SLOTS, Explored
from . import _chart
from ._chart import BLUE, INK, RED, Axis, BoardTable, Cell, Chart, Line
from ._marks import STEPS, curves, heatmap, log_axis, tooltip
from ._page import Fold, Section

SLIDERS = ("temperature", "ridge", "channels", "depth")
"""The sliders; in a chart `width` is the width of the chart."""
PREDICTORS = {
    "transformer, at this depth and width": ("gap", "rmse"),
    "exact KRR, same temperature and ridge": ("", "exact_rmse"),
    "Nadaraya-Watson, same temperature": ("smoother_gap", "smoother_rmse"),
    "Nadaraya-Watson, temperature by leave-one-out": ("tuned_smoother_gap", "tuned_smoother_rmse"),
    "mean of the supports": ("mean_gap", "mean_rmse"),
    "zero prediction": ("zero_gap", "zero_rmse"),
}


NUMBERS = (
    "Gap to exact KRR {gap} (bound {bound}); RMSE {rmse} (exact KRR {exact_rmse}, one head "
    "{smoother_rmse}); condition number of K + ridge I {condition}; effective dimension of K "
    "{dimension}."
)


def explorer_section(grid: Explored) -> Section:
    config = grid.config
    widths = tuple(str(width or "all") for width in config.widths)
    depths = tuple(map(str, range(config.steps + 1)))
    axes = {
        "temperature": nearest("temperature", config.temperatures, 0.5),
        "ridge": nearest("ridge / k(x, x)", config.ridges, config.noise),
        "channels": Axis("width (channels)", widths, len(widths) - 1),
        "depth": Axis("depth (solver steps)", depths, config.steps // 2),
    }
    board = _chart.Board(
        charts=(
            predictions(grid),
            gaps("depth", [{"depth": depth} for depth in range(config.steps + 1)]),
            gaps("channels", [{"channels": w, "m": m} for w, m in enumerate(widths)]),
            *(slot_chart(slot, grid) for slot in SLOTS),
        ),
        axes=axes,
        data=data_of(grid),
        words=tuple(
            cell_of(grid, part) if i % 2 else part
            for i, part in enumerate(re.split(r"\{(\w+)\}", NUMBERS))
        ),
        caption=(
            f"Conjugate gradient as a transformer on one task: n = {config.num_supports} supports "
            f"on the unit circle, {config.num_queries} queries, y from a Gaussian process with "
            f"k(x, x) = 1 at temperature 0.5 and noise variance {config.noise:g}. Slots: blue is "
            "positive and orange is negative; full colour is the largest entry of the slot. "
            f"Seed {config.seed}, {grid.dtype}. Point at a chart for values. Shift and the wheel "
            "zoom the predictions, and a double click resets them."
        ),
        tables=tables(grid),
    )
    words = (
        "One softmax head is a Nadaraya-Watson smoother: it predicts a weighted mean of the "
        "outputs. A deep stack of softmax heads runs conjugate gradient on (K + ridge I) alpha = "
        "y. After enough steps, its predictions are those of kernel ridge regression (KRR). Width "
        '"all" is softmax attention on the exponential kernel e^(<x, z> / temperature). Width m '
        "is linear attention on the m Nystrom features with the smallest error in K. Every curve "
        "of the transformer is a forward pass with explicitly constructed weights.",
        "The gap of predictions f to exact KRR f* is |f - f*| / |f*|. The bound on the gap of the "
        "transformer is the sum of two bounds: the convergence rate of conjugate gradient (claim "
        "C4) and the error of m channels (claim C18). It holds on every draw. A bound above 1 is "
        "uninformative, because the zero prediction has gap 1.",
    )
    parts = (board, Fold("What the charts show", words))
    return Section("explorer", "Temperature, ridge, depth and width", (), parts)


def nearest(label: str, values: tuple[float, ...], value: float) -> Axis:
    start = int(np.argmin(np.abs(np.asarray(values) - value)))
    return Axis(label, tuple(map(str, values)), start)


def data_of(explored: Explored) -> dict[str, Any]:
    """Nested lists by name: numbers as text, and curves in thousandths."""
    data: dict[str, Any] = {}
    for name, values in explored.arrays.items():
        key = name.replace(" ", "_")
        if name in SLOTS:  # alpha is e^(1 / temperature) times smaller than y
            data[key], data[f"{key}_most"] = _chart.shares(values, (-2, -1))
        elif values.ndim > len(explored.over[name]):
            data[key] = _chart.thousandths(values)
        else:
            data[key] = _chart.numbers(values)
    return data


def cell_of(explored: Explored, name: str) -> str | Cell:
    """The number of an array where the sliders are."""
    over = {one.replace(" ", "_"): len(axes) for one, axes in explored.over.items()}
    return Cell((name, *SLIDERS[: over[name]])) if name else "0"


def tables(grid: Explored) -> tuple[BoardTable, ...]:
    config = grid.config
    widths = range(len(config.widths))
    depths = sorted({0, 1, 2, 4, 8, 12, config.steps} & {*range(config.steps + 1)})
    return (
        BoardTable(
            "At these settings: gap |f - f*| / |f*| to exact KRR, and RMSE at the queries "
            "against the true function (units of y)",
            ["predictor", "gap to exact KRR", "RMSE"],
            [[name, *(cell_of(grid, one) for one in both)] for name, both in PREDICTORS.items()],
        ),
        BoardTable(
            "Gap to exact KRR by depth and width, at this temperature and ridge",
            ["solver steps", *(f"width {width or 'all'}" for width in config.widths)],
            [
                [str(depth), *(Cell(("gap", *SLIDERS[:2], width, depth)) for width in widths)]
                for depth in depths
            ],
        ),
    )


GAPS = {
    "transformer": Line(BLUE),
    "bound": Line(BLUE, "2 3"),
    "one head": Line(RED, "6 3"),
    "mean": Line(_chart.ORANGE),
    "zero": Line(INK, "2 3"),
}


def predictions(explored: Explored) -> Chart:
    task = explored.task
    angle, places = (np.arctan2(x[:, 1], x[:, 0]) for x in map(np.asarray, (task.x, task.x_query)))
    y, truth = np.asarray(task.y, float), np.asarray(task.y_query, float)
    lines = {
        "exact KRR": Line(_chart.GREEN, width=5),
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
    scales = [{"domain": [-end, end], "nice": False} for end in (3.15, reach)]
    points = [
        {"query": i, "angle": round(float(a), 4), "true function": round(float(f), 4)}
        for i, (a, f) in enumerate(zip(places, truth, strict=True))
    ]
    support_points = [
        {"angle": round(float(a), 4), "y of the support": round(float(f), 4)}
        for a, f in zip(angle, y, strict=True)
    ]
    tooltips = [tooltip(f"{name}:Q") for name in support_points[0]]
    supports = alt.Chart(alt.Data(values=support_points))
    supports = supports.mark_circle(color=INK, size=45, opacity=0.75, clip=True)
    supports = supports.encode(y="y of the support:Q", tooltip=tooltips)
    return curves(
        "Predictions",
        "Lines of exact KRR, the true function, one softmax head and the transformer at the "
        "queries, against the angle of x. Dots are the supports.",
        points,
        alt.X("angle:Q", title="angle of x on the circle (radians)", scale=scales[0]),
        {"scale": scales[1], "title": "y (prior standard deviations)"},
        lines,
        tooltips=[*lines],
        base=folded({name: f"{path}[datum.query] / 1000" for name, path in paths.items()}, lines),
        below=[supports],
        zoom=True,
        reads=("exact", "smoother", "prediction"),
    )


def folded(calculated: dict[str, str], lines: _chart.Lines) -> alt.Chart:
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
    rule = alt.Chart().mark_rule(color=_chart.ACCENT, strokeWidth=8, opacity=0.25)
    marker = rule.transform_filter(f"datum.{axis} == {axis}")
    word = "depth" if axis == "depth" else "width"
    return curves(
        f"Gap to exact KRR against {word}",
        f"Lines of the gaps of the transformer, one softmax head, the mean of the supports and the "
        f"zero prediction, and the bound on the gap of the transformer, against {word}. Log scale.",
        points,
        x,
        log_axis((), 1e-8, 1e3),
        GAPS,
        tooltips=[*GAPS],
        base=folded({name: f"toNumber({path})" for name, path in paths.items()}, GAPS),
        below=[marker],
        reads=("gap", "bound", "smoother_gap", "mean_gap"),
        span=3,
    )


def slot_chart(slot: str, explored: Explored) -> Chart:
    """A slot at every support after every step; a frame marks the depth of the slider."""
    supports, depths = range(explored.config.num_supports), range(explored.config.steps + 1)
    frame = alt.Chart().mark_rect(fillOpacity=0, stroke=INK, strokeWidth=1)
    frame = frame.encode(y=alt.value(0), y2=alt.value("height"))
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
        tooltips=["step:O", "support:O", f"{slot}:Q"],
        layer=[frame.transform_filter("datum.step == depth && datum.support == 1")],
        reads=(slot, f"{slot}_most"),
        span=4,
    )
