"""A self-contained HTML page with charts, tables, and sliders over precomputed results.

altair writes the charts as Vega-Lite. vl-convert bundles its library into the page (0.9 MB) and
draws the same charts as static SVG without a browser, for readers without scripts. SVG has text and
labels for screen readers, and takes its colours from the theme of the page; Vega's interpreter of
expressions needs no `eval`, so that the policy of the page forbids it.
"""

from ._explorer import explorer_section
from ._identification import identification_section
from ._page import Facts, Section, claims_section, facts_of, provenance, render
from ._scaling import scaling_section
from ._snapshots import snapshots_section
from ._sweep import sweep_section, training_section

__all__ = [
    "Facts",
    "Section",
    "claims_section",
    "explorer_section",
    "facts_of",
    "identification_section",
    "provenance",
    "render",
    "scaling_section",
    "snapshots_section",
    "sweep_section",
    "training_section",
]
