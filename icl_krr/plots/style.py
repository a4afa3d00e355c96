"""Colours that are safe for colour-blind readers, and image files."""

from __future__ import annotations

from io import BytesIO

import matplotlib
from matplotlib.figure import Figure

# Okabe and Ito, Color universal design, 2008
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE = "#CC79A7"
COLORS = (BLUE, ORANGE, GREEN, RED, PURPLE, "#56B4E9", "black", "#F0E442")
STYLES = {
    "mean": (ORANGE, "-"),
    "zero": ("black", ":"),
    "nadaraya_watson": (RED, "--"),
    "exact": (GREEN, "-"),
}


def images(name: str, figure: Figure) -> dict[str, bytes]:
    """A figure as PNG and as SVG with text elements, {file name: content}."""
    return {f"{name}.png": png(figure), f"{name}.svg": svg(figure, name)}


def png(figure: Figure) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def svg(figure: Figure, name: str) -> bytes:
    """An SVG with reproducible bytes: identifiers come from `name`, and there is no date."""
    buffer = BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
