"""Colours that the colour-blind tell apart, and files."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure

# Okabe and Ito, Color universal design, 2008
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
COLORS = (BLUE, ORANGE, GREEN, RED, "#CC79A7", "#56B4E9", "black", "#F0E442")
STYLES = {
    "mean": (ORANGE, "-"),
    "zero": ("black", ":"),
    "nadaraya-watson": (RED, "--"),
    "exact": (GREEN, "-"),
}


def png(figure: Figure) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
