"""Rows of results, as tables and figures take them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

Rows = list[dict[str, Any]]


class Plot(NamedTuple):
    """The figure of rows: `y` and dashed its `bound` against `x`, a line for all values of `by`."""

    x: str
    y: str
    by: tuple[str, ...] = ()
    bound: str = ""
    logx: bool = False
    logy: bool = True


def tidy(axes: Mapping[str, Any], **values: Any) -> Rows:
    """One row for every combination of the axes; each value is an array over their product."""
    axes = {name: np.asarray(axis).tolist() for name, axis in axes.items()}
    names, shape = list(axes), tuple(len(axis) for axis in axes.values())
    columns = {name: np.broadcast_to(np.asarray(v), shape) for name, v in values.items()}
    return [
        dict(zip(names, combination, strict=True))
        | {name: column[index].item() for name, column in columns.items()}
        for index, combination in zip(
            np.ndindex(*shape), itertools.product(*axes.values()), strict=True
        )
    ]
