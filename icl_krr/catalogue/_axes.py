"""Catalogue rows for the axes of sweeps."""

from ._rows import Axis

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
AXES = {name: Axis(name, f"icl_krr.experiments._sweep.axes:{name}") for name in NAMES}
