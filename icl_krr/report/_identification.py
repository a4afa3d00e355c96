"""The section on the solver that a trained model runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np

from .._core.files import Lines as TableLines
from ..experiments._shared.rows import Rows
from ._chart import BLUE, INK, RED, Board, BoardTable, Chart, Line
from ._marks import curves, heatmap, log_axis
from ._page import Fold, Section

SHOWN = 4
"""The nearest candidates have heatmaps at once, the others after a click."""
KEPT = 32
"""About the number of columns of a heatmap, with all first steps and fewer of the later ones."""


def identification_section(
    name: str,
    record: dict[str, Any],
    tables: Sequence[TableLines],
    distances: Rows,
    filters: Rows,
    provenance: str,
) -> Section:
    """The section on the solver that a model runs; `record` is that of `identify.json`."""
    layers, *spaces = tables
    named = f"{record['status']}; nearest: {', '.join(record['remain'])}"
    words = (
        f"The predictions of {name} after every layer are compared with the steps of candidate "
        "solvers. The kernel, ridge and step sizes of the candidates are fitted on other tasks. "
        f"Conclusion: {record.get('verdict', named)}.",
    )
    charts = [distance_chart(candidate, distances) for candidate in record["candidates"]]
    others = Fold("Distances to the other candidates", (Board(tuple(charts[SHOWN:])),))
    parts = (
        Board(
            tuple(charts[:SHOWN]),
            caption="Relative distance of the predictions after every layer to every step of the "
            "nearest candidates, with its mean. Stronger colour is nearer, and the frames mark the "
            f"steps that are aligned with the layers. {provenance}",
        ),
        *([others] if charts[SHOWN:] else []),
        Board(
            (filter_chart(filters),),
            caption="Spectral filter q(sigma) in d prediction / d y = k(x)^T q(K) of every layer "
            "on the eigenvalues sigma of K; later layers are stronger, with 95 % intervals. "
            f"{provenance}",
        ),
        Fold(
            "Tables: probes, distances of predictions and of hat matrices",
            (
                BoardTable(
                    "Errors of the linear probe and of its controls after every layer. The other "
                    "columns are the hyperparameters of the kernel ridge regression or "
                    "Nadaraya-Watson smoother whose hat matrix is nearest to that of the layer. "
                    f"{provenance}",
                    *layers,
                ),
                *(
                    BoardTable(f"Relative distance of {of} (95 % interval). {provenance}", *table)
                    for of, table in zip(("predictions", "hat matrices"), spaces, strict=True)
                ),
            ),
        ),
    )
    return Section("identification", f"Which solver does {name} run?", words, parts)


def distance_chart(record: dict[str, Any], rows: Rows) -> Chart:
    """The distances of the layers to some of the steps of a candidate, with the alignment."""
    candidate, kernel, aligned = record["candidate"], record["kernel"], record["alignment"]
    here = [row for row in rows if (row["candidate"], row["kernel"]) == (candidate, kernel)]
    last = max(row["step"] for row in here)
    spread = np.rint(np.geomspace(1, last + 1, KEPT)).astype(int) - 1
    columns = {*spread.tolist(), *aligned}
    points = [
        {
            "step": row["step"],
            "layer": row["layer"],
            "distance": float(row["prediction"]),
            "aligned": aligned[row["layer"] - 1] == row["step"],
        }
        for row in here
        if row["step"] in columns
    ]
    frame = alt.Chart().mark_rect(fillOpacity=0, stroke=RED, strokeWidth=2)
    return heatmap(
        f"{candidate}, {kernel}: {record['prediction']['mean']:.2g}",
        "Heatmap of the distances of the layers to the steps of this candidate; the title has "
        "their mean over layers.",
        points,
        alt.X("step:O", title="solver steps"),
        alt.Y("layer:O", title="layer", sort="descending"),
        scale={"type": "log", "domain": [0.01, 1], "range": [1, 0]},
        tooltips=["layer:O", "step:O", "distance:Q"],
        calculated={"size": "datum.distance"},
        height=max(60, 16 * len(aligned)),
        layer=[frame.transform_filter("datum.aligned")],
        span=3,
    )


def filter_chart(rows: Rows) -> Chart:
    layers = max(row["layer"] for row in rows)
    exact = [row["exact"] for row in rows]
    limits = [min(exact) / 4, 4 * max(exact)]
    points = [
        {
            "sigma": row["sigma"],
            "layer": row["layer"],
            "line": "layer",
            "value": row["q"],
            "low": max(row["low"], limits[0]),
            "high": max(row["high"], limits[0]),
        }
        for row in rows
        if row["q"] > 0
    ] + [
        {"sigma": row["sigma"], "layer": layers, "line": "exact KRR", "value": row["exact"]}
        for row in rows
        if row["layer"] == layers
    ]
    lines = {"layer": Line(BLUE), "exact KRR": Line(INK, "6 3")}
    rule = alt.Chart().mark_rule(color=BLUE, strokeWidth=1, clip=True)
    intervals = rule.encode(y="low:Q", y2="high:Q").transform_filter("datum.line == 'layer'")
    opacity = alt.Opacity("layer:Q", legend=None, scale={"domain": [0, layers], "range": [0.15, 1]})
    chart = curves(
        "Spectral filters",
        "Lines of the filter of every layer, with intervals, and of the filter 1 / (sigma + ridge) "
        "of exact KRR. Log scales.",
        points,
        alt.X("sigma:Q", title="eigenvalue sigma of K", **log_axis(row["sigma"] for row in rows)),
        log_axis((), *limits) | {"title": "filter q(sigma)"},
        lines,
        tooltips=("layer", "value", "low", "high"),
        base=alt.Chart().encode(detail="layer:N"),
        below=[intervals],
        height=220,
        span=12,
    )
    return chart._replace(drawn=chart.drawn.encode(opacity=opacity))
