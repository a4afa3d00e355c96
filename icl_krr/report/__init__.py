"""One page that needs nothing else: figures, tables, and sliders over what was computed before."""

from .page import Facts, Figure, Section, Table, render
from .sections import claims, facts_of, identification, inside, made, training
from .slider_sections import explorer, sweep
from .sliders import Sliders

__all__ = [
    "Facts",
    "Figure",
    "Section",
    "Sliders",
    "Table",
    "claims",
    "explorer",
    "facts_of",
    "identification",
    "inside",
    "made",
    "render",
    "sweep",
    "training",
]
