"""The section on the residual streams and attention patterns of two models."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import altair as alt
import numpy as np

from ..experiments._snapshot import Snapshot
from ._chart import INK, Axis, Board, Chart, thousandths
from ._marks import heatmap
from ._page import Section

LEAST = 1e-6


def snapshots_section(
    constructed: Snapshot, trained: Snapshot, name: str, dtype: str, seed: int
) -> Section:
    """Attention patterns and residual streams of a constructed and of a trained model."""
    words = (
        "The constructed model is a model of the previous section, with temperature 0.5, ridge "
        "0.1 k(x, x) and full width. Its residual stream consists of disjoint, named slots. "
        "Scratch slots are empty at the end of every step. "
        f"{name} is a trained model. Its residual stream has no named slots.",
    )
    models = {"constructed": constructed, "trained": trained}
    largest = {key: full_scale(one) for key, one in models.items()}
    board = Board(
        charts=(
            stream_chart("Construction: size of every slot after every block", constructed.slots),
            pattern_chart("constructed", "Construction: attention of one head", constructed),
            stream_chart(f"{name}: size of every token after every block", trained.tokens),
            pattern_chart("trained", f"{name}: attention of one head", trained),
        ),
        axes={
            "constructed": Axis("head of the construction", head_names(constructed)),
            "trained": Axis(f"head of {name}", head_names(trained)),
        },
        data={
            f"{key}_weights": thousandths(
                np.stack([pattern.weights[:, : num_attended_keys(one)] for pattern in one.patterns])
                / largest[key]
            )
            for key, one in models.items()
        }
        | {f"{key}_most": largest[key] for key in models},
        caption=(
            "Left: root mean square of every slot (over tokens) or of every token (over channels) "
            f"on a log scale; empty is 0 or less than {LEAST:g} of the largest value. Some "
            "slots, such as pAp, are always empty, because the MLP of the same block divides by "
            "their value and then erases it. Right: the head that the slider selects, one row per "
            "attending token. Softmax weights have a square-root scale. A head of the construction "
            "is named by the slot that it writes, and its later steps use the heads of the first "
            "step. A head with zero queries and keys computes a mean. The first key is the "
            f"aggregator token, which serves as the attention sink. {name} runs on one task of its "
            f"family, with tokens sorted by x. Seed {seed}, {dtype}."
        ),
    )
    return Section("inside", "Residual streams and attention patterns", words, (board,))


def head_names(snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(f"block {pattern.block}: {pattern.name}" for pattern in snapshot.patterns)


def num_attended_keys(snapshot: Snapshot) -> int:
    """The number of keys without those at the end that no head reads, such as the queries."""
    return int(np.flatnonzero(sum(pattern.weights.sum(0) for pattern in snapshot.patterns))[-1]) + 1


def is_signed(snapshot: Snapshot) -> bool:
    """Linear attention weighs by any number."""
    weights = np.stack([pattern.weights for pattern in snapshot.patterns])
    return bool(weights.min() < 0 or weights.max() > 1)


def full_scale(snapshot: Snapshot) -> float:
    """The weight with full colour."""
    most = max(float(np.max(np.abs(pattern.weights))) for pattern in snapshot.patterns)
    return most if is_signed(snapshot) else 1.0


def stream_chart(title: str, sizes: Mapping[str, np.ndarray]) -> Chart:
    """A heatmap on a log scale: the size of each named row after every block."""
    values = np.stack([np.asarray(row, float) for row in sizes.values()])
    top = float(values.max(initial=LEAST))
    least = max(float(values.min()), LEAST * top)
    points = [
        {"row": row, "block": block, "size": float(f"{size:.3g}")}
        for row, sizes_of_row in zip(sizes, values, strict=True)
        for block, size in enumerate(sizes_of_row)
        if size > LEAST * top
    ]
    return heatmap(
        title,
        "Heatmap; stronger colour is a larger root mean square, on a log scale.",
        points,
        alt.X("block:O", title="after block (0: embedding)").scale(domain=[*range(len(values.T))]),
        alt.Y("row:O", title=None).scale(domain=[*sizes]),
        scale={"type": "log", "domain": [least, top], "range": [0.1, 1]},
        tooltips=["row:N", "block:O", "size:Q"],
        height=max(150, 11 * len(sizes)) if len(sizes) < 30 else 300,
    )


def pattern_chart(key: str, title: str, snapshot: Snapshot) -> Chart:
    """A heatmap of one head: one row per attending token, one column per key."""
    named = [f"{role} {i + 1}" if n > 1 else role for role, n in snapshot.roles for i in range(n)]
    read = num_attended_keys(snapshot)
    ends = np.cumsum([count for _, count in snapshot.roles])[:-1].tolist()
    starts = [0, *ends]
    middles = {
        start + count // 2: role
        for start, (role, count) in zip(starts, snapshot.roles, strict=True)
        if count > 1  # no room for the name of a single token, such as the aggregator
    }
    names = ", ".join(f"'{middle}': '{role}'" for middle, role in middles.items())
    tick = lambda count: alt.Axis(  # noqa: E731
        values=[middle for middle in middles if middle < count],
        labelExpr=f"{{{names}}}[datum.value]",
        ticks=False,
    )
    edge = lambda ends: alt.Chart(alt.Data(values=[{"end": end} for end in ends])).mark_rule(  # noqa: E731
        color=INK, strokeWidth=0.5, opacity=0.6
    )
    across = {"y": alt.value(0), "y2": alt.value("height")}
    along = {"x": alt.value(0), "x2": alt.value("width")}
    edges = [
        edge(end for end in ends if end < read).encode(alt.X("end:O", bandPosition=0), **across),
        edge(ends).encode(alt.Y("end:O", bandPosition=0), **along),
    ]
    return heatmap(
        title,
        "Heatmap of attention weights, one row per attending token and one column per key. "
        "Stronger colour is a larger weight; negative weights are orange.",
        [
            {"query": q, "key": k, "token": named[q], "attends to": named[k]}
            for q, k in product(range(len(named)), range(read))
        ],
        alt.X("key:O", title="attended token (key)", axis=tick(read)),
        alt.Y("query:O", title="attending token", axis=tick(len(named))),
        scale={"domain": [0, 1]} if is_signed(snapshot) else {"type": "sqrt", "domain": [0, 1]},
        tooltips=["token:N", "attends to:N", "weight:Q"],
        calculated={
            "sign": f"{key}_weights[{key}][datum.query][datum.key] / 1000",
            "size": "abs(datum.sign)",
            "weight": f"datum.sign * {key}_most",
        },
        height=300,
        layer=edges,
        reads=(f"{key}_weights", f"{key}_most"),
    )
