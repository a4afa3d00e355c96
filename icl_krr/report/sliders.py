"""What a page's sliders move: arrays over a grid, and where each number and line of them goes."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure as Drawn

from ..plots import MovingArtist, svg


class Axis(NamedTuple):
    """One slider: its label, and its values in words."""

    label: str
    values: tuple[str, ...]


class Cell(NamedTuple):
    """A number where the sliders stand, or where `at` fixes some of them."""

    data: str
    at: dict[str, int]


class Sliders(NamedTuple):
    """A figure and tables that follow sliders; `start` is what they show before they are moved.

    `numbers` and `curves` are (names of the axes, array over them); a curve has one axis more.
    """

    name: str
    axes: dict[str, Axis]
    start: dict[str, int]
    numbers: dict[str, tuple[tuple[str, ...], np.ndarray]]
    curves: dict[str, tuple[tuple[str, ...], np.ndarray]]
    figure: Drawn | None
    moving: list[MovingArtist]
    caption: str
    tables: tuple[tuple[str, list[str], list[list[str | Cell]]], ...]

    def show(self, cell: Cell) -> str:
        """The number in words, as the page shows it before a slider is moved."""
        over, values = self.numbers[cell.data]
        return three_digits(values[tuple((self.start | cell.at)[axis] for axis in over)])

    def drawing(self) -> bytes:
        """The figure, whose moving parts are named."""
        assert self.figure is not None
        for i, part in enumerate(self.moving):
            part.artist.set_gid(f"moving-{i}")
        return svg(self.figure, self.name)

    def data(self) -> str:
        """What the script looks up, as JSON that may stand in a page; call `drawing` before."""
        return json.dumps(
            {
                "axes": {name: axis.values for name, axis in self.axes.items()},
                "start": self.start,
                "numbers": {name: number_grid(*entry) for name, entry in self.numbers.items()},
                "curves": {name: curve_grid(*entry) for name, entry in self.curves.items()},
                "moving": [placement(part) for part in self.moving],
            },
            separators=(",", ":"),
            allow_nan=False,
        ).replace("<", "\\u003c")


def three_digits(value: Any) -> str:
    """A number to three digits."""
    return f"{float(value):.3g}"


def number_grid(over: tuple[str, ...], values: np.ndarray) -> dict[str, Any]:
    """In words, so that what is shown is what Python says."""
    return {"over": over, "values": [three_digits(value) for value in values.ravel()]}


def curve_grid(over: tuple[str, ...], values: np.ndarray) -> dict[str, Any]:
    """As 16 bits a point, finer than any screen; alike along the last slider, which is the depth.

    A coefficient alpha is e^(1 / temperature) times smaller than y, so each setting has its scale.
    """
    size = values.shape[-1]
    together = size * (values.shape[-2] if over else 1)
    groups = values.reshape(-1, together)
    largest = np.max(np.abs(groups), axis=1, keepdims=True)
    scales = np.where(largest > 0, largest, 1) / 32767
    whole = np.rint(groups / scales).astype("<i2")
    return {
        "over": over,
        "size": size,
        "together": together,
        "scales": [float(f"{scale:.6g}") for scale in scales[:, 0]],
        "values": base64.b64encode(whole.tobytes()).decode(),
    }


def placement(part: MovingArtist) -> dict[str, Any]:
    """How values become places in the drawing, whose unit is 1/72 inch and whose y goes down."""
    figure = part.axes.figure
    assert isinstance(figure, Drawn)
    points, height = 72 / figure.dpi, 72 * figure.get_figheight()

    def at(x: float, y: float) -> np.ndarray:
        return part.axes.transData.transform((x, y)) * points

    common = {"data": part.data, "along": part.along}
    if not part.x:
        image: Mapping[str, Any] = {"colours": colours(part.artist.get_cmap().name)}  # pyright: ignore[reportAttributeAccessIssue]
        return common | image
    low, high = part.axes.get_ylim()
    ends = [height - at(part.x[0], y)[1] for y in (low, high)]
    logarithmic = part.axes.get_yscale() == "log"
    return common | {
        "x": [round(float(at(x, low)[0]), 2) for x in part.x],
        "y": [round(float(end), 2) for end in ends],
        "limits": [float(np.log10(v)) if logarithmic else float(v) for v in (low, high)],
        "log": logarithmic,
        "marker": part.marker,
    }


def colours(name: str) -> str:
    table = (colormaps[name](np.arange(256))[:, :3] * 255).astype("u1")
    return base64.b64encode(table.tobytes()).decode()
