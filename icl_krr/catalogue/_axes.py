"""Catalogue entries for the axes of sweeps."""

from ._entries import AxisEntry

NAMES = (
    "depth",
    "width",
    "ridge",
    "temperature",
    "context",
    "features",
    "position",
    "rounding",
    "precision",
    "arithmetic",
)
AXES = {name: AxisEntry(name) for name in NAMES}
