"""The section with sliders over constructed transformers: predictions, gaps, bounds and slots."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ..experiments.explorer import SLOTS, Explored
from .chart import Axis, Board, Cell, Table, numbers, shares, thousandths
from .explorer_charts import gaps, predictions, slot_chart
from .page import Fold, Section

HERE = ("temperature", "ridge", "channels", "depth")
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


def explorer_section(found: Explored) -> Section:
    config = found.config
    axes = {
        "temperature": nearest("temperature", config.temperatures, 0.5),
        "ridge": nearest("ridge / k(x, x)", config.ridges, config.noise),
        "channels": Axis(
            "width (channels)",
            tuple(str(width or "all") for width in config.widths),
            len(config.widths) - 1,
        ),
        "depth": Axis(
            "depth (solver steps)", tuple(map(str, range(config.steps + 1))), config.steps // 2
        ),
    }
    board = Board(
        charts=(
            predictions(found),
            gaps("depth", [{"depth": depth} for depth in range(config.steps + 1)]),
            gaps(
                "channels",
                [{"channels": w, "m": str(m or "all")} for w, m in enumerate(config.widths)],
            ),
            *(slot_chart(slot, found) for slot in SLOTS),
        ),
        axes=axes,
        data=data_of(found),
        words=tuple(
            cell_of(found, part) if i % 2 else part
            for i, part in enumerate(re.split(r"\{(\w+)\}", NUMBERS))
        ),
        caption=(
            f"Conjugate gradient as a transformer on one task: n = {config.num_supports} supports "
            f"on the unit circle, {config.num_queries} queries, y from a Gaussian process with "
            f"k(x, x) = 1 at temperature 0.5 and noise variance {config.noise:g}. Slots: blue is "
            "positive and orange is negative; full colour is the largest entry of the slot. "
            f"Seed {config.seed}, {found.dtype}. Point at a chart for values. Shift and the wheel "
            "zoom the predictions, and a double click resets them."
        ),
        tables=tables(found),
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


def nearest(label: str, values: tuple[float, ...], wanted: float) -> Axis:
    start = int(np.argmin(np.abs(np.asarray(values) - wanted)))
    return Axis(label, tuple(map(str, values)), start)


def data_of(found: Explored) -> dict[str, Any]:
    """Nested lists by name: numbers as text, and curves in thousandths."""
    data: dict[str, Any] = {}
    for name, values in found.arrays.items():
        key = name.replace(" ", "_")
        if name in SLOTS:  # alpha is e^(1 / temperature) times smaller than y
            data[key], data[f"{key}_most"] = shares(values, (-2, -1))
        elif values.ndim > len(found.over[name]):
            data[key] = thousandths(values)
        else:
            data[key] = numbers(values)
    return data


def cell_of(found: Explored, name: str) -> str | Cell:
    """The number of an array where the sliders are."""
    over = {one.replace(" ", "_"): len(axes) for one, axes in found.over.items()}
    return Cell((name, *HERE[: over[name]])) if name else "0"


def tables(found: Explored) -> tuple[Table, ...]:
    config = found.config
    widths = range(len(config.widths))
    depths = sorted({0, 1, 2, 4, 8, 12, config.steps} & {*range(config.steps + 1)})
    return (
        Table(
            "At these settings: gap |f - f*| / |f*| to exact KRR, and RMSE at the queries "
            "against the true function (units of y)",
            ["predictor", "gap to exact KRR", "RMSE"],
            [[name, *(cell_of(found, one) for one in both)] for name, both in PREDICTORS.items()],
        ),
        Table(
            "Gap to exact KRR by depth and width, at this temperature and ridge",
            ["solver steps", *(f"width {width or 'all'}" for width in config.widths)],
            [
                [str(depth), *(Cell(("gap", *HERE[:2], width, depth)) for width in widths)]
                for depth in depths
            ],
        ),
    )
