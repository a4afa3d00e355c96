"""Catalogue entries for the axes of sweeps."""

from ._entries import AxisEntry, by_name

SIZES = ("depth", "width", "ridge", "temperature", "context", "features")
NUMBERS = ("position", "rounding", "precision", "arithmetic")
AXES = by_name(*map(AxisEntry, (*SIZES, *NUMBERS)))
