"""Rows of results, the input of tables and figures."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Rows = list[dict[str, Any]]
Show = Callable[[str], None]


class Plot(NamedTuple):
    """How to plot rows: `y` against `x`, one line per value of `by`, with `bound` dashed."""

    x: str
    y: str
    by: tuple[str, ...] = ()
    bound: str = ""
    logx: bool = False
    logy: bool = True


def tidy(axes: Mapping[str, Any], **values: Any) -> Rows:
    """One row per combination of the axes; each value is an array over the product of the axes."""
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
