"""Data of the sliders: arrays over a grid, and the place of each number and line in the page."""

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
    """One slider: its label, and its values as text."""

    label: str
    values: tuple[str, ...]


class Cell(NamedTuple):
    """A number at the slider positions; `at` replaces some of the positions."""

    data: str
    at: dict[str, int]


class Sliders(NamedTuple):
    """A figure and tables that follow sliders; `start` holds the initial positions.

    `numbers` and `curves` map a name to (names of the axes, array over these axes). Arrays of
    `curves` have one more axis at the end, the points of the curve.
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
        """The number as text at the initial positions."""
        over, values = self.numbers[cell.data]
        return three_digits(values[tuple((self.start | cell.at)[axis] for axis in over)])

    def drawing(self) -> bytes:
        """The figure, with an identifier for every moving part."""
        assert self.figure is not None
        for i, part in enumerate(self.moving):
            part.artist.set_gid(f"moving-{i}")
        return svg(self.figure, self.name)

    def data(self) -> str:
        """The data of the script, as JSON that is safe inside HTML; call `drawing` first."""
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
    """A number as text with three digits."""
    return f"{float(value):.3g}"


def number_grid(over: tuple[str, ...], values: np.ndarray) -> dict[str, Any]:
    """Numbers as text, so that the page shows the digits that Python prints."""
    return {"over": over, "values": [three_digits(value) for value in values.ravel()]}


def curve_grid(over: tuple[str, ...], values: np.ndarray) -> dict[str, Any]:
    """Curves as 16-bit integers, with one scale per setting, shared by all depths.

    Scales differ between settings because alpha is e^(1 / temperature) times smaller than y.
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
    """The map from values to positions in the SVG (unit 1/72 inch, y axis downwards)."""
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
