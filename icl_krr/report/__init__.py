"""A self-contained HTML page with figures, tables, and sliders over precomputed results."""

from .page import Facts, Figure, Section, Table, render
from .sections import (
    claims_section,
    facts_of,
    identification_section,
    provenance,
    snapshots_section,
    training_section,
)
from .slider_sections import explorer_section, sweep_section
from .sliders import Sliders

__all__ = [
    "Facts",
    "Figure",
    "Section",
    "Sliders",
    "Table",
    "claims_section",
    "explorer_section",
    "facts_of",
    "identification_section",
    "provenance",
    "render",
    "snapshots_section",
    "sweep_section",
    "training_section",
]
